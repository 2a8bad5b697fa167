# SPDX-License-Identifier: Apache-2.0
"""Where a container mounts the pod's volumes, as directories or as devices."""

from collections.abc import Mapping, Sequence

from refloat.api.meta import Object
from refloat.api.validation import rules
from refloat.api.validation.rules import Errors

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY_MODES = ("Disabled", "Enabled", "IfPossible")
_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")


def check_mounts_and_devices(
    container: Object, volumes: Mapping[str, Object], path: str, errors: Errors
) -> None:
    mounts = container.get("volumeMounts") or ()
    devices = container.get("volumeDevices") or ()
    device_paths = {each.get("name", ""): each.get("devicePath", "") for each in devices}
    targets: set[str] = set()
    for i, mount in enumerate(mounts):
        _check_mount(mount, volumes, targets, f"{path}.volumeMounts[{i}]", errors)
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        where = f"{path}.volumeMounts[{i}]"
        if name in device_paths:
            errors.invalid(f"{where}.name", name, "must not already exist in volumeDevices")
        if target in device_paths.values():
            detail = "must not already exist as a path in volumeDevices"
            errors.invalid(f"{where}.mountPath", target, detail)
        # The paths of the other errors have no index.
        part, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
        errors.descending_path(f"{path}.volumeMounts.subPath", part)
        if part and expression:
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.invalid(f"{where}.subPathExpr", expression, detail)
        errors.descending_path(f"{path}.volumeMounts.subPathExpr", expression)
        privileged = bool((container.get("securityContext") or {}).get("privileged"))
        _check_mode(mount, f"{path}.volumeMounts", errors, privileged=privileged)
    mount_paths = {each.get("name", ""): each.get("mountPath", "") for each in mounts}
    _check_devices(devices, volumes, mount_paths, f"{path}.volumeDevices", errors)


def _check_mount(
    mount: Object, volumes: Mapping[str, Object], targets: set[str], path: str, errors: Errors
) -> None:
    name, target = mount.get("name", ""), mount.get("mountPath", "")
    if not name:
        errors.required(f"{path}.name")
    if name not in volumes:
        errors.not_found(f"{path}.name", name)
    if not target:
        errors.required(f"{path}.mountPath")
    if target in targets:
        errors.invalid(f"{path}.mountPath", target, "must be unique")
    targets.add(target)


def _check_mode(mount: Object, path: str, errors: Errors, *, privileged: bool) -> None:
    propagation, where = mount.get("mountPropagation"), f"{path}.mountPropagation"
    errors.one_of(where, propagation, _PROPAGATIONS)
    if propagation == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        errors.forbidden(where, detail)
    mode, where = mount.get("recursiveReadOnly"), f"{path}.recursiveReadOnly"
    errors.one_of(where, mode, _READ_ONLY_MODES)
    if mode in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.forbidden(where, "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            errors.forbidden(where, detail)


def _check_devices(
    devices: Sequence[Object],
    volumes: Mapping[str, Object],
    mounts: Mapping[str, str],
    path: str,
    errors: Errors,
) -> None:
    names: set[str] = set()
    paths: set[str] = set()
    for i, device in enumerate(devices):
        name, target = device.get("name", ""), device.get("devicePath", "")
        where = f"{path}[{i}]"
        for key, value, others in (("name", name, names), ("devicePath", target, paths)):
            if not value:
                errors.required(f"{where}.{key}")
            if value in others:
                errors.invalid(f"{where}.{key}", value, "must be unique")
            if key == "name":
                _check_block_volume(name, volumes, f"{where}.name", errors)
        if rules.has_backsteps(target):
            errors.invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')")
        else:
            paths.add(target)
        if name in mounts:
            errors.invalid(f"{where}.name", name, "must not already exist in volumeMounts")
        if target in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            errors.invalid(f"{where}.devicePath", target, detail)
        if name:
            names.add(name)


def _check_block_volume(
    name: str, volumes: Mapping[str, Object], path: str, errors: Errors
) -> None:
    volume = volumes.get(name)
    if volume is None:
        errors.not_found(path, name)
    elif all(volume.get(source) is None for source in _BLOCK_SOURCES):
        detail = (
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        )
        errors.invalid(path, name, detail)
