# SPDX-License-Identifier: Apache-2.0
"""Where a container mounts the pod's volumes, as directories or as devices."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from refloat.api.meta import Object
from refloat.api.validation import rules
from refloat.api.validation.rules import Errors

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY_MODES = ("Disabled", "Enabled", "IfPossible")
_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")
_NOT_BLOCK = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def check_mounts_and_devices(
    container: Object, volumes: Mapping[str, Object], path: str, errors: Errors
) -> None:
    mounts = container.get("volumeMounts") or ()
    devices = container.get("volumeDevices") or ()
    device_paths = {each.get("name", ""): each.get("devicePath", "") for each in devices}
    targets: set[str] = set()
    for i, mount in enumerate(mounts):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        where = f"{path}.volumeMounts[{i}]"
        if not name:
            errors.required(f"{where}.name")
        if name not in volumes:
            errors.not_found(f"{where}.name", name)
        _check_set_once(target, targets, f"{where}.mountPath", errors)
        targets.add(target)
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


def _check_set_once(value: str, others: AbstractSet[str], path: str, errors: Errors) -> None:
    if not value:
        errors.required(path)
    if value in others:
        errors.invalid(path, value, "must be unique")


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
        _check_set_once(name, names, f"{where}.name", errors)
        volume = volumes.get(name)
        if volume is None:
            errors.not_found(f"{where}.name", name)
        elif all(volume.get(source) is None for source in _BLOCK_SOURCES):
            errors.invalid(f"{where}.name", name, _NOT_BLOCK)
        _check_set_once(target, paths, f"{where}.devicePath", errors)
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
