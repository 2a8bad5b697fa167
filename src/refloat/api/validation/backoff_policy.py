# SPDX-License-Identifier: Apache-2.0
"""What a Job's backoffPolicy must be (KEP-3329, first design).

Refloat is stricter than the KEP, which has two constraints: a condition that can never
match, or that repeats another, is an error. The policy may also come from an annotation,
so the caller gives the path.
"""

from collections.abc import Set as AbstractSet

from refloat.api import code_ranges, fields
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

ACTIONS = ("Ignore", "Terminate")

IN, NOT_IN = "containerExitCodeIn", "containerExitCodeNotIn"
REASON_IN, REASON_NOT_IN = "podStatusReasonIn", "podStatusReasonNotIn"
EXIT_CODES = (IN, NOT_IN)
REASONS = (REASON_IN, REASON_NOT_IN)
CONDITIONS = (*EXIT_CODES, *REASONS)

MAX_RULES = 20  # as in a podFailurePolicy
MAX_REASONS = 100  # several times what all components of Kubernetes and Refloat know together
MAX_REASON_BYTES = 1024  # as a condition's reason

NO_CONTAINER = "must be one of the container or initContainer names in the pod template"

_LISTED = f"{', '.join(CONDITIONS[:-1])} and {CONDITIONS[-1]}"


def validate(policy: Object, path: str, containers: AbstractSet[str]) -> Errors:
    """The errors of a policy, with the names of the template's containers."""
    path = f"{path}.rules"
    items = policy.get("rules") or []
    errors = Errors()
    errors.too_many(path, items, MAX_RULES)
    for i, rule in enumerate(items):
        where = f"{path}[{i}]"
        check_enumerated(rule.get("action", ""), f"{where}.action", ACTIONS, errors)
        conditions = [name for name in CONDITIONS if rule.get(name) is not None]
        if len(conditions) != 1:
            which = "more than one" if conditions else "one"
            must = "is not supported" if conditions else "is required"
            errors.invalid(where, fields.OMITTED, f"specifying {which} of {_LISTED} {must}")
        if (name := rule.get("containerName")) is not None:
            if all(rule.get(each) is None for each in EXIT_CODES):
                detail = f"may only be specified with {IN} or {NOT_IN}"
                errors.invalid(f"{where}.containerName", name, detail)
            if name not in containers:
                errors.invalid(f"{where}.containerName", name, NO_CONTAINER)
        for name in conditions:
            check = _check_exit_codes if name in EXIT_CODES else _check_reasons
            check(rule, name, f"{where}.{name}", errors)
    return errors


def container_names(template: Object) -> frozenset[str]:
    pod = template.get("spec") or {}
    every = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    return frozenset(each.get("name", "") for each in every)


def check_enumerated(value: str, path: str, supported: tuple[str, ...], errors: Errors) -> None:
    """A value of an enumeration; the error for an empty one lists the valid ones."""
    if value:
        errors.one_of(path, value, supported)
    else:
        choices = " ".join(f'"{each}"' for each in supported)
        errors.required(path, f"valid values: [{choices}]")


def _check_exit_codes(rule: Object, name: str, path: str, errors: Errors) -> None:
    text = rule[name]
    if not text:
        errors.required(path, "at least one exit code, for example 3 or 1-12,100-127")
        return
    try:
        ranges = code_ranges.parse(text)
    except code_ranges.BadCodes as error:
        errors.invalid(path, text, str(error))
        return
    if name == IN and 0 in ranges:
        detail = f"must not have 0 for {IN}: a container that ended with 0 has not failed"
        errors.invalid(path, text, detail)


def _check_reasons(rule: Object, name: str, path: str, errors: Errors) -> None:
    values = rule[name]
    if not values:
        errors.required(path, "at least one reason; '' is that of a pod without one")
    errors.too_many(path, values, MAX_REASONS)
    reasons: set[str] = set()
    for i, value in enumerate(values):
        errors.too_long(f"{path}[{i}]", value, MAX_REASON_BYTES)
        errors.unique(f"{path}[{i}]", value, reasons)
