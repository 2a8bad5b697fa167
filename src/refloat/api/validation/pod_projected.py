# SPDX-License-Identifier: Apache-2.0
"""Files of a volume that come from the API: secrets, configuration, the pod.

Trust bundles and certificates are not here: their gates are off, and what
asks for them is dropped before validation (`api/pod_preparation.py`).
"""

from refloat.api.meta import Object
from refloat.api.validation import pod_env
from refloat.api.validation.rules import Errors

TOKEN_SECONDS_MIN = 600
TOKEN_SECONDS_MAX = 2**32


def check_secret(source: Object, path: str, errors: Errors) -> None:
    _check_keyed(source, "secretName", path, errors)


def check_config_map(source: Object, path: str, errors: Errors) -> None:
    _check_keyed(source, "name", path, errors)


def _check_keyed(source: Object, name: str, path: str, errors: Errors) -> None:
    errors.required_keys(source, (name,), path)
    errors.file_mode(source, "defaultMode", path)
    for i, item in enumerate(source.get("items") or ()):
        _check_item(item, f"{path}.items[{i}]", errors)


def _check_item(item: Object, path: str, errors: Errors) -> None:
    """A key and the file with the key's value."""
    errors.required_keys(item, ("key", "path"), path)
    errors.local_path(f"{path}.path", item.get("path", ""))
    errors.file_mode(item, "mode", path)


def check_downward_api(source: Object, path: str, errors: Errors) -> None:
    errors.file_mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        _check_downward_file(item, path, errors)


def _check_downward_file(item: Object, path: str, errors: Errors) -> None:
    errors.required_keys(item, ("path",), path)
    errors.local_path(f"{path}.path", item.get("path", ""))
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        pod_env.check_field_ref(field, f"{path}.fieldRef", errors, pod_env.VOLUME_FIELDS)
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.invalid(path, "resource", detail)
    elif resource is not None:
        where = f"{path}.resourceFieldRef"
        pod_env.check_resource_ref(resource, where, errors, container_required=True)
    else:
        errors.required(path, "one of fieldRef and resourceFieldRef is required")
    errors.file_mode(item, "mode", path)


def check_projected(source: Object, path: str, errors: Errors) -> None:
    """Several sources whose files share one directory."""
    errors.file_mode(source, "defaultMode", path)
    paths: set[str] = set()
    for i, each in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{i}]"
        for kind in ("secret", "configMap"):
            if (part := each.get(kind)) is not None:
                errors.required_keys(part, ("name",), f"{where}.{kind}")
                for j, item in enumerate(part.get("items") or ()):
                    _check_item(item, f"{where}.{kind}.items[{j}]", errors)
                    _check_conflict(item.get("path", ""), paths, part.get("name", ""), path, errors)
        for item in (each.get("downwardAPI") or {}).get("items") or ():
            _check_downward_file(item, f"{where}.downwardAPI", errors)
            file = item.get("path", "")
            _check_conflict(file, paths, file, path, errors)
        if (token := each.get("serviceAccountToken")) is not None:
            seconds = token.get("expirationSeconds", 0)
            at = f"{where}.serviceAccountToken.expirationSeconds"
            if seconds < TOKEN_SECONDS_MIN:
                errors.invalid(at, seconds, "may not specify a duration less than 10 minutes")
            if seconds > TOKEN_SECONDS_MAX:
                errors.invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")
            # Here the path is that of the volume.
            errors.required_keys(token, ("path",), path)
            errors.local_path(f"{path}.path", token.get("path", ""))
        if len(each) > 1:
            errors.forbidden(where, "may not specify more than 1 volume type per source")


def _check_conflict(file: str, paths: set[str], label: str, volume: str, errors: Errors) -> None:
    """Two files cannot have one path."""
    if file in paths:
        errors.invalid(volume, label, "conflicting duplicate paths")
    elif file:
        paths.add(file)
