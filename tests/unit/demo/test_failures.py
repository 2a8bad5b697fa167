# SPDX-License-Identifier: Apache-2.0
"""What scenarios say of themselves, and how the end of a pod is read."""

from typing import Any

import pytest

from refloat.demo.failures import case, end
from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.cases import CASES
from refloat.demo.failures.end import End
from refloat.demo.failures.scene import Scene
from refloat.demo.stage import ALONE
from refloat.demo.view import Seen

JOB = "batch.kubernetes.io/job-name"


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_a_scenario_says_all_of_its_end_once(each: Case) -> None:
    assert case.mistakes(each) == []


async def _never(scene: Scene) -> End:
    raise AssertionError


def _case(**more: Any) -> Case:
    return Case("n", "t", "h", "how", _never, ALONE, **more)


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(_case(), "phase: nothing is said", id="a field that is left out"),
        pytest.param(
            _case(kep={"phase": "a"}, more={"phase": "a"}), "phase: said twice", id="said twice"
        ),
        pytest.param(_case(kep={"x": ""}), "x: no such field", id="an unknown field"),
        pytest.param(
            _case(kep={"phase": "a"}, differs={"phase": Difference("a", "why")}),
            "phase: the same as KEP-3329 says",
            id="a difference that is none",
        ),
    ],
)
def test_a_mistake_in_a_scenario_is_found(made: Case, want: str) -> None:
    assert want in case.mistakes(made)


def _pod(name: str, revision: int, type_: str = "MODIFIED", **status: Any) -> Seen:
    meta = {
        "name": name,
        "namespace": "demo-x",
        "resourceVersion": str(revision),
        "labels": {JOB: "work"},
    }
    obj = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}
    return Seen(type_, obj, {"Status": "Error"})


def _job(**status: Any) -> Seen:
    return Seen("MODIFIED", {"metadata": {"name": "work"}, "status": status}, {})


CONDITIONS = [
    {"type": "Ready", "status": "False", "reason": "PodFailed"},
    {"type": "DisruptionTarget", "status": "True", "reason": "R", "message": "pod a-1 on n1"},
    {"type": "Initialized", "status": "True"},
]


def test_names_and_amounts_of_a_run_are_taken_out() -> None:
    message = "Node n1 of demo-x/a-1, not a-12. available: 123Ki. was using 5M"
    ended = _pod("a-1", 5, phase="Failed", message=message, conditions=CONDITIONS)
    found = end.observe([ended], _job(), "a-1")
    assert found.message == "Node NODE of NAMESPACE/POD, not a-12. available: N. was using N"
    assert (found.disruption, found.because) == ("R", "pod POD on NODE")
    assert found.conditions == "Initialized=True, Ready=False (PodFailed)"


def test_a_disruption_that_was_taken_back_is_none() -> None:
    taken_back = [{"type": "DisruptionTarget", "status": "False"}]
    ended = _pod("a-1", 5, phase="Failed", conditions=taken_back)
    assert end.observe([ended], _job(), "a-1").disruption == "none"


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(
            {"terminated": {"exitCode": 137, "reason": "Error"}},
            "terminated 137 Error",
            id="ended",
        ),
        pytest.param({"waiting": {"reason": "ErrImagePull"}}, "waiting ErrImagePull", id="waits"),
        pytest.param({"running": {"startedAt": "t"}}, "running", id="runs"),
        pytest.param({}, "unknown", id="nobody knows"),
    ],
)
def test_a_container_is_told_by_its_state(state: dict[str, Any], want: str) -> None:
    ended = _pod("a-1", 5, phase="Failed", containerStatuses=[{"state": state}])
    assert end.observe([ended], _job(), "a-1").container == want


ENDED, GONE = _pod("a", 5, phase="Failed"), _pod("a", 7, "DELETED", phase="Failed")


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([ENDED, GONE], "no", id="there is one pod"),
        pytest.param([ENDED, _pod("b", 6), GONE], "after its end", id="the second came later"),
        pytest.param([_pod("a", 3), _pod("b", 4), ENDED], "before its end", id="it came sooner"),
        pytest.param([_pod("a", 3), _pod("b", 4)], "before its end", id="the first never ended"),
    ],
)
def test_a_replacement_is_dated_by_the_end_of_the_first(pods: list[Seen], want: str) -> None:
    assert end.observe(pods, _job(), "a").replaced == want


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, "goes on, failed 0", id="nothing is said"),
        pytest.param({"failed": 2}, "goes on, failed 2", id="failures are counted"),
        pytest.param(
            {"conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "m"}]},
            "Failed: R: m",
            id="it failed",
        ),
        pytest.param(
            {"conditions": [{"type": "Complete", "status": "True", "reason": "R"}]},
            "Complete: R",
            id="it is complete",
        ),
        pytest.param(
            {"conditions": [{"type": "FailureTarget", "status": "True"}]},
            "goes on, failed 0",
            id="it is about to fail",
        ),
    ],
)
def test_a_job_is_told_by_its_conditions(status: dict[str, Any], want: str) -> None:
    assert end.observe([ENDED], _job(**status), "a").job == want
