# SPDX-License-Identifier: Apache-2.0
"""Annotations of a pod that mean something to Kubernetes.

Some were fields before there were fields; they are checked still.
"""

from typing import Any

from refloat.api import fields, gojson
from refloat.api.meta import Object
from refloat.api.validation import pod_affinity, pod_security
from refloat.api.validation.pod_rules import Errors

MIRROR = "kubernetes.io/config.mirror"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PATH = "metadata.annotations"

# The fields of a toleration: how they are named in JSON and in complaints.
_TOLERATION_FIELDS = {
    each.lower(): (each[:1].lower() + each[1:], each, kind)
    for each, kind in (
        ("Key", "string"),
        ("Operator", "core.TolerationOperator"),
        ("Value", "string"),
        ("Effect", "core.TaintEffect"),
        ("TolerationSeconds", "int64"),
    )
}


def check(annotations: dict[str, str], spec: Object, path: str, errors: Errors) -> None:
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(fields.invalid(f"{path}[{MIRROR}]", annotations[MIRROR], detail))
    if tolerations := annotations.get(TOLERATIONS):
        _check_tolerations(tolerations, path, errors)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not _is_deletion_cost(cost):
        errors.append(fields.invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    pod_security.check_seccomp_annotations(annotations, path, errors)
    pod_security.check_apparmor_annotations(annotations, spec, path, errors)


def check_changes(new: Object, old: Object, errors: Errors) -> None:
    after = new["metadata"].get("annotations") or {}
    before = old["metadata"].get("annotations") or {}
    if not after and not before:
        return
    for key, value in before.items():
        if after.get(key) != value:
            _check_fixed(key, "remove or update", errors)
    for key in after:
        if key not in before:
            _check_fixed(key, "add", errors)
    check(after, new.get("spec") or {}, _PATH, errors)


def _check_fixed(key: str, act: str, errors: Errors) -> None:
    """Annotations that a pod is born with, or never gets."""
    if key.startswith(pod_security.APPARMOR_CONTAINER):
        detail = f"may not {act} AppArmor annotations"
        errors.append(fields.forbidden(f"{_PATH}[{key}]", detail))
    if key == MIRROR:
        detail = f"may not {act} mirror pod annotation"
        errors.append(fields.forbidden(f"{_PATH}[{key}]", detail))


def _is_deletion_cost(text: str) -> bool:
    """A whole number of 32 bits, without a plus and without leading zeros."""
    if text != "0" and not text.startswith(("-", *"123456789")):
        return False
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > len("2147483648"):
        return False
    return -(2**31) <= int(text) < 2**31


class _Unreadable(Exception):
    """What Go says of JSON that it cannot read into tolerations."""


def _check_tolerations(text: str, path: str, errors: Errors) -> None:
    try:
        tolerations = _read_tolerations(text)
    except (gojson.SyntaxProblem, _Unreadable) as problem:
        errors.append(fields.invalid(path, TOLERATIONS, str(problem)))
    else:
        pod_affinity.check_tolerations(tolerations, f"{path}.{TOLERATIONS}", errors)


def _read_tolerations(text: str) -> list[Object]:
    value = gojson.parse(text.encode("utf-8", "surrogatepass"))
    if value is None:
        return []
    if gojson.kind(value) != "array":
        raise _wrong_type(value, "value of type []core.Toleration")
    return [_read_toleration(each) for each in value]


def _read_toleration(value: Any) -> Object:
    if value is None:
        return {}
    members = gojson.members(value)
    if members is None:
        raise _wrong_type(value, "value of type core.Toleration")
    toleration: Object = {}
    for key, member in members:
        known = _TOLERATION_FIELDS.get(key.lower())
        if known and member is not None:
            name, shown, kind = known
            toleration[name] = _read_field(member, shown, kind)
    return toleration


def _read_field(value: Any, name: str, kind: str) -> Any:
    target = f"struct field Toleration.{name} of type {kind}"
    if gojson.kind(value) != ("number" if kind == "int64" else "string"):
        raise _wrong_type(value, target)
    if kind != "int64":
        return value
    number = gojson.plain(value)
    if not isinstance(number, int) or not -(2**63) <= number < 2**63:
        raise _Unreadable(f"json: cannot unmarshal number {value} into Go {target}")
    return number


def _wrong_type(value: Any, target: str) -> _Unreadable:
    return _Unreadable(f"json: cannot unmarshal {gojson.kind(value)} into Go {target}")
