# SPDX-License-Identifier: Apache-2.0
"""The verdict of a backoffPolicy on a pod (KEP-3329, first design)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api.batch import BackoffPolicy
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import backoff_policy, observed, outcome
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.job.pod_failure import NO_MATCH, Verdict
from tests.cases import cases
from tests.unit.policy.builders import at, container, failed, job, pod, policy, rule, story
from tests.unit.policy.job import backoff_stories
from tests.unit.policy.job.test_pod_reason import ended

ON = JobGates(retriable_and_non_retriable_failures=True)


def match(rules: list[Object], of: Pod) -> Verdict:
    parsed_policy = msgspec.convert(policy(*rules), BackoffPolicy)
    return backoff_policy.match_backoff_policy(parsed_policy, of)


def codes_in(action: str, text: str, name: str | None = None) -> Object:
    return rule(action, containerExitCodeIn=text, **({"containerName": name} if name else {}))


def codes_not_in(action: str, text: str, name: str | None = None) -> Object:
    return rule(action, containerExitCodeNotIn=text, **({"containerName": name} if name else {}))


def reason_in(action: str, *reasons: str) -> Object:
    return rule(action, podStatusReasonIn=list(reasons))


def reason_not_in(action: str, *reasons: str) -> Object:
    return rule(action, podStatusReasonNotIn=list(reasons))


TWO = pod("u", "Failed", containers=[container("a", 1), container("b", 2)])
EVICTED = ended("Evicted", target="TerminationByKubelet")

MATCHES: dict[str, Any] = {
    "In": ([codes_in("Terminate", "40-50")], failed(exit_code=40), ("Terminate", 0)),
    "not in": ([codes_in("Terminate", "40-50")], failed(exit_code=51), ("", None)),
    "two ranges": ([codes_in("Terminate", "1,40-50")], failed(exit_code=50), ("Terminate", 0)),
    "NotIn": ([codes_not_in("Terminate", "40-50")], failed(exit_code=39), ("Terminate", 0)),
    "NotIn, but in": ([codes_not_in("Terminate", "40-50")], failed(exit_code=45), ("", None)),
    "0 does not match NotIn (A15.3)": (
        [codes_not_in("Terminate", "1")],
        failed(exit_code=0),
        ("", None),
    ),
    "any container, the second too": ([codes_in("Terminate", "2")], TWO, ("Terminate", 0)),
    "only the container that is named": ([codes_in("Terminate", "2", "a")], TWO, ("", None)),
    "init containers, after the others (A15.3)": (
        [codes_in("Terminate", "3")],
        pod("u", "Failed", containers=[container("a", 0)], init=[container("i", 3)]),
        ("Terminate", 0),
    ),
    "a container that has not ended has no code (A15.3)": (
        [codes_not_in("Terminate", "3")],
        pod("u", "Failed", containers=[container("a")]),
        ("", None),
    ),
    "the first that matches decides": (
        [codes_in("Ignore", "1"), codes_in("Terminate", "1")],
        failed(exit_code=1),
        ("Ignore", 0),
    ),
    "rules that do not match are passed over": (
        [codes_in("Ignore", "7"), codes_in("Terminate", "1")],
        failed(exit_code=1),
        ("Terminate", 1),
    ),
    "a reason": ([reason_in("Ignore", "A", "B")], ended("B"), ("Ignore", 0)),
    "another reason": ([reason_in("Ignore", "A")], ended("B"), ("", None)),
    "no reason is not A": ([reason_in("Ignore", "A")], ended(), ("", None)),
    "no reason is ''": ([reason_in("Terminate", "")], ended(), ("Terminate", 0)),
    "B is not ''": ([reason_in("Terminate", "")], ended("B"), ("", None)),
    "any reason": ([reason_not_in("Ignore", "")], ended("B"), ("Ignore", 0)),
    "not any reason": ([reason_not_in("Ignore", "")], ended(), ("", None)),
    "'' is not A": ([reason_not_in("Ignore", "A")], ended(), ("Ignore", 0)),
    "as well called": ([reason_in("Ignore", "NodePressureEviction")], EVICTED, ("Ignore", 0)),
    "and as it is": ([reason_in("Ignore", "Evicted")], EVICTED, ("Ignore", 0)),
    "NotIn: by none of its names": (
        [reason_not_in("Ignore", "NodePressureEviction")],
        EVICTED,
        ("", None),
    ),
    "no rules": ([], failed(), ("", None)),
    "an action from the future is passed over": (
        [rule("Retry", containerExitCodeIn="1"), codes_in("Terminate", "1")],
        failed(exit_code=1),
        ("Terminate", 1),
    ),
    "a condition from the future is passed over": (
        [rule("Ignore", onMoon="full"), codes_in("Terminate", "1")],
        failed(exit_code=1),
        ("Terminate", 1),
    ),
}


@cases("rules of want", MATCHES)
def test_what_a_policy_says(rules: list[Object], of: Pod, want: tuple[str, int | None]) -> None:
    verdict = match(rules, of)
    assert (verdict.action, verdict.rule) == want
    assert verdict.counts == (want[0] != "Ignore")
    assert verdict.fails_job == (want[0] == "Terminate")


@cases(
    "rules of want",
    {
        "an exit code": (
            [codes_in("Terminate", "2")],
            TWO,
            (
                "Container b for pod ns/pod-u failed with exit code 2 "
                "matching Terminate rule at index 0"
            ),
        ),
        "a reason, by the name that matched": (
            [reason_in("Terminate", "NodePressureEviction")],
            EVICTED,
            (
                "Pod ns/pod-u failed with reason NodePressureEviction "
                "matching Terminate rule at index 0"
            ),
        ),
        "a reason that is not listed": (
            [reason_not_in("Terminate", "A")],
            EVICTED,
            "Pod ns/pod-u failed with reason Evicted matching Terminate rule at index 0",
        ),
        "no reason": (
            [reason_in("Terminate", "")],
            ended(),
            "Pod ns/pod-u failed without a reason matching Terminate rule at index 0",
        ),
    },
)
def test_what_matched_is_told(rules: list[Object], of: Pod, want: str) -> None:
    assert match(rules, of).message == want


# -- the KEP's Jobs ----------------------------------------------------------------

MAIN, MONITOR = "main-job-container", "monitoring-job-container"


def exits(main: int, monitor: int = 0) -> Pod:
    return pod("u", "Failed", containers=[container(MAIN, main), container(MONITOR, monitor)])


STORIES: dict[str, Any] = {
    "1: a bug": ("STORY_1", failed(exit_code=39), "Terminate"),
    "1: the first known code": ("STORY_1", failed(exit_code=40), ""),
    "1: the last known code": ("STORY_1", failed(exit_code=50), ""),
    "1: another bug": ("STORY_1", failed(exit_code=51), "Terminate"),
    "2: preempted": ("STORY_2", ended("Preemption"), "Ignore"),
    "2: on stock Kubernetes": ("STORY_2", ended(target="PreemptionByScheduler"), "Ignore"),
    "2: evicted by a kubelet": ("STORY_2", EVICTED, "Ignore"),
    "2: a reason that is not listed": ("STORY_2", ended("TaintEviction"), ""),
    "2: the program's own failure": ("STORY_2", exits(1), ""),
    "2, any reason: tainted": ("STORY_2_ANY", ended("TaintEviction"), "Ignore"),
    "2, any reason: the program's own failure": ("STORY_2_ANY", exits(1), ""),
    "design: in the first range": ("DESIGN", exits(12), "Terminate"),
    "design: in the second range": ("DESIGN", exits(100), "Terminate"),
    "design: in none": ("DESIGN", exits(13), ""),
    "design: another container": ("DESIGN", exits(0, 12), ""),
    "design: an infrastructure failure": ("DESIGN", ended("Preemption"), "Ignore"),
}


@cases("name of want", STORIES)
def test_the_jobs_of_the_kep(name: str, of: Pod, want: str) -> None:
    """Every Job of the text is valid, and does what the story describes."""
    batch_job = story(getattr(backoff_stories, name))
    observation = observed.observe(batch_job, [of], job_gates=ON)
    assert observation.verdict(of).action == want
    ends = outcome.decide(observation, at(0))
    assert (ends is not None and ends.reason) == (want == "Terminate" and "BackoffPolicy")
    assert observation.failed == (0 if want == "Ignore" else 1)


@pytest.mark.parametrize("name", ["STORY_1", "STORY_2", "STORY_2_ANY", "DESIGN"])
def test_the_jobs_of_the_kep_wait_for_pods_to_end(name: str) -> None:
    batch_job = story(getattr(backoff_stories, name))
    assert batch_job.spec.pod_replacement_policy == "Failed"
    assert observed.observe(batch_job, [], job_gates=ON).spec.waits


def test_without_the_gate_every_failure_counts() -> None:
    batch_job = job(backoffPolicy=policy(codes_in("Terminate", "1")))
    of = failed(exit_code=1)
    assert observed.observe(batch_job, [of], job_gates=ALL_ON).verdict(of) == NO_MATCH
    assert outcome.decide(observed.observe(batch_job, [of], job_gates=ALL_ON), at(0)) is None


def test_a_policy_waits_whatever_a_server_filled_in() -> None:
    """On Kubernetes the default is what goes with no policy."""
    batch_job = job(
        backoffPolicy=policy(codes_in("Terminate", "1")), podReplacementPolicy="TerminatingOrFailed"
    )
    assert observed.observe(batch_job, [], job_gates=ON).spec.waits
    assert not observed.observe(batch_job, [], job_gates=ALL_ON).spec.waits


def test_what_was_counted_before_the_gate_fails_no_job_after_it() -> None:
    of = failed("u", 1)
    status = {"uncountedTerminatedPods": {"failed": ["u"]}}
    batch_job = job(backoffPolicy=policy(codes_in("Terminate", "1")), status=status)
    assert outcome.decide(observed.observe(batch_job, [of], job_gates=ON), at(0)) is None


# -- properties --------------------------------------------------------------------

CODES = st.integers(1, 255)


@given(CODES, CODES, CODES)
def test_in_and_not_in_are_opposites_on_one_container(code: int, one: int, other: int) -> None:
    text = f"{min(one, other)}-{max(one, other)}"
    of = failed(exit_code=code)
    is_in = match([codes_in("Terminate", text)], of) != NO_MATCH
    assert is_in == (min(one, other) <= code <= max(one, other))
    assert is_in != (match([codes_not_in("Terminate", text)], of) != NO_MATCH)


REASONS = st.sampled_from(["", "A", "Evicted", "Terminated", "Preempting"])
TARGETS = st.sampled_from(["", "TerminationByKubelet", "PreemptionByScheduler", "X"])
LISTS = st.lists(
    st.sampled_from(["", "A", "Evicted", "NodePressureEviction", "Preemption", "X"]),
    min_size=1,
    unique=True,
)


@given(REASONS, REASONS, TARGETS, LISTS)
def test_a_reason_is_in_a_list_or_not(
    status: str, annotation: str, target: str, listed: list[str]
) -> None:
    of = ended(status, annotation, target)
    is_in = match([reason_in("Ignore", *listed)], of) != NO_MATCH
    assert is_in != (match([reason_not_in("Ignore", *listed)], of) != NO_MATCH)
