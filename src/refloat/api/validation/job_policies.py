# SPDX-License-Identifier: Apache-2.0
"""What a Job's policies must be; the older one for failures has a module beside this one."""

from collections.abc import Set as AbstractSet

from refloat.api import fields, intervals, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as backoff
from refloat.api.validation import rules

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
STATUSES = ("False", "True", "Unknown")
REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")
FAILURE_POLICIES = ("podFailurePolicy", "backoffPolicy")

MAX_RULES = 20
MAX_EXIT_CODES = 255
MAX_PATTERNS = 20
MAX_INDEXES_BYTES = 64 * 1024


def _valid_values(values: tuple[str, ...]) -> str:
    listed = " ".join(f'"{each}"' for each in values)
    return f"valid values: [{listed}]"


def pod_failure_policy(spec: Object) -> list[FieldError]:
    path = "spec.podFailurePolicy.rules"
    items = spec["podFailurePolicy"].get("rules") or []
    mistakes = []
    if len(items) > MAX_RULES:
        mistakes.append(fields.too_many(path, len(items), MAX_RULES))
    containers = backoff.container_names(spec.get("template") or {})
    for i, rule in enumerate(items):
        mistakes += _failure_rule(rule, f"{path}[{i}]", spec, containers)
    return mistakes


def _failure_rule(
    rule: Object, path: str, spec: Object, containers: AbstractSet[str]
) -> list[FieldError]:
    mistakes = _action(rule.get("action", ""), f"{path}.action", spec)
    codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions")
    if codes is not None:
        mistakes += _exit_codes(codes, f"{path}.onExitCodes", containers)
    if patterns:
        mistakes += _pod_conditions(patterns, f"{path}.onPodConditions")
    if codes is not None and patterns:
        detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        mistakes.append(fields.invalid(path, fields.OMITTED, detail))
    if codes is None and not patterns:
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        mistakes.append(fields.invalid(path, fields.OMITTED, detail))
    return mistakes


def _action(action: str, path: str, spec: Object) -> list[FieldError]:
    if not action:
        return [fields.required(path, _valid_values(ACTIONS))]
    if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        return [fields.invalid(path, action, "requires the backoffLimitPerIndex to be set")]
    return [] if action in ACTIONS else [rules.unsupported(path, action, ACTIONS)]


def _exit_codes(codes: Object, path: str, containers: AbstractSet[str]) -> list[FieldError]:
    mistakes = _enumerated(codes.get("operator", ""), f"{path}.operator", OPERATORS)
    name = codes.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        mistakes.append(fields.invalid(f"{path}.containerName", name, detail))
    return mistakes + _exit_code_values(codes, f"{path}.values")


def _enumerated(value: str, path: str, values: tuple[str, ...]) -> list[FieldError]:
    if not value:
        return [fields.required(path, _valid_values(values))]
    return [] if value in values else [rules.unsupported(path, value, values)]


def _exit_code_values(codes: Object, path: str) -> list[FieldError]:
    values = codes.get("values")
    if not values:
        return [fields.invalid(path, values, "at least one value is required")]
    mistakes = []
    if len(values) > MAX_EXIT_CODES:
        mistakes.append(fields.too_many(path, len(values), MAX_EXIT_CODES))
    seen = set()
    for j, value in enumerate(values):
        if value == 0 and codes.get("operator") == "In":
            detail = "must not be 0 for the In operator"
            mistakes.append(fields.invalid(f"{path}[{j}]", value, detail))
        if value in seen:
            mistakes.append(fields.duplicate(f"{path}[{j}]", value))
        seen.add(value)
    if values != sorted(values):
        mistakes.append(fields.invalid(path, values, "must be ordered"))
    return mistakes


def _pod_conditions(patterns: list[Object], path: str) -> list[FieldError]:
    mistakes = []
    if len(patterns) > MAX_PATTERNS:
        mistakes.append(fields.too_many(path, len(patterns), MAX_PATTERNS))
    for j, pattern in enumerate(patterns):
        kind = pattern.get("type", "")
        mistakes += rules.named(names.qualified_name(kind), f"{path}[{j}].type", kind)
        mistakes += _enumerated(pattern.get("status", ""), f"{path}[{j}].status", STATUSES)
    return mistakes


def backoff_policy(spec: Object) -> list[FieldError]:
    path = "spec.backoffPolicy"
    mistakes = []
    if spec.get("podFailurePolicy") is not None:
        mistakes.append(fields.forbidden(path, "may not be specified with podFailurePolicy"))
    containers = backoff.container_names(spec.get("template") or {})
    return mistakes + backoff.validate(spec["backoffPolicy"], path, containers)


def judges_failures(spec: Object) -> bool:
    """Whether a policy looks at failed pods, which it can only once they have ended."""
    return any(spec.get(name) is not None for name in FAILURE_POLICIES)


def success_policy(spec: Object) -> list[FieldError]:
    path = "spec.successPolicy.rules"
    items = spec["successPolicy"].get("rules") or []
    mistakes = []
    if not items:
        detail = "at least one rules must be specified when the successPolicy is specified"
        mistakes.append(fields.required(path, detail))
    if len(items) > MAX_RULES:
        mistakes.append(fields.too_many(path, len(items), MAX_RULES))
    for i, rule in enumerate(items):
        mistakes += _success_rule(rule, f"{path}[{i}]", spec)
    return mistakes


def _success_rule(rule: Object, path: str, spec: Object) -> list[FieldError]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        detail = "at least one of succeededCount or succeededIndexes must be specified"
        return [fields.required(path, detail)]
    completions = spec.get("completions") or 0
    mistakes, listed = _indexes(indexes, f"{path}.succeededIndexes", completions)
    if count is None:
        return mistakes
    path = f"{path}.succeededCount"
    mistakes += rules.nonnegative(count, path)
    if count > completions:
        detail = f"{completions} (the number of specified completions)"
        mistakes.append(fields.invalid(path, count, f"must be less than or equal to {detail}"))
    if indexes is not None and count > listed:
        detail = f"{listed} (the number of indexes in the specified succeededIndexes field)"
        mistakes.append(fields.invalid(path, count, f"must be less than or equal to {detail}"))
    return mistakes


def _indexes(text: str | None, path: str, completions: int) -> tuple[list[FieldError], int]:
    mistakes: list[FieldError] = []
    if text is None:
        return mistakes, 0
    if names.longer(text, MAX_INDEXES_BYTES):
        mistakes.append(fields.too_long(path, MAX_INDEXES_BYTES))
    try:
        return mistakes, intervals.check(text, completions)
    except intervals.BadIndexes as complaint:
        detail = f"error parsing succeededIndexes: {complaint}"
        return [*mistakes, fields.invalid(path, text, detail)], 0


def pod_replacement_policy(spec: Object) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    allowed = ("Failed",) if judges_failures(spec) else REPLACEMENT_POLICIES
    if policy is None or policy in allowed:
        return []
    return [rules.unsupported("spec.podReplacementPolicy", policy, allowed)]
