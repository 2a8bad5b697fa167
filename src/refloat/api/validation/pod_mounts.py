# SPDX-License-Identifier: Apache-2.0
"""Where a container mounts the pod's volumes, as directories or as devices."""

from collections.abc import Mapping

from refloat.api import fields
from refloat.api.meta import Object
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY_MODES = ("Disabled", "Enabled", "IfPossible")
_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")


def check_mounts_and_devices(
    container: Object, volumes: Mapping[str, Object], path: str, errors: Errors
) -> None:
    mounts = container.get("volumeMounts") or ()
    devices = container.get("volumeDevices") or ()
    if mounts:
        device_paths = {each.get("name", ""): each.get("devicePath", "") for each in devices}
        taken: set[str] = set()
        for i, mount in enumerate(mounts):
            where = f"{path}.volumeMounts"
            _check_place(mount, volumes, taken, f"{where}[{i}]", errors)
            _check_not_device(mount, device_paths, f"{where}[{i}]", errors)
            _check_part(mount, f"{where}[{i}]", where, errors)
            _check_mode(mount, _is_privileged(container), where, errors)
    if devices:
        mount_paths = {each.get("name", ""): each.get("mountPath", "") for each in mounts}
        _check_devices(devices, volumes, mount_paths, f"{path}.volumeDevices", errors)


def _is_privileged(container: Object) -> bool:
    return bool((container.get("securityContext") or {}).get("privileged"))


def _check_place(
    mount: Object, volumes: Mapping[str, Object], taken: set[str], path: str, errors: Errors
) -> None:
    name, target = mount.get("name", ""), mount.get("mountPath", "")
    if not name:
        errors.append(fields.required(f"{path}.name"))
    if name not in volumes:
        errors.append(fields.not_found(f"{path}.name", name))
    if not target:
        errors.append(fields.required(f"{path}.mountPath"))
    if target in taken:
        errors.append(fields.invalid(f"{path}.mountPath", target, "must be unique"))
    taken.add(target)


def _check_not_device(mount: Object, devices: Mapping[str, str], path: str, errors: Errors) -> None:
    name, target = mount.get("name", ""), mount.get("mountPath", "")
    if name in devices:
        detail = "must not already exist in volumeDevices"
        errors.append(fields.invalid(f"{path}.name", name, detail))
    if target in devices.values():
        detail = "must not already exist as a path in volumeDevices"
        errors.append(fields.invalid(f"{path}.mountPath", target, detail))


def _check_part(mount: Object, path: str, mounts: str, errors: Errors) -> None:
    """Only a part of the volume; its mistakes are reported without an index."""
    part, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if part:
        rules.descending_path(errors, f"{mounts}.subPath", part)
    if expression:
        if part:
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.append(fields.invalid(f"{path}.subPathExpr", expression, detail))
        rules.descending_path(errors, f"{mounts}.subPathExpr", expression)


def _check_mode(mount: Object, privileged: bool, path: str, errors: Errors) -> None:
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        where = f"{path}.mountPropagation"
        rules.one_of(errors, where, propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(fields.forbidden(where, detail))
    mode = mount.get("recursiveReadOnly")
    if mode is None:
        return
    where = f"{path}.recursiveReadOnly"
    rules.one_of(errors, where, mode, _READ_ONLY_MODES)
    if mode not in ("Enabled", "IfPossible"):
        return
    if not mount.get("readOnly"):
        errors.append(fields.forbidden(where, "may only be specified when readOnly is true"))
    if propagation not in (None, "None"):
        detail = "may only be specified when mountPropagation is None or not specified"
        errors.append(fields.forbidden(where, detail))


def _check_devices(
    devices: list[Object],
    volumes: Mapping[str, Object],
    mounts: Mapping[str, str],
    path: str,
    errors: Errors,
) -> None:
    seen: set[str] = set()
    paths: set[str] = set()
    for i, device in enumerate(devices):
        where = f"{path}[{i}]"
        _check_device_name(device.get("name", ""), volumes, seen, f"{where}.name", errors)
        target = device.get("devicePath", "")
        _check_device_path(target, paths, f"{where}.devicePath", errors)
        if (name := device.get("name", "")) in mounts:
            detail = "must not already exist in volumeMounts"
            errors.append(fields.invalid(f"{where}.name", name, detail))
        if target in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            errors.append(fields.invalid(f"{where}.devicePath", target, detail))
        if name:
            seen.add(name)


def _check_device_name(
    name: str, volumes: Mapping[str, Object], seen: set[str], path: str, errors: Errors
) -> None:
    if not name:
        errors.append(fields.required(path))
    if name in seen:
        errors.append(fields.invalid(path, name, "must be unique"))
    volume = volumes.get(name)
    if volume is None:
        errors.append(fields.not_found(path, name))
    elif all(volume.get(source) is None for source in _BLOCK_SOURCES):
        detail = (
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        )
        errors.append(fields.invalid(path, name, detail))


def _check_device_path(target: str, paths: set[str], path: str, errors: Errors) -> None:
    if not target:
        errors.append(fields.required(path))
    if target in paths:
        errors.append(fields.invalid(path, target, "must be unique"))
    if rules.has_backsteps(target):
        errors.append(fields.invalid(path, target, "can not contain backsteps ('..')"))
    else:
        paths.add(target)
