# SPDX-License-Identifier: Apache-2.0
"""The verdict of a pod failure policy on a pod (behaviour A15, KEP-3329)."""

import itertools
import time
from typing import Any

import msgspec
import pytest

from refloat.api.batch import PodFailurePolicy
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import observed, outcome, pod_failure, pod_replacement
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.job.pod_failure import NO_MATCH, Verdict
from tests.cases import cases
from tests.unit.policy.builders import (
    at,
    condition,
    container,
    failed,
    job,
    on_codes,
    on_condition,
    pod,
    policy,
    rule,
    story,
)


def match(rules: list[Object], of: Pod) -> Verdict:
    parsed_policy = msgspec.convert(policy(*rules), PodFailurePolicy)
    return pod_failure.match_pod_failure_policy(parsed_policy, of)


DISRUPTED = pod("u", "Failed", conditions=[condition("DisruptionTarget")])
TWO = pod("u", "Failed", containers=[container("a", 1), container("b", 2)])

MATCHES: dict[str, Any] = {
    "In matches a code that is listed (A15.4)": (
        [on_codes("FailJob", "In", 41, 42)],
        failed(exit_code=42),
        ("FailJob", 0),
    ),
    "In does not match a code that is not listed (A15.4)": (
        [on_codes("FailJob", "In", 41, 42)],
        failed(exit_code=43),
        ("", None),
    ),
    "NotIn matches a code that is not listed (A15.4)": (
        [on_codes("FailJob", "NotIn", 41, 42)],
        failed(exit_code=43),
        ("FailJob", 0),
    ),
    "NotIn does not match a code that is listed (A15.4)": (
        [on_codes("FailJob", "NotIn", 41, 42)],
        failed(exit_code=42),
        ("", None),
    ),
    "exit code 0 does not match NotIn (A15.3)": (
        [on_codes("FailJob", "NotIn", 1)],
        failed(exit_code=0),
        ("", None),
    ),
    "exit code 0 does not match In, should it be listed (A15.3)": (
        [on_codes("FailJob", "In", 0)],
        failed(exit_code=0),
        ("", None),
    ),
    "the first rule that matches decides (A15.2)": (
        [on_codes("Ignore", "In", 1), on_codes("FailJob", "In", 1)],
        failed(exit_code=1),
        ("Ignore", 0),
    ),
    "a rule that does not match is passed over (A15.2)": (
        [on_codes("Ignore", "In", 2), on_codes("FailJob", "In", 1)],
        failed(exit_code=1),
        ("FailJob", 1),
    ),
    "a rule with an unknown action is passed over, its index kept (A15.6)": (
        [on_codes("Terminate", "In", 1), on_codes("Count", "In", 1)],
        failed(exit_code=1),
        ("Count", 1),
    ),
    "an unknown operator does not match": (
        [on_codes("FailJob", "Between", 1, 2), on_codes("Count", "In", 1)],
        failed(exit_code=1),
        ("Count", 1),
    ),
    "a container's name restricts the rule to it (A15.3)": (
        [on_codes("FailJob", "In", 2, name="b")],
        TWO,
        ("FailJob", 0),
    ),
    "another container's code does not match (A15.3)": (
        [on_codes("FailJob", "In", 1, name="b")],
        TWO,
        ("", None),
    ),
    "init containers are looked at (A15.3)": (
        [on_codes("FailJob", "In", 5)],
        pod("u", "Failed", init=[container("setup", 5)]),
        ("FailJob", 0),
    ),
    "a named init container that ended well does not match": (
        [on_codes("FailJob", "In", 5, name="setup")],
        pod("u", "Failed", containers=[container("main", 5)], init=[container("setup", 0)]),
        ("", None),
    ),
    "sidecars are looked at (D2.12)": (
        [on_codes("FailJob", "In", 137)],
        pod("u", "Failed", init=[container("proxy", 137)], sidecars=["proxy"]),
        ("FailJob", 0),
    ),
    "a container that has not ended is passed over (A15.3)": (
        [on_codes("FailJob", "NotIn", 1)],
        pod("u", "Failed", containers=[container("main")]),
        ("", None),
    ),
    "a pod without statuses has no exit code": (
        [on_codes("FailJob", "NotIn", 1)],
        pod("u", "Failed"),
        ("", None),
    ),
    "a condition of that type and status matches (A15.5)": (
        [on_condition("Ignore")],
        DISRUPTED,
        ("Ignore", 0),
    ),
    "a condition of another status does not match (A15.5)": (
        [on_condition("Ignore", status="False")],
        DISRUPTED,
        ("", None),
    ),
    "a condition of another type does not match (A15.5)": (
        [on_condition("Ignore", "Other")],
        DISRUPTED,
        ("", None),
    ),
    "any pattern is enough (A15.5)": (
        [
            rule(
                "Count",
                onPodConditions=[
                    {"type": "Other", "status": "True"},
                    {"type": "DisruptionTarget", "status": "True"},
                ],
            )
        ],
        DISRUPTED,
        ("Count", 0),
    ),
    "a rule with both is matched on exit codes only (A15.2)": (
        [
            rule(
                "FailJob",
                onExitCodes={"operator": "In", "values": [9]},
                onPodConditions=[{"type": "DisruptionTarget", "status": "True"}],
            )
        ],
        DISRUPTED,
        ("", None),
    ),
    "a rule with neither never matches": ([rule("FailJob")], DISRUPTED, ("", None)),
    "FailIndex matches as the others do (A15.6)": (
        [on_codes("FailIndex", "In", 1)],
        failed(exit_code=1),
        ("FailIndex", 0),
    ),
    "a policy without rules never matches": ([], failed(exit_code=1), ("", None)),
}


@cases("rules of want", MATCHES)
def test_the_first_matching_rule_decides(
    rules: list[Object], of: Pod, want: tuple[str, int | None]
) -> None:
    verdict = match(rules, of)
    assert (verdict.action, verdict.rule) == want


def test_no_policy_matches_nothing() -> None:
    assert pod_failure.match_pod_failure_policy(None, failed()) is NO_MATCH


@pytest.mark.parametrize(
    ("action", "want"), [("FailJob", True), ("FailIndex", True), ("Count", True), ("Ignore", False)]
)
def test_only_ignored_failures_do_not_count(action: str, want: bool) -> None:
    assert match([on_codes(action, "In", 1)], failed(exit_code=1)).counts is want


def test_a_failure_without_a_match_counts() -> None:
    assert NO_MATCH.counts


MESSAGES: dict[str, Any] = {
    "an exit code": (
        [on_codes("FailJob", "In", 42)],
        failed("x", exit_code=42),
        "Container main for pod ns/pod-x failed with exit code 42 matching FailJob rule at index 0",
    ),
    "a condition": (
        [on_codes("Ignore", "In", 7), on_condition("FailJob")],
        DISRUPTED,
        "Pod ns/pod-u has condition DisruptionTarget matching FailJob rule at index 1",
    ),
    "the first container of the list is named (A15.4)": (
        [on_codes("FailJob", "NotIn", 9)],
        pod("u", "Failed", containers=[container("a", 1), container("b", 2)]),
        "Container a for pod ns/pod-u failed with exit code 1 matching FailJob rule at index 0",
    ),
    "regular containers are named before init containers (A15.3)": (
        [on_codes("FailJob", "NotIn", 9)],
        pod("u", "Failed", containers=[container("main", 2)], init=[container("setup", 1)]),
        "Container main for pod ns/pod-u failed with exit code 2 matching FailJob rule at index 0",
    ),
    "other actions are told in the same words": (
        [on_codes("Ignore", "In", 1)],
        failed(exit_code=1),
        "Container main for pod ns/pod-u failed with exit code 1 matching Ignore rule at index 0",
    ),
    "nothing is told when nothing matched": ([], failed(), ""),
}


@cases("rules of want", MESSAGES)
def test_the_message_says_what_matched(rules: list[Object], of: Pod, want: str) -> None:
    """Behaviour A15.7."""
    assert match(rules, of).message == want


def test_ten_thousand_pods_are_judged_by_twenty_rules_in_a_second() -> None:
    """None matches before the last, each exit code rule has all the values it may have."""
    codes = [on_codes("FailJob", "In", *range(1, 256)) for _ in range(10)]
    types = [on_condition("Ignore", f"Type{number}") for number in range(9)]
    rules = policy(*codes, *types, on_codes("Count", "NotIn", 1))
    matcher = pod_failure.matcher(msgspec.convert(rules, PodFailurePolicy))
    containers = [container("a", 0), container("b", 300)]
    conditions = [condition(kind) for kind in ("Ready", "Initialized", "PodScheduled")]
    pods = [
        pod(f"p{number}", "Failed", containers=containers, conditions=conditions)
        for number in range(10_000)
    ]
    began = time.process_time()
    verdicts = [matcher.match(each) for each in pods]
    assert time.process_time() - began < 1
    assert {verdict.rule for verdict in verdicts} == {19}


# -- KEP-3329's user stories ------------------------------------------------------

STORY_1 = """
kind: Job
spec:
  template:
    spec:
      containers:
      - name: job-container
        image: job-image
        command: ["./program"]
  backoffLimit: 6
  podFailurePolicy:
    rules:
    - action: FailJob
      onExitCodes:
        operator: NotIn
        values: [40,41,42]
"""

STORY_2 = """
kind: Job
spec:
  template:
    spec:
      containers:
      - name: main-job-container
        image: job-image
        command: ["./program"]
        resources:
          requests: {memory: "10Gi", ephemeral-storage: "10Gi"}
          limits: {memory: "10Gi", ephemeral-storage: "100Gi"}
  backoffLimit: 3
  podFailurePolicy:
    rules:
    - action: Ignore
      onPodConditions:
      - type: DisruptionTarget
"""

STORY_3 = """
kind: Job
spec:
  template:
    spec:
      containers:
      - name: main-job-container
        image: job-image
        command: ["./program"]
        resources:
          requests: {memory: "10Gi", ephemeral-storage: "10Gi"}
          limits: {memory: "10Gi", ephemeral-storage: "100Gi"}
  backoffLimit: 3
  podFailurePolicy:
    rules:
    - action: Count
      onPodConditions:
      - type: DisruptionTarget
    - action: FailJob
      onExitCodes:
        operator: NotIn
        values: [0]
"""

EXAMPLE = """
kind: Job
spec:
  template:
    spec:
      containers:
      - name: main-job-container
        image: job-image
        command: ["./program"]
      - name: monitoring-job-container
        image: job-monitoring
        command: ["./monitoring"]
  backoffLimit: 3
  podFailurePolicy:
    rules:
    - action: FailJob
      onExitCodes:
        containerName: main-job-container
        operator: In
        values: [1,2,3]
    - action: Ignore
      onPodConditions:
      - type: DisruptionTarget
"""

NO_RULES = """
kind: Job
spec:
  template:
    spec:
      containers:
      - name: invalid-image
        image: non_existing_image_name:102
  podFailurePolicy:
    rules: []
  backoffLimit: 0
"""


def ended(*containers: Object, disrupted: bool = False, phase: str = "Failed", **more: Any) -> Pod:
    conditions = [condition("DisruptionTarget")] if disrupted else []
    return pod("u", phase, containers=containers, conditions=conditions, **more)


KILLED = container("main-job-container", 137)

STORIES: list[Any] = [
    pytest.param(
        STORY_1,
        ended(container("job-container", 1)),
        "FailJob",
        id="story 1: a bug of the program ends the Job at once",
    ),
    *(
        pytest.param(
            STORY_1,
            ended(container("job-container", code)),
            "",
            id=f"story 1: exit code {code} is retried and counted",
        )
        for code in (40, 41, 42)
    ),
    pytest.param(
        STORY_2, ended(KILLED, disrupted=True), "Ignore", id="story 2: preemption is never counted"
    ),
    pytest.param(STORY_2, ended(KILLED), "", id="story 2: exceeding the memory limit is counted"),
    pytest.param(
        STORY_2,
        ended(container("main-job-container", 3)),
        "",
        id="story 2: an error of the user is counted",
    ),
    pytest.param(
        STORY_3, ended(KILLED, disrupted=True), "Count", id="story 3: a disruption is counted"
    ),
    pytest.param(STORY_3, ended(KILLED), "FailJob", id="story 3: exceeding a limit ends the Job"),
    pytest.param(
        STORY_3,
        ended(container("main-job-container", 1)),
        "FailJob",
        id="story 3: an error of the user ends the Job",
    ),
    pytest.param(
        EXAMPLE,
        ended(container("main-job-container", 2), container("monitoring-job-container", 0)),
        "FailJob",
        id="example: the main container's code ends the Job",
    ),
    pytest.param(
        EXAMPLE,
        ended(container("main-job-container", 0), container("monitoring-job-container", 2)),
        "",
        id="example: the monitor's code is counted",
    ),
    pytest.param(
        EXAMPLE,
        ended(KILLED, container("monitoring-job-container", 137), disrupted=True),
        "Ignore",
        id="example: a drain is ignored",
    ),
    pytest.param(
        NO_RULES, ended(), "", id="scenario 3: a pod deleted while pending is counted once failed"
    ),
]


@pytest.mark.parametrize(("written", "of", "want"), STORIES)
def test_the_stories_of_kep_3329(written: str, of: Pod, want: str) -> None:
    policy_of = story(written).spec.pod_failure_policy
    assert pod_failure.match_pod_failure_policy(policy_of, of).action == want


@pytest.mark.parametrize("written", [STORY_1, STORY_2, STORY_3, EXAMPLE, NO_RULES])
def test_jobs_of_the_stories_wait_for_terminating_pods(written: str) -> None:
    """A terminating pod has no exit code yet, so no policy judges the pod (A15.1)."""
    batch_job = story(written)
    observation = observed.observe(batch_job, [ended(phase="Running", deleted=0)])
    assert observation.new_failed == ()
    assert outcome.decide(observation, at(0)) is None


def test_a_missing_status_of_a_pattern_means_true() -> None:
    """Behaviour B1.5: the API fills it in, and a stale condition is False."""
    stale = pod("u", "Failed", conditions=[condition("DisruptionTarget", "False")])
    policy_of = story(STORY_2).spec.pod_failure_policy
    assert pod_failure.match_pod_failure_policy(policy_of, stale) is NO_MATCH


# -- gates ------------------------------------------------------------------------

BOTH = (False, True)


def combination(failure: bool, replacement: bool, disruption: bool) -> str:
    on = [
        name
        for name, value in (
            ("JobPodFailurePolicy", failure),
            ("JobPodReplacementPolicy", replacement),
            ("PodDisruptionConditions", disruption),
        )
        if value
    ]
    return f"on: {', '.join(on) or 'none'}"


# Failure, replacement and disruption gate; then what a Job does that has a
# policy: is it judged by its policy, does it wait for terminating pods. Then
# the same of a Job without one, under podReplacementPolicy Failed.
GATES = [
    (False, False, False, (False, False), (False, False)),
    (False, False, True, (False, False), (False, False)),
    (False, True, False, (False, True), (False, True)),
    (False, True, True, (False, True), (False, True)),
    (True, False, False, (True, True), (False, False)),
    (True, False, True, (True, True), (False, False)),
    (True, True, False, (True, True), (False, True)),
    (True, True, True, (True, True), (False, True)),
]


@pytest.mark.parametrize(
    ("failure", "replacement", "disruption", "want_with", "want_without"),
    GATES,
    ids=[combination(*row[:3]) for row in GATES],
)
@pytest.mark.parametrize("has_policy", [True, False], ids=["policy set", "no policy"])
def test_what_the_gates_do(
    failure: bool,
    replacement: bool,
    disruption: bool,
    want_with: tuple[bool, bool],
    want_without: tuple[bool, bool],
    has_policy: bool,
) -> None:
    """All eight combinations, with and without a policy."""
    job_gates = JobGates(failure, replacement, disruption)
    rules = policy(on_codes("FailJob", "In", 42)) if has_policy else None
    batch_job = job(podReplacementPolicy="Failed", podFailurePolicy=rules)
    observation = observed.observe(batch_job, [failed(exit_code=42)], job_gates=job_gates)
    end = outcome.decide(observation, at(0))
    is_policy = end is not None and end.reason == "PodFailurePolicy"
    assert (is_policy, observation.spec.waits) == (want_with if has_policy else want_without)
    assert pod_replacement.reports_terminating(job_gates) is replacement
    assert pod_replacement.adds_disruption_target(job_gates) is disruption
    assert pod_replacement.sets_phase(job_gates) is (failure or replacement or disruption)


def test_the_table_of_gates_is_complete() -> None:
    assert [row[:3] for row in GATES] == list(itertools.product(BOTH, repeat=3))


@pytest.mark.parametrize(("enabled", "want"), [(True, "PodFailurePolicy"), (False, None)])
def test_exit_42_is_retried_while_the_gate_is_off(enabled: bool, want: str | None) -> None:
    """Scenario 1 of KEP-3329's upgrade, downgrade, upgrade."""
    batch_job = job(backoffLimit=6, podFailurePolicy=policy(on_codes("FailJob", "In", 42)))
    job_gates = JobGates(job_pod_failure_policy=enabled)
    end = outcome.decide(
        observed.observe(batch_job, [failed(exit_code=42)], job_gates=job_gates), at(0)
    )
    assert (end.reason if end else None) == want


@pytest.mark.parametrize(("enabled", "want"), [(True, None), (False, "BackoffLimitExceeded")])
def test_a_drain_fails_a_job_without_retries_while_the_gate_is_off(
    enabled: bool, want: str | None
) -> None:
    """Scenario 2 of KEP-3329's upgrade, downgrade, upgrade."""
    batch_job = job(backoffLimit=0, podFailurePolicy=policy(on_condition("Ignore")))
    drained = pod(
        "u",
        "Failed",
        containers=[container("main", 137)],
        conditions=[condition("DisruptionTarget")] if enabled else [],
        deleted=0,
    )
    job_gates = JobGates(enabled, enabled, enabled)
    end = outcome.decide(observed.observe(batch_job, [drained], job_gates=job_gates), at(0))
    assert (end.reason if end else None) == want


def test_with_the_gate_off_a_stored_policy_does_not_hold() -> None:
    batch_job = job(podFailurePolicy=policy(on_condition("Ignore")))
    assert pod_failure.effective(batch_job.spec, ALL_ON) is not None
    assert pod_failure.effective(batch_job.spec, JobGates(job_pod_failure_policy=False)) is None
