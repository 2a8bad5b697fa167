# SPDX-License-Identifier: Apache-2.0
"""What scenarios say of themselves, and how the end of a pod is read."""

from typing import Any

import pytest

from refloat.client.contract import EventType
from refloat.demo.demo_cluster import API_SERVER_ONLY
from refloat.demo.failures import case, pod_end
from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.case_namespace import CaseNamespace
from refloat.demo.failures.cases import CASES
from refloat.demo.failures.pod_end import End
from refloat.scenario.namespace import ScenarioEvent
from tests.cases import cases

JOB = "batch.kubernetes.io/job-name"


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_a_scenario_says_all_of_its_end_once(each: Case) -> None:
    assert case.mistakes(each) == []


async def _never(namespace: CaseNamespace) -> End:
    raise AssertionError


def _case(**more: Any) -> Case:
    return Case("n", "t", "h", "how", _never, API_SERVER_ONLY, **more)


@cases(
    "made want",
    {
        "a field that is left out": (_case(), "phase: no value"),
        "two values": (_case(kep={"phase": "a"}, more={"phase": "a"}), "phase: two values"),
        "an unknown field": (_case(kep={"x": ""}), "x: no such field"),
        "a difference that is none": (
            _case(kep={"phase": "a"}, differs={"phase": Difference("a", "why")}),
            "phase: the same as in KEP-3329",
        ),
    },
)
def test_a_mistake_in_a_scenario_is_found(made: Case, want: str) -> None:
    assert want in case.mistakes(made)


def _pod(name: str, revision: int, type_: EventType = "MODIFIED", **status: Any) -> ScenarioEvent:
    meta = {
        "name": name,
        "namespace": "demo-x",
        "resourceVersion": str(revision),
        "labels": {JOB: "work"},
    }
    obj = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}
    return ScenarioEvent("pods", type_, obj)


def _job(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "work"}, "status": status}


CONDITIONS = [
    {"type": "Ready", "status": "False", "reason": "PodFailed"},
    {"type": "DisruptionTarget", "status": "True", "reason": "R", "message": "pod a-1 on n1"},
    {"type": "Initialized", "status": "True"},
]


def test_names_and_amounts_of_a_run_are_taken_out() -> None:
    message = "Node n1 of demo-x/a-1, not a-12. available: 123Ki. was using 5M"
    ended = _pod("a-1", 5, phase="Failed", message=message, conditions=CONDITIONS)
    found = pod_end.observe([ended], _job(), "a-1")
    assert found.message == "Node NODE of NAMESPACE/POD, not a-12. available: N. was using N"
    assert (found.disruption, found.because) == ("R", "pod POD on NODE")
    assert found.conditions == "Initialized=True, Ready=False (PodFailed)"


def test_a_disruption_that_was_taken_back_is_none() -> None:
    taken_back = [{"type": "DisruptionTarget", "status": "False"}]
    ended = _pod("a-1", 5, phase="Failed", conditions=taken_back)
    assert pod_end.observe([ended], _job(), "a-1").disruption == "none"


@cases(
    "state want",
    {
        "ended": ({"terminated": {"exitCode": 137, "reason": "Error"}}, "terminated 137 Error"),
        "waits": ({"waiting": {"reason": "ErrImagePull"}}, "waiting ErrImagePull"),
        "runs": ({"running": {"startedAt": "t"}}, "running"),
        "nobody knows": ({}, "unknown"),
    },
)
def test_a_container_is_told_by_its_state(state: dict[str, Any], want: str) -> None:
    ended = _pod("a-1", 5, phase="Failed", containerStatuses=[{"state": state}])
    assert pod_end.observe([ended], _job(), "a-1").container == want


ENDED, GONE = _pod("a", 5, phase="Failed"), _pod("a", 7, "DELETED", phase="Failed")


@cases(
    "pods want",
    {
        "there is one pod": ([ENDED, GONE], "no"),
        "the second came later": ([ENDED, _pod("b", 6), GONE], "after its end"),
        "it came sooner": ([_pod("a", 3), _pod("b", 4), ENDED], "before its end"),
        "the first never ended": ([_pod("a", 3), _pod("b", 4)], "before its end"),
    },
)
def test_replacement_is_dated_by_the_end_of_the_first(pods: list[ScenarioEvent], want: str) -> None:
    assert pod_end.observe(pods, _job(), "a").replaced == want


@cases(
    "status want",
    {
        "nothing is said": ({}, "goes on, failed 0"),
        "failures are counted": ({"failed": 2}, "goes on, failed 2"),
        "it failed": (
            {"conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "m"}]},
            "Failed: R: m",
        ),
        "it is complete": (
            {"conditions": [{"type": "Complete", "status": "True", "reason": "R"}]},
            "Complete: R",
        ),
        "it is about to fail": (
            {"conditions": [{"type": "FailureTarget", "status": "True"}]},
            "goes on, failed 0",
        ),
    },
)
def test_a_job_is_told_by_its_conditions(status: dict[str, Any], want: str) -> None:
    assert pod_end.observe([ENDED], _job(**status), "a").job == want
