# SPDX-License-Identifier: Apache-2.0
"""Environment variables of a container, and references to the pod's own fields.

The downward API's selectors are here too; volumes use the same ones.
"""

from refloat.api import fields, names, quantity
from refloat.api.meta import Object
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

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

# What the API can name at all; where it may be used is narrower.
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

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NO_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
    "`secretKeyRef` or `fileKeyRef`"
)
_MANY_SOURCES = "may not have more than one field specified at a time"


def check_env(variables: list[Object], path: str, errors: Errors) -> None:
    for i, variable in enumerate(variables):
        where = f"{path}[{i}]"
        rules.required_name(errors, f"{where}.name", variable.get("name", ""), names.env_var_name)
        if (source := variable.get("valueFrom")) is not None:
            _check_value_from(source, variable.get("value", ""), f"{where}.valueFrom", errors)


def _check_value_from(source: Object, value: str, path: str, errors: Errors) -> None:
    given = [each for each in _SOURCES if source.get(each) is not None]
    for each in given:
        _CHECKS[each](source[each], f"{path}.{each}", errors)
    if not given:
        errors.append(fields.invalid(path, "", _NO_SOURCE))
    elif value:
        errors.append(fields.invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(fields.invalid(path, "", _MANY_SOURCES))


def check_env_from(sources: list[Object], path: str, errors: Errors) -> None:
    for i, source in enumerate(sources):
        where = f"{path}[{i}]"
        if prefix := source.get("prefix"):
            rules.named(errors, f"{where}.prefix", prefix, names.env_var_name)
        given = [each for each in ("configMapRef", "secretRef") if source.get(each) is not None]
        for each in given:
            name = source[each].get("name", "")
            rules.required_name(errors, f"{where}.{each}.name", name, _object_name_prefix)
        if not given:
            detail = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(fields.invalid(path, "", detail))
        elif len(given) > 1:
            errors.append(fields.invalid(path, "", _MANY_SOURCES))


def _object_name_prefix(value: str) -> names.Complaints:
    return names.dns_subdomain(names.as_prefix(value))


def _check_env_field(reference: Object, path: str, errors: Errors) -> None:
    check_field_ref(reference, ENV_FIELDS, path, errors)


def check_field_ref(reference: Object, allowed: tuple[str, ...], path: str, errors: Errors) -> None:
    """A field of the pod, by its path, perhaps with a key in brackets."""
    for part in ("apiVersion", "fieldPath"):
        if not reference.get(part):
            errors.append(fields.required(f"{path}.{part}"))
            return
    label = reference["fieldPath"]
    if reason := _unknown_field(reference["apiVersion"], label):
        detail = f"error converting fieldPath: {reason}"
        errors.append(fields.invalid(f"{path}.fieldPath", label, detail))
        return
    stem, key = _subscript(label)
    if key is not None:
        named = key.lower() if stem == "metadata.annotations" else key
        rules.named(errors, path, named, names.qualified_name)
        return
    if stem == "spec.host":
        stem = "spec.nodeName"
    if stem not in allowed:
        errors.append(fields.not_supported(f"{path}.fieldPath", stem, allowed))


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


def _check_env_resource(reference: Object, path: str, errors: Errors) -> None:
    check_resource_ref(reference, path, errors, container_required=False)


def check_resource_ref(
    reference: Object, path: str, errors: Errors, *, container_required: bool
) -> None:
    """A request or a limit of a container, counted in a unit."""
    resource = reference.get("resource", "")
    if container_required and not reference.get("containerName"):
        errors.append(fields.required(f"{path}.containerName"))
    elif not resource:
        errors.append(fields.required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGEPAGES):
        errors.append(fields.not_supported(f"{path}.resource", resource, _RESOURCES))
    _check_divisor(resource, reference.get("divisor", "0"), path, errors)


def _check_divisor(resource: str, divisor: str, path: str, errors: Errors) -> None:
    if quantity.value(divisor) == 0:
        return
    key = "hugepages" if resource.startswith(_HUGEPAGES) else resource.partition(".")[2]
    if not (resource in _RESOURCES or key == "hugepages"):
        return
    name, allowed, shown = _BYTE_RESOURCES[key]
    if divisor not in allowed:
        detail = f"only divisor's values {shown} are supported with the {name} resource"
        errors.append(fields.invalid(f"{path}.divisor", resource, detail))


def _check_key_ref(reference: Object, path: str, errors: Errors) -> None:
    """A key of a ConfigMap or of a Secret."""
    rules.named(errors, f"{path}.name", reference.get("name", ""), names.dns_subdomain)
    rules.required_name(errors, f"{path}.key", reference.get("key", ""), names.config_map_key)


def _check_file_ref(reference: Object, path: str, errors: Errors) -> None:
    """A variable out of a file of a volume."""
    rules.required_name(errors, f"{path}.key", reference.get("key", ""), names.env_var_name)
    volume = reference.get("volumeName", "")
    rules.required_name(errors, f"{path}.volumeName", volume, names.dns_label)
    if file := reference.get("path"):
        rules.no_backsteps(errors, f"{path}.path", file)
    else:
        errors.append(fields.required(f"{path}.path"))


_CHECKS = {
    "fieldRef": _check_env_field,
    "resourceFieldRef": _check_env_resource,
    "configMapKeyRef": _check_key_ref,
    "secretKeyRef": _check_key_ref,
    "fileKeyRef": _check_file_ref,
}
