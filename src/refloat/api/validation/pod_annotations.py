# SPDX-License-Identifier: Apache-2.0
"""Annotations of a pod with a meaning in Kubernetes.

Some are older than the fields with the same meaning; Kubernetes still checks them.
"""

import re
from typing import Any

from refloat.api import gojson
from refloat.api.meta import Object
from refloat.api.validation import pod_affinity, pod_security
from refloat.api.validation.rules import Errors

MIRROR = "kubernetes.io/config.mirror"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PATH = "metadata.annotations"

# A whole number without a plus and without leading zeros; after a minus Go allows zeros.
_is_whole = re.compile("0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}").fullmatch

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
        errors.invalid(f"{path}[{MIRROR}]", annotations[MIRROR], detail)
    if text := annotations.get(TOLERATIONS):
        try:
            tolerations = _read_tolerations(text)
        except (gojson.SyntaxProblem, _Unreadable) as problem:
            errors.invalid(path, TOLERATIONS, str(problem))
        else:
            pod_affinity.check_tolerations(tolerations, f"{path}.{TOLERATIONS}", errors)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (_is_whole(cost) and -(2**31) <= int(cost) < 2**31):
        errors.invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")
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
        errors.forbidden(f"{_PATH}[{key}]", f"may not {act} AppArmor annotations")
    if key == MIRROR:
        errors.forbidden(f"{_PATH}[{key}]", f"may not {act} mirror pod annotation")


class _Unreadable(Exception):
    """Go's error for JSON that does not fit into tolerations."""


def _read_tolerations(text: str) -> list[Object]:
    items = gojson.parse(text.encode("utf-8", "surrogatepass"))
    if items is not None and gojson.kind(items) != "array":
        raise _wrong_type(items, "value of type []core.Toleration")
    tolerations = []
    for item in items or ():
        members = () if item is None else gojson.members(item)
        if members is None:
            raise _wrong_type(item, "value of type core.Toleration")
        toleration: Object = {}
        for key, member in members:
            field = _TOLERATION_FIELDS.get(key.lower())
            if not field or member is None:
                continue
            name, label, kind = field
            target = f"struct field Toleration.{label} of type {kind}"
            if gojson.kind(member) != ("number" if kind == "int64" else "string"):
                raise _wrong_type(member, target)
            value = gojson.plain(member)
            is_int64 = isinstance(value, int) and -(2**63) <= value < 2**63
            if kind == "int64" and not is_int64:
                raise _Unreadable(f"json: cannot unmarshal number {member} into Go {target}")
            toleration[name] = value
        tolerations.append(toleration)
    return tolerations


def _wrong_type(value: Any, target: str) -> _Unreadable:
    return _Unreadable(f"json: cannot unmarshal {gojson.kind(value)} into Go {target}")
