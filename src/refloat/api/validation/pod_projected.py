# SPDX-License-Identifier: Apache-2.0
"""Files of a volume that come from the API: secrets, configuration, the pod.

Trust bundles and certificates are not here: their gates are off, and what
asks for them is dropped before validation (`api/pods.py`).
"""

from refloat.api import fields
from refloat.api.meta import Object
from refloat.api.validation import pod_env
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

TOKEN_SECONDS_MIN = 600
TOKEN_SECONDS_MAX = 2**32

_CONFLICT = "conflicting duplicate paths"


def check_secret(source: Object, path: str, errors: Errors) -> None:
    _check_keyed(source, "secretName", path, errors)


def check_config_map(source: Object, path: str, errors: Errors) -> None:
    _check_keyed(source, "name", path, errors)


def _check_keyed(source: Object, name: str, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, (name,), path)
    rules.file_mode(errors, source, "defaultMode", path)
    for i, item in enumerate(source.get("items") or ()):
        _check_item(item, f"{path}.items[{i}]", errors)


def _check_item(item: Object, path: str, errors: Errors) -> None:
    """A key and the file that it becomes."""
    rules.required_keys(errors, item, ("key", "path"), path)
    rules.local_path(errors, f"{path}.path", item.get("path", ""))
    rules.file_mode(errors, item, "mode", path)


def check_downward_api(source: Object, path: str, errors: Errors) -> None:
    rules.file_mode(errors, source, "defaultMode", path)
    for item in source.get("items") or ():
        _check_downward_file(item, path, errors)


def _check_downward_file(item: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, item, ("path",), path)
    rules.local_path(errors, f"{path}.path", item.get("path", ""))
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        pod_env.check_field_ref(field, pod_env.VOLUME_FIELDS, f"{path}.fieldRef", errors)
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(fields.invalid(path, "resource", detail))
    elif resource is not None:
        where = f"{path}.resourceFieldRef"
        pod_env.check_resource_ref(resource, where, errors, container_required=True)
    else:
        detail = "one of fieldRef and resourceFieldRef is required"
        errors.append(fields.required(path, detail))
    rules.file_mode(errors, item, "mode", path)


def check_projected(source: Object, path: str, errors: Errors) -> None:
    """Several sources whose files share one directory."""
    rules.file_mode(errors, source, "defaultMode", path)
    taken: set[str] = set()
    for i, each in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{i}]"
        for kind in ("secret", "configMap"):
            if (part := each.get(kind)) is not None:
                _check_keyed_part(part, taken, f"{where}.{kind}", path, errors)
        if (part := each.get("downwardAPI")) is not None:
            _check_downward_part(part, taken, f"{where}.downwardAPI", path, errors)
        if (part := each.get("serviceAccountToken")) is not None:
            _check_token(part, f"{where}.serviceAccountToken", path, errors)
        if len(each) > 1:
            detail = "may not specify more than 1 volume type per source"
            errors.append(fields.forbidden(where, detail))


def _check_keyed_part(
    part: Object, taken: set[str], path: str, volume: str, errors: Errors
) -> None:
    rules.required_keys(errors, part, ("name",), path)
    for i, item in enumerate(part.get("items") or ()):
        _check_item(item, f"{path}.items[{i}]", errors)
        _take(item.get("path", ""), taken, part.get("name", ""), volume, errors)


def _check_downward_part(
    part: Object, taken: set[str], path: str, volume: str, errors: Errors
) -> None:
    for item in part.get("items") or ():
        _check_downward_file(item, path, errors)
        file = item.get("path", "")
        _take(file, taken, file, volume, errors)


def _take(file: str, taken: set[str], shown: str, volume: str, errors: Errors) -> None:
    """Two files cannot have one path."""
    if file in taken:
        errors.append(fields.invalid(volume, shown, _CONFLICT))
    elif file:
        taken.add(file)


def _check_token(part: Object, path: str, volume: str, errors: Errors) -> None:
    seconds = part.get("expirationSeconds", 0)
    if seconds < TOKEN_SECONDS_MIN:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(fields.invalid(f"{path}.expirationSeconds", seconds, detail))
    if seconds > TOKEN_SECONDS_MAX:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(fields.invalid(f"{path}.expirationSeconds", seconds, detail))
    if file := part.get("path", ""):
        rules.local_path(errors, f"{volume}.path", file)
    else:
        errors.append(fields.required(f"{volume}.path"))
