# SPDX-License-Identifier: Apache-2.0
"""What a Job's backoffPolicy must be (KEP-3329, first design).

Stricter than the KEP, which has two constraints: what can never match or is
there twice is taken for a mistake. The policy may also come from an annotation,
so the path is the caller's.
"""

from collections.abc import Set as AbstractSet

from refloat.api import code_ranges, fields
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import rules

ACTIONS = ("Ignore", "Terminate")

IN, NOT_IN = "containerExitCodeIn", "containerExitCodeNotIn"
REASON_IN, REASON_NOT_IN = "podStatusReasonIn", "podStatusReasonNotIn"
EXIT_CODES = (IN, NOT_IN)
REASONS = (REASON_IN, REASON_NOT_IN)
CONDITIONS = (*EXIT_CODES, *REASONS)

MAX_RULES = 20  # as in a podFailurePolicy
MAX_REASONS = 100  # several times what all components of Kubernetes and Refloat know together
MAX_REASON_BYTES = 1024  # as a condition's reason

_LISTED = f"{', '.join(CONDITIONS[:-1])} and {CONDITIONS[-1]}"


def validate(policy: Object, path: str, containers: AbstractSet[str]) -> list[FieldError]:
    """The mistakes of a policy, given the names of the template's containers."""
    path = f"{path}.rules"
    items = policy.get("rules") or []
    mistakes = []
    if len(items) > MAX_RULES:
        mistakes.append(fields.too_many(path, len(items), MAX_RULES))
    for i, rule in enumerate(items):
        mistakes += _rule(rule, f"{path}[{i}]", containers)
    return mistakes


def container_names(template: Object) -> frozenset[str]:
    pod = template.get("spec") or {}
    every = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    return frozenset(each.get("name", "") for each in every)


def _rule(rule: Object, path: str, containers: AbstractSet[str]) -> list[FieldError]:
    mistakes = _action(rule.get("action", ""), f"{path}.action")
    given = [name for name in CONDITIONS if rule.get(name) is not None]
    if len(given) != 1:
        which = "more than one" if given else "one"
        must = "is not supported" if given else "is required"
        detail = f"specifying {which} of {_LISTED} {must}"
        mistakes.append(fields.invalid(path, fields.OMITTED, detail))
    mistakes += _container_name(rule, f"{path}.containerName", containers)
    for name in given:
        check = _exit_codes if name in EXIT_CODES else _reasons
        mistakes += check(rule, name, f"{path}.{name}")
    return mistakes


def _action(action: str, path: str) -> list[FieldError]:
    if not action:
        listed = " ".join(f'"{each}"' for each in ACTIONS)
        return [fields.required(path, f"valid values: [{listed}]")]
    return [] if action in ACTIONS else [rules.unsupported(path, action, ACTIONS)]


def _container_name(rule: Object, path: str, containers: AbstractSet[str]) -> list[FieldError]:
    name = rule.get("containerName")
    if name is None:
        return []
    mistakes = []
    if all(rule.get(each) is None for each in EXIT_CODES):
        detail = f"may only be specified with {IN} or {NOT_IN}"
        mistakes.append(fields.invalid(path, name, detail))
    if name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        mistakes.append(fields.invalid(path, name, detail))
    return mistakes


def _exit_codes(rule: Object, name: str, path: str) -> list[FieldError]:
    text = rule[name]
    if not text:
        return [fields.required(path, "at least one exit code, for example 3 or 1-12,100-127")]
    try:
        ranges = code_ranges.parse(text)
    except code_ranges.BadCodes as problem:
        return [fields.invalid(path, text, str(problem))]
    if name == IN and 0 in ranges:
        detail = f"must not have 0 for {IN}: a container that ended with 0 has not failed"
        return [fields.invalid(path, text, detail)]
    return []


def _reasons(rule: Object, name: str, path: str) -> list[FieldError]:
    values = rule[name]
    if not values:
        return [fields.required(path, "at least one reason; '' is that of a pod without one")]
    mistakes = []
    if len(values) > MAX_REASONS:
        mistakes.append(fields.too_many(path, len(values), MAX_REASONS))
    seen: set[str] = set()
    for i, value in enumerate(values):
        if len(value.encode()) > MAX_REASON_BYTES:
            mistakes.append(fields.too_long(f"{path}[{i}]", MAX_REASON_BYTES))
        if value in seen:
            mistakes.append(fields.duplicate(f"{path}[{i}]", value))
        seen.add(value)
    return mistakes
