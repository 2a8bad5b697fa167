# SPDX-License-Identifier: Apache-2.0
"""What a Job's policies must be; `backoff_policy.py` has the older one for failures."""

from collections.abc import Set as AbstractSet

from refloat.api import fields, go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as backoff
from refloat.api.validation.rules import Errors

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
STATUSES = ("False", "True", "Unknown")
REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")
FAILURE_POLICIES = ("podFailurePolicy", "backoffPolicy")

MAX_RULES = 20
MAX_EXIT_CODES = 255
MAX_PATTERNS = 20
MAX_INDEXES_BYTES = 64 * 1024

NEEDS_INDEXED = "requires indexed completion mode"


def check_pod_failure_policy(spec: Object, errors: Errors) -> None:
    path = "spec.podFailurePolicy.rules"
    items = spec["podFailurePolicy"].get("rules") or []
    errors.too_many(path, items, MAX_RULES)
    containers = backoff.container_names(spec.get("template") or {})
    for i, rule in enumerate(items):
        where, action = f"{path}[{i}]", rule.get("action", "")
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            errors.invalid(f"{where}.action", action, "requires the backoffLimitPerIndex to be set")
        else:
            backoff.check_enumerated(action, f"{where}.action", ACTIONS, errors)
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            _check_exit_codes(codes, f"{where}.onExitCodes", containers, errors)
        errors.too_many(f"{where}.onPodConditions", patterns, MAX_PATTERNS)
        for j, pattern in enumerate(patterns):
            at, status = f"{where}.onPodConditions[{j}]", pattern.get("status", "")
            errors.named(f"{at}.type", pattern.get("type", ""), names.qualified_name)
            backoff.check_enumerated(status, f"{at}.status", STATUSES, errors)
        if codes is not None and patterns:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.invalid(where, fields.OMITTED, detail)
        if codes is None and not patterns:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.invalid(where, fields.OMITTED, detail)


def _check_exit_codes(
    codes: Object, path: str, containers: AbstractSet[str], errors: Errors
) -> None:
    operator, values = codes.get("operator", ""), codes.get("values")
    backoff.check_enumerated(operator, f"{path}.operator", OPERATORS, errors)
    name = codes.get("containerName")
    if name is not None and name not in containers:
        errors.invalid(f"{path}.containerName", name, backoff.NO_CONTAINER)
    path = f"{path}.values"
    if not values:
        errors.invalid(path, values, "at least one value is required")
        return
    errors.too_many(path, values, MAX_EXIT_CODES)
    codes_so_far: set[int] = set()
    for j, value in enumerate(values):
        if value == 0 and operator == "In":
            errors.invalid(f"{path}[{j}]", value, "must not be 0 for the In operator")
        errors.unique(f"{path}[{j}]", value, codes_so_far)
    if values != sorted(values):
        errors.invalid(path, values, "must be ordered")


def check_backoff_policy(spec: Object, errors: Errors) -> None:
    path = "spec.backoffPolicy"
    if spec.get("podFailurePolicy") is not None:
        errors.forbidden(path, "may not be specified with podFailurePolicy")
    containers = backoff.container_names(spec.get("template") or {})
    errors += backoff.validate(spec["backoffPolicy"], path, containers)


def judges_failures(spec: Object) -> bool:
    """Whether a policy looks at failed pods, which a policy can only after their end."""
    return any(spec.get(name) is not None for name in FAILURE_POLICIES)


def check_success_policy(spec: Object, errors: Errors) -> None:
    path, policy = "spec.successPolicy.rules", spec["successPolicy"]
    if spec.get("completionMode") != "Indexed":
        value_text = go_internal_types.shown("batch.SuccessPolicy", policy)
        errors.invalid("spec.successPolicy", value_text, NEEDS_INDEXED)
        return
    items = policy.get("rules") or []
    if not items:
        detail = "at least one rules must be specified when the successPolicy is specified"
        errors.required(path, detail)
    errors.too_many(path, items, MAX_RULES)
    completions = spec.get("completions") or 0
    for i, rule in enumerate(items):
        where, count = f"{path}[{i}].succeededCount", rule.get("succeededCount")
        indexes = rule.get("succeededIndexes")
        if count is None and indexes is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            errors.required(f"{path}[{i}]", detail)
            continue
        index_count = 0
        if indexes is not None:
            errors.too_long(f"{path}[{i}].succeededIndexes", indexes, MAX_INDEXES_BYTES)
            index_count = errors.indexes(f"{path}[{i}].succeededIndexes", indexes, completions)
        if count is None:
            continue
        errors.not_negative(where, count)
        most = "must be less than or equal to"
        if count > completions:
            detail = f"{most} {completions} (the number of specified completions)"
            errors.invalid(where, count, detail)
        if indexes is not None and count > index_count:
            detail = "(the number of indexes in the specified succeededIndexes field)"
            errors.invalid(where, count, f"{most} {index_count} {detail}")


# In the order in which Kubernetes checks them.
CHECKS = {
    "podFailurePolicy": check_pod_failure_policy,
    "backoffPolicy": check_backoff_policy,
    "successPolicy": check_success_policy,
}
