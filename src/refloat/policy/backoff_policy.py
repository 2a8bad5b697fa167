# SPDX-License-Identifier: Apache-2.0
"""backoffPolicy: what the failure of a pod means, by ranges and reasons (KEP-3329, first design).

The older sister of `pod_failure`, and judged alike: rules in order, the first
that matches decides, the same containers are looked at (behaviour A15.3). What
a pod's reason is, is up to `pod_reason`; whether a policy holds, and which, is
up to `backoff_annotation`.
"""

from collections.abc import Callable
from typing import TypeAlias

from refloat.api import code_ranges
from refloat.api.batch import BackoffPolicy, BackoffPolicyRule
from refloat.api.code_ranges import CodeRanges
from refloat.api.core import Pod
from refloat.policy import pod_failure, pod_reason
from refloat.policy.pod_failure import NO_MATCH, Exits, Verdict

TERMINATE, IGNORE = pod_failure.TERMINATE, pod_failure.IGNORE

ACTIONS = frozenset((TERMINATE, IGNORE))

Reasons: TypeAlias = tuple[str, ...]

_Test: TypeAlias = Callable[[Exits, Reasons], tuple[str, int, str | None] | None]
"""What matched: container, exit code, reason."""


class Judge:
    """A policy, made ready to judge many pods."""

    __slots__ = ("_rules", "may_fail_job")

    def __init__(self, policy: BackoffPolicy) -> None:
        self._rules: list[tuple[int, str, _Test]] = []
        for index, rule in enumerate(policy.rules or ()):
            test = _test(rule)
            if rule.action in ACTIONS and test is not None:
                self._rules.append((index, rule.action, test))
        self.may_fail_job = any(action == TERMINATE for _, action, _ in self._rules)

    def judge(self, pod: Pod) -> Verdict:
        if not self._rules:
            return NO_MATCH
        exits, reasons = pod_failure.failed_containers(pod), pod_reason.of(pod)
        for index, action, test in self._rules:
            found = test(exits, reasons)
            if found is not None:
                container, code, reason = found
                where = f"{pod.metadata.namespace}/{pod.metadata.name}"
                return Verdict(action, index, where, container, code, reason=reason)
        return NO_MATCH


def match_backoff_policy(policy: BackoffPolicy, pod: Pod) -> Verdict:
    """What the policy says of this pod."""
    return Judge(policy).judge(pod)


def _test(rule: BackoffPolicyRule) -> _Test | None:
    """None for a rule that says nothing, or something from the future."""
    name = rule.container_name
    if rule.container_exit_code_in is not None:
        return _codes_test(rule.container_exit_code_in, name, is_in=True)
    if rule.container_exit_code_not_in is not None:
        return _codes_test(rule.container_exit_code_not_in, name, is_in=False)
    if rule.pod_status_reason_in is not None:
        return _reason_in(frozenset(rule.pod_status_reason_in))
    if rule.pod_status_reason_not_in is not None:
        return _reason_not_in(frozenset(rule.pod_status_reason_not_in))
    return None


def _codes_test(text: str, name: str | None, *, is_in: bool) -> _Test | None:
    try:
        codes = code_ranges.parse(text)
    except code_ranges.BadCodes:  # no server of ours lets it in
        return None
    return _in_ranges(codes, name, is_in=is_in)


def _in_ranges(codes: CodeRanges, name: str | None, *, is_in: bool) -> _Test:
    def test(exits: Exits, _: Reasons) -> tuple[str, int, str | None] | None:
        for container, code in exits:
            if (code in codes) is is_in and name in (None, container):
                return container, code, None
        return None

    return test


def _reason_in(wanted: frozenset[str]) -> _Test:
    def test(_: Exits, reasons: Reasons) -> tuple[str, int, str | None] | None:
        return next((("", 0, reason) for reason in reasons if reason in wanted), None)

    return test


def _reason_not_in(unwanted: frozenset[str]) -> _Test:
    """None of the pod's names for its reason is listed."""

    def test(_: Exits, reasons: Reasons) -> tuple[str, int, str | None] | None:
        return None if unwanted.intersection(reasons) else ("", 0, reasons[0])

    return test
