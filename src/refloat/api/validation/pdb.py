# SPDX-License-Identifier: Apache-2.0
"""What a PodDisruptionBudget must be."""

import re
from typing import Any

from refloat.api import fields, internal, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules

EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_CONDITION_STATUSES = ("False", "True", "Unknown")
_MAX_REASON = 1024
_MAX_MESSAGE = 32 * 1024
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_reason = re.compile(_REASON).fullmatch
_REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', "
    f"regex used for validation is '{_REASON}')"
)


def validate_create(budget: Object) -> list[FieldError]:
    """The name is only checked when all else is right: the kind has no rule for it."""
    mistakes = _spec(budget.get("spec") or {})
    return mistakes or meta.validate(
        budget["metadata"],
        namespaced=True,
        name_check=names.path_segment,
        known_finalizers=False,
    )


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return meta.validate_common_update(new["metadata"], old["metadata"]) + _spec(
        new.get("spec") or {}
    )


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    status = new.get("status") or {}
    mistakes = meta.validate_common_update(new["metadata"], old["metadata"])
    mistakes += conditions(status.get("conditions") or [], "status.conditions")
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        mistakes += rules.nonnegative(status.get(name), f"status.{name}")
    return mistakes


def _spec(spec: Object) -> list[FieldError]:
    mistakes = []
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        whole = internal.shown("policy.PodDisruptionBudgetSpec", spec)
        detail = "minAvailable and maxUnavailable cannot be both set"
        mistakes.append(fields.invalid("spec", whole, detail))
    mistakes += _amount(low, "spec.minAvailable")
    mistakes += _amount(high, "spec.maxUnavailable")
    if spec.get("selector") is not None:
        mistakes += meta.validate_label_selector(spec["selector"], "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in EVICTION_POLICIES:
        path = "spec.unhealthyPodEvictionPolicy"
        mistakes.append(rules.unsupported(path, policy, EVICTION_POLICIES))
    return mistakes


def _amount(value: Any, path: str) -> list[FieldError]:
    """A count of pods or a share of them."""
    if not isinstance(value, str):
        return rules.nonnegative(value, path)
    complaints = names.percent(value)
    if complaints:
        return rules.named(complaints, path, value)
    digits = value[:-1].lstrip("0")
    if len(digits) > 3 or int(digits or "0") > 100:
        return [fields.invalid(path, value, "must not be greater than 100%")]
    return []


def conditions(items: list[Object], path: str) -> list[FieldError]:
    """Conditions of the shape that newer kinds share."""
    mistakes = []
    seen = set()
    for i, item in enumerate(items):
        kind = item.get("type", "")
        if kind in seen:
            mistakes.append(fields.duplicate(f"{path}[{i}].type", kind))
        seen.add(kind)
        mistakes += _condition(item, f"{path}[{i}]")
    return mistakes


def _condition(item: Object, path: str) -> list[FieldError]:
    kind, status = item.get("type", ""), item.get("status", "")
    mistakes = rules.named(names.qualified_name(kind), f"{path}.type", kind)
    if status not in _CONDITION_STATUSES:
        mistakes.append(fields.not_supported(f"{path}.status", status, _CONDITION_STATUSES))
    if (generation := item.get("observedGeneration", 0)) < 0:
        detail = "must be greater than or equal to zero"
        mistakes.append(fields.invalid(f"{path}.observedGeneration", generation, detail))
    if not item.get("lastTransitionTime"):
        mistakes.append(fields.required(f"{path}.lastTransitionTime"))
    mistakes += _reason(item.get("reason", ""), f"{path}.reason")
    if names.longer(item.get("message", ""), _MAX_MESSAGE):
        mistakes.append(fields.too_long(f"{path}.message", _MAX_MESSAGE))
    return mistakes


def _reason(reason: str, path: str) -> list[FieldError]:
    if not reason:
        return [fields.required(path)]
    mistakes = [] if _is_reason(reason) else [fields.invalid(path, reason, _REASON_RULE)]
    if names.longer(reason, _MAX_REASON):
        mistakes.append(fields.too_long(path, _MAX_REASON))
    return mistakes
