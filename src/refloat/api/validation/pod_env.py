# SPDX-License-Identifier: Apache-2.0
"""Environment variables of a container, and references to the pod's own fields.

The downward API's selectors are here too; volumes use the same ones.
"""

from collections.abc import Callable

from refloat.api import names, quantity
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)

# All fields that the API can name; each place allows fewer.
_KNOWN_FIELDS = frozenset(
    (*ENV_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase")
)
_SUBSCRIPTED = ("metadata.annotations", "metadata.labels")

_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGEPAGES = ("requests.hugepages-", "limits.hugepages-")
_CPU_DIVISORS = ("1m", "1")
_BYTE_DIVISORS = (
    *("1", "1k", "1M", "1G", "1T", "1P", "1E"),
    *("1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"),
)
_BYTE_RESOURCES = {
    "cpu": ("cpu", _CPU_DIVISORS, "1m and 1"),
    "memory": ("memory", _BYTE_DIVISORS, ", ".join(_BYTE_DIVISORS)),
    "ephemeral-storage": (
        "local ephemeral storage",
        _BYTE_DIVISORS,
        ", ".join(_BYTE_DIVISORS),
    ),
    "hugepages": ("hugepages", _BYTE_DIVISORS, ", ".join(_BYTE_DIVISORS)),
}

_NO_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
    "`secretKeyRef` or `fileKeyRef`"
)
_MANY_SOURCES = "may not have more than one field specified at a time"


def check_env(variables: list[Object], path: str, errors: Errors) -> None:
    for i, variable in enumerate(variables):
        where = f"{path}[{i}]"
        errors.required_name(f"{where}.name", variable.get("name", ""), names.env_var_name)
        if (source := variable.get("valueFrom")) is not None:
            where = f"{where}.valueFrom"
            kinds = [each for each in _CHECKS if source.get(each) is not None]
            for each in kinds:
                _CHECKS[each](source[each], f"{where}.{each}", errors)
            if not kinds:
                errors.invalid(where, "", _NO_SOURCE)
            elif variable.get("value"):
                errors.invalid(where, "", "may not be specified when `value` is not empty")
            elif len(kinds) > 1:
                errors.invalid(where, "", _MANY_SOURCES)


def check_env_from(sources: list[Object], path: str, errors: Errors) -> None:
    for i, source in enumerate(sources):
        where = f"{path}[{i}]"
        if prefix := source.get("prefix"):
            errors.named(f"{where}.prefix", prefix, names.env_var_name)
        references = [
            each for each in ("configMapRef", "secretRef") if source.get(each) is not None
        ]
        for each in references:
            name = source[each].get("name", "")
            if name:
                complaints = names.dns_subdomain(names.as_prefix(name))
                errors.each(f"{where}.{each}.name", name, complaints)
            else:
                errors.required(f"{where}.{each}.name")
        if not references:
            errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(references) > 1:
            errors.invalid(path, "", _MANY_SOURCES)


def check_field_ref(
    reference: Object, path: str, errors: Errors, allowed: tuple[str, ...] = ENV_FIELDS
) -> None:
    """A field of the pod, by its path, perhaps with a key in brackets."""
    for part in ("apiVersion", "fieldPath"):
        if not reference.get(part):
            errors.required(f"{path}.{part}")
            return
    label = reference["fieldPath"]
    if reason := _unknown_field(reference["apiVersion"], label):
        errors.invalid(f"{path}.fieldPath", label, f"error converting fieldPath: {reason}")
        return
    stem, key = _subscript(label)
    if key is not None:
        label_key = key.lower() if stem == "metadata.annotations" else key
        errors.named(path, label_key, names.qualified_name)
        return
    if stem == "spec.host":
        stem = "spec.nodeName"
    if stem not in allowed:
        errors.not_supported(f"{path}.fieldPath", stem, allowed)


def _unknown_field(version: str, label: str) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    stem, key = _subscript(label)
    if key is not None:
        if stem in _SUBSCRIPTED:
            return ""
        return f"field label does not support subscript: {label}"
    if label in _KNOWN_FIELDS or label == "spec.host":
        return ""
    return f"field label not supported: {label}"


def _subscript(label: str) -> tuple[str, str | None]:
    """`metadata.labels['a']` is the stem and the key `a`; others have no key."""
    stem, bracket, rest = label.partition("['")
    if stem and bracket and rest.endswith("']"):
        return stem, rest[:-2]
    return label, None


def check_resource_ref(
    reference: Object, path: str, errors: Errors, *, container_required: bool = False
) -> None:
    """A request or a limit of a container, counted in a unit."""
    resource = reference.get("resource", "")
    if container_required and not reference.get("containerName"):
        errors.required(f"{path}.containerName")
    elif not resource:
        errors.required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(_HUGEPAGES):
        errors.not_supported(f"{path}.resource", resource, _RESOURCES)
    divisor = reference.get("divisor", "0")
    if quantity.value(divisor) == 0:
        return
    key = "hugepages" if resource.startswith(_HUGEPAGES) else resource.partition(".")[2]
    if not (resource in _RESOURCES or key == "hugepages"):
        return
    name, allowed, choices = _BYTE_RESOURCES[key]
    if divisor not in allowed:
        detail = f"only divisor's values {choices} are supported with the {name} resource"
        errors.invalid(f"{path}.divisor", resource, detail)


def _check_key_ref(reference: Object, path: str, errors: Errors) -> None:
    """A key of a ConfigMap or of a Secret."""
    errors.named(f"{path}.name", reference.get("name", ""), names.dns_subdomain)
    errors.required_name(f"{path}.key", reference.get("key", ""), names.config_map_key)


def _check_file_ref(reference: Object, path: str, errors: Errors) -> None:
    """A variable from a file of a volume."""
    errors.required_name(f"{path}.key", reference.get("key", ""), names.env_var_name)
    volume = reference.get("volumeName", "")
    errors.required_name(f"{path}.volumeName", volume, names.dns_label)
    if file := reference.get("path"):
        errors.no_backsteps(f"{path}.path", file)
    else:
        errors.required(f"{path}.path")


_CHECKS: dict[str, Callable[[Object, str, Errors], None]] = {
    "fieldRef": check_field_ref,
    "resourceFieldRef": check_resource_ref,
    "configMapKeyRef": _check_key_ref,
    "secretKeyRef": _check_key_ref,
    "fileKeyRef": _check_file_ref,
}
