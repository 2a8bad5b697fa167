# SPDX-License-Identifier: Apache-2.0
"""podFailurePolicy: what the failure of a pod means (KEP-3329, behaviour A15).

Rules are tried in order and the first match decides. This module judges any pod; the caller
passes failed pods only (`job_spec`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from refloat.api.batch import JobSpec, OnPodCondition, PodFailurePolicy
from refloat.api.code_ranges import CodeRanges
from refloat.api.core import Pod
from refloat.policy.job.job_gates import JobGates

FAIL_JOB, FAIL_INDEX, IGNORE, COUNT = "FailJob", "FailIndex", "Ignore", "Count"
TERMINATE = "Terminate"
"""What a backoffPolicy calls FailJob."""

# A rule with another action is skipped, as the API demands of clients that meet a new value.
ACTIONS = frozenset((FAIL_JOB, FAIL_INDEX, IGNORE, COUNT))

_FAILS_JOB = (FAIL_JOB, TERMINATE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the policy on one pod."""

    action: str = ""
    """One of `ACTIONS`, or `TERMINATE`; empty when no rule matched, which counts the failure."""

    rule: int | None = None
    """The index of the rule that matched."""

    pod: str = ""
    """Namespace and name of the pod."""

    container: str = ""
    """The container whose exit code matched."""

    exit_code: int = 0
    """Its exit code; 0 when a condition matched, since no 0 ever matches."""

    condition: str = ""
    """The type of the condition that matched."""

    reason: str | None = None
    """The reason that a rule of a backoffPolicy matched; empty for a pod without a reason."""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the limits."""
        return self.action != IGNORE

    @property
    def fails_job(self) -> bool:
        return self.action in _FAILS_JOB

    @property
    def message(self) -> str:
        """What matched, in the words of the Job's condition (behaviour A15.7)."""
        if not self.action:
            return ""
        matching = f"matching {self.action} rule at index {self.rule}"
        if self.condition:
            return f"Pod {self.pod} has condition {self.condition} {matching}"
        if self.reason is not None:
            how = f"with reason {self.reason}" if self.reason else "without a reason"
            return f"Pod {self.pod} failed {how} {matching}"
        return (
            f"Container {self.container} for pod {self.pod} "
            f"failed with exit code {self.exit_code} {matching}"
        )


NO_MATCH = Verdict()

Exits: TypeAlias = list[tuple[str, int]]
"""Names and exit codes of the containers that failed."""

Test: TypeAlias = Callable[[Exits, Pod], Verdict | None]
"""What matched, without rule and pod; None if nothing did."""


@dataclass(frozen=True, slots=True)
class PolicyMatcher:
    """A podFailurePolicy or a backoffPolicy, compiled once to match many pods."""

    rules: tuple[tuple[int, str, Test], ...]
    """Index, action and test of each rule."""

    @property
    def may_fail_job(self) -> bool:
        return any(action in _FAILS_JOB for _, action, _ in self.rules)

    def match(self, pod: Pod) -> Verdict:
        if not self.rules:
            return NO_MATCH
        exits = failed_containers(pod)
        for index, action, test in self.rules:
            match = test(exits, pod)
            if match is not None:
                where = f"{pod.metadata.namespace}/{pod.metadata.name}"
                return replace(match, action=action, rule=index, pod=where)
        return NO_MATCH


def matcher(policy: PodFailurePolicy | None) -> PolicyMatcher:
    rules: list[tuple[int, str, Test]] = []
    for index, rule in enumerate((policy and policy.rules) or ()):
        if rule.action not in ACTIONS:
            continue
        if (pattern := rule.on_exit_codes) is not None:
            if pattern.operator in ("In", "NotIn"):  # an operator of a newer version never matches
                codes, is_in = frozenset(pattern.values or ()), pattern.operator == "In"
                test = codes_test(codes, pattern.container_name, is_in=is_in)
                rules.append((index, rule.action, test))
        elif rule.on_pod_conditions:
            rules.append((index, rule.action, _condition_test(rule.on_pod_conditions)))
    return PolicyMatcher(tuple(rules))


def match_pod_failure_policy(policy: PodFailurePolicy | None, pod: Pod) -> Verdict:
    """The verdict of the policy on this pod."""
    return matcher(policy).match(pod)


def effective(spec: JobSpec, job_gates: JobGates) -> PodFailurePolicy | None:
    """The effective policy; None with the gate off."""
    return spec.pod_failure_policy if job_gates.job_pod_failure_policy else None


def failed_containers(pod: Pod) -> Exits:
    """Regular containers first, then init containers, each in the order of its list.

    A container that still runs has no exit code yet, and one that ended well is never the reason of
    a failure: not even for NotIn.
    """
    return [
        (status.name, status.state.terminated.exit_code)
        for statuses in (pod.status.container_statuses, pod.status.init_container_statuses)
        for status in statuses or ()
        if status.state.terminated is not None and status.state.terminated.exit_code != 0
    ]


def codes_test(codes: frozenset[int] | CodeRanges, name: str | None, *, is_in: bool) -> Test:
    """Matches the first container of this name, or of any, with such an exit code."""

    def test(exits: Exits, _: Pod) -> Verdict | None:
        for container, code in exits:
            if (code in codes) is is_in and name in (None, container):
                return Verdict(container=container, exit_code=code)
        return None

    return test


def _condition_test(patterns: tuple[OnPodCondition, ...]) -> Test:
    pairs = frozenset((pattern.type, pattern.status) for pattern in patterns)

    def test(_: Exits, pod: Pod) -> Verdict | None:
        for condition in pod.status.conditions or ():
            if (condition.type, condition.status) in pairs:
                return Verdict(condition=condition.type)
        return None

    return test
