# SPDX-License-Identifier: Apache-2.0
"""backoffPolicy: what the failure of a pod means, by ranges and reasons (KEP-3329, first design).

The older alternative to `pod_failure`, with the same evaluation: rules in order, the first match
decides, and the same containers count (behaviour A15.3). `pod_reason` finds the reason of a pod,
`backoff_annotation` the policy of a Job.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import code_ranges
from refloat.api.batch import BackoffPolicy, BackoffPolicyRule
from refloat.api.core import Pod
from refloat.policy.job import pod_failure, pod_reason
from refloat.policy.job.pod_failure import NO_MATCH, Exits, Verdict

TERMINATE, IGNORE = pod_failure.TERMINATE, pod_failure.IGNORE

ACTIONS = frozenset((TERMINATE, IGNORE))

Reasons: TypeAlias = tuple[str, ...]

_Test: TypeAlias = Callable[[Exits, Reasons], tuple[str, int, str | None] | None]
"""What matched: container, exit code, reason."""


@dataclass(frozen=True, slots=True)
class BackoffMatcher:
    """A backoffPolicy, compiled once to match many pods."""

    rules: tuple[tuple[int, str, _Test], ...]
    """Index, action and test of each rule."""

    @classmethod
    def of(cls, policy: BackoffPolicy) -> "BackoffMatcher":
        tests = ((index, rule, _test(rule)) for index, rule in enumerate(policy.rules or ()))
        return cls(
            tuple(
                (index, rule.action, test)
                for index, rule, test in tests
                if rule.action in ACTIONS and test is not None
            )
        )

    @property
    def may_fail_job(self) -> bool:
        return any(action == TERMINATE for _, action, _ in self.rules)

    def match(self, pod: Pod) -> Verdict:
        if not self.rules:
            return NO_MATCH
        exits, reasons = pod_failure.failed_containers(pod), pod_reason.of(pod)
        for index, action, test in self.rules:
            match = test(exits, reasons)
            if match is not None:
                container, code, reason = match
                where = f"{pod.metadata.namespace}/{pod.metadata.name}"
                return Verdict(action, index, where, container, code, reason=reason)
        return NO_MATCH


def match_backoff_policy(policy: BackoffPolicy, pod: Pod) -> Verdict:
    """The verdict of the policy on this pod."""
    return BackoffMatcher.of(policy).match(pod)


def _test(rule: BackoffPolicyRule) -> _Test | None:
    """The test of a rule; None for a rule that is empty or from a newer version."""
    name = rule.container_name
    if rule.container_exit_code_in is not None:
        return _codes_test(rule.container_exit_code_in, name, is_in=True)
    if rule.container_exit_code_not_in is not None:
        return _codes_test(rule.container_exit_code_not_in, name, is_in=False)
    if rule.pod_status_reason_in is not None:
        return _reason_test(frozenset(rule.pod_status_reason_in), is_in=True)
    if rule.pod_status_reason_not_in is not None:
        return _reason_test(frozenset(rule.pod_status_reason_not_in), is_in=False)
    return None


def _codes_test(text: str, name: str | None, *, is_in: bool) -> _Test | None:
    try:
        codes = code_ranges.parse(text)
    except code_ranges.BadCodes:  # only from another server
        return None

    def test(exits: Exits, _: Reasons) -> tuple[str, int, str | None] | None:
        for container, code in exits:
            if (code in codes) is is_in and name in (None, container):
                return container, code, None
        return None

    return test


def _reason_test(names: frozenset[str], *, is_in: bool) -> _Test:
    """For NotIn, none of the names of the pod's reason may be listed."""

    def test(_: Exits, reasons: Reasons) -> tuple[str, int, str | None] | None:
        if is_in:
            return next((("", 0, reason) for reason in reasons if reason in names), None)
        return None if names.intersection(reasons) else ("", 0, reasons[0])

    return test
