# SPDX-License-Identifier: Apache-2.0
"""What a PodDisruptionBudget must be."""

import re

from refloat.api import go_internal_types, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.rules import Errors

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
    """Metadata comes last and only without other errors: the kind has no rule for names."""
    return _spec_errors(budget.get("spec") or {}) or meta.validate(
        budget["metadata"],
        namespaced=True,
        name_check=names.path_segment,
        known_finalizers=False,
    )


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    return [*errors, *_spec_errors(new.get("spec") or {})]


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    status = new.get("status") or {}
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += conditions(status.get("conditions") or [], "status.conditions")
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        errors.not_negative(f"status.{name}", status.get(name))
    return errors


def _spec_errors(spec: Object) -> Errors:
    errors = Errors()
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        value_text = go_internal_types.shown("policy.PodDisruptionBudgetSpec", spec)
        errors.invalid("spec", value_text, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        path, amount = f"spec.{name}", spec.get(name)  # a count of pods or a share of them
        if not isinstance(amount, str):
            errors.not_negative(path, amount)
        elif complaints := names.percent(amount):
            errors.each(path, amount, complaints)
        else:
            digits = amount[:-1].lstrip("0")
            if len(digits) > 3 or int(digits or "0") > 100:
                errors.invalid(path, amount, "must not be greater than 100%")
    errors += meta.validate_label_selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    errors.one_of("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES)
    return errors


def conditions(items: list[Object], path: str) -> Errors:
    """Conditions of the shape that newer kinds share."""
    errors = Errors()
    types_so_far: set[str] = set()
    for i, item in enumerate(items):
        where, kind, status = f"{path}[{i}]", item.get("type", ""), item.get("status", "")
        errors.unique(f"{where}.type", kind, types_so_far)
        errors.named(f"{where}.type", kind, names.qualified_name)
        if status not in _CONDITION_STATUSES:
            errors.not_supported(f"{where}.status", status, _CONDITION_STATUSES)
        if (generation := item.get("observedGeneration", 0)) < 0:
            detail = "must be greater than or equal to zero"
            errors.invalid(f"{where}.observedGeneration", generation, detail)
        errors.required_keys(item, ("lastTransitionTime", "reason"), where)
        if (reason := item.get("reason", "")) and not _is_reason(reason):
            errors.invalid(f"{where}.reason", reason, _REASON_RULE)
        errors.too_long(f"{where}.reason", reason, _MAX_REASON)
        errors.too_long(f"{where}.message", item.get("message", ""), _MAX_MESSAGE)
    return errors
