# SPDX-License-Identifier: Apache-2.0
"""podFailurePolicy: what the failure of a pod means (KEP-3329, behaviour A15).

Rules are tried in order and the first that matches decides. Here a pod is
judged as it is; that only failed pods are, is up to whoever asks. `terms`
says which pods have failed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api.batch import JobSpec, OnExitCodes, OnPodCondition, PodFailurePolicy
from refloat.api.core import Pod
from refloat.policy.switches import Switches

FAIL_JOB, FAIL_INDEX, IGNORE, COUNT = "FailJob", "FailIndex", "Ignore", "Count"
TERMINATE = "Terminate"
"""What a backoffPolicy calls FailJob."""

# A rule with any other action is passed over, as the API demands of clients
# that meet a value from the future.
ACTIONS = frozenset((FAIL_JOB, FAIL_INDEX, IGNORE, COUNT))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of one pod."""

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
    """The reason that a rule of a backoffPolicy matched; empty if it matched that there is none."""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the limits."""
        return self.action != IGNORE

    @property
    def fails_job(self) -> bool:
        return self.action in (FAIL_JOB, TERMINATE)

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

_Test: TypeAlias = Callable[[Exits, Pod], tuple[str, int, str] | None]
"""What matched: container, exit code, condition."""


class Judge:
    """A policy, made ready to judge many pods."""

    __slots__ = ("_rules", "may_fail_job")

    def __init__(self, policy: PodFailurePolicy | None) -> None:
        self._rules: list[tuple[int, str, _Test]] = []
        for index, rule in enumerate((policy and policy.rules) or ()):
            if rule.action not in ACTIONS:
                continue
            if rule.on_exit_codes is not None:
                self._rules.append((index, rule.action, _exit_code_test(rule.on_exit_codes)))
            elif rule.on_pod_conditions:
                self._rules.append((index, rule.action, _condition_test(rule.on_pod_conditions)))
        self.may_fail_job = any(action == FAIL_JOB for _, action, _ in self._rules)

    def judge(self, pod: Pod) -> Verdict:
        if not self._rules:
            return NO_MATCH
        exits = failed_containers(pod)
        for index, action, test in self._rules:
            found = test(exits, pod)
            if found is not None:
                where = f"{pod.metadata.namespace}/{pod.metadata.name}"
                return Verdict(action, index, where, *found)
        return NO_MATCH


def match_pod_failure_policy(policy: PodFailurePolicy | None, pod: Pod) -> Verdict:
    """What the policy says of this pod."""
    return Judge(policy).judge(pod)


def effective(spec: JobSpec, switches: Switches) -> PodFailurePolicy | None:
    """The policy that holds; with the gate off, a stored one does not."""
    return spec.pod_failure_policy if switches.job_pod_failure_policy else None


def failed_containers(pod: Pod) -> Exits:
    """Regular containers first, then init containers, each in the order of its list.

    A container that has not ended has no exit code yet, and one that ended
    well is never the reason of a failure: not even for NotIn.
    """
    return [
        (status.name, status.state.terminated.exit_code)
        for statuses in (pod.status.container_statuses, pod.status.init_container_statuses)
        for status in statuses or ()
        if status.state.terminated is not None and status.state.terminated.exit_code != 0
    ]


def _exit_code_test(wanted: OnExitCodes) -> _Test:
    name, values = wanted.container_name, frozenset(wanted.values or ())
    if wanted.operator not in ("In", "NotIn"):
        return _never
    is_in = wanted.operator == "In"

    def test(exits: Exits, _: Pod) -> tuple[str, int, str] | None:
        for container, code in exits:
            if (code in values) is is_in and (name is None or name == container):
                return container, code, ""
        return None

    return test


def _condition_test(patterns: tuple[OnPodCondition, ...]) -> _Test:
    wanted = frozenset((pattern.type, pattern.status) for pattern in patterns)

    def test(_: Exits, pod: Pod) -> tuple[str, int, str] | None:
        for condition in pod.status.conditions or ():
            if (condition.type, condition.status) in wanted:
                return "", 0, condition.type
        return None

    return test


def _never(_: Exits, __: Pod) -> None:
    """An operator from the future does not match."""
