# SPDX-License-Identifier: Apache-2.0
"""The phase of a pod, from the states of its containers (behaviour D2)."""

from typing import Any

import pytest

from refloat.policy.node import phase
from refloat.policy.node.phase import ContainerShape, ObservedContainer, PodShape, RestartRule
from tests.cases import cases

RUNS = ObservedContainer("running", started=True)
STARTING = ObservedContainer("running")
DONE = ObservedContainer("terminated", 0)
BROKEN = ObservedContainer("terminated", 1)
WAITS = ObservedContainer("waiting")
BACKS_OFF = ObservedContainer("waiting", 1)
WILL_RUN_AGAIN = ObservedContainer("waiting", 0)
BLANK = ObservedContainer("")

A, B = ContainerShape("a"), ContainerShape("b")
INIT = ContainerShape("init")
PROXY = ContainerShape("proxy", "Always")

ONE = PodShape([A])
TWO = PodShape([A, B])
ONE_RETRIED = PodShape([A], restart_policy="OnFailure")
TWO_RETRIED = PodShape([A, B], restart_policy="OnFailure")
WITH_INIT = PodShape([A], [INIT])
WITH_INIT_RETRIED = PodShape([A], [INIT], "OnFailure")
WITH_PROXY = PodShape([A], [PROXY])

PHASES: list[Any] = [
    pytest.param(ONE, {"a": RUNS}, "Running", id="what runs is running (D2.5)"),
    pytest.param(ONE, {"a": WAITS}, "Pending", id="what never ran is pending (D2.4)"),
    pytest.param(ONE, {}, "Pending", id="what is not known is pending (D2.8)"),
    pytest.param(ONE, {"a": BLANK}, "Pending", id="a status without state is pending (D2.8)"),
    pytest.param(ONE, {"a": DONE}, "Succeeded", id="exit code 0 is success (D2.6)"),
    pytest.param(ONE, {"a": BROKEN}, "Failed", id="another is failure (D2.6)"),
    pytest.param(
        TWO, {"a": BROKEN, "b": RUNS}, "Running", id="Never: one failure does not end it (D2.10)"
    ),
    pytest.param(TWO, {"a": BROKEN, "b": DONE}, "Failed", id="one failure makes it failed (D2.6)"),
    pytest.param(TWO, {"a": DONE, "b": DONE}, "Succeeded", id="all must succeed (D2.6)"),
    pytest.param(TWO, {"a": RUNS, "b": WAITS}, "Pending", id="one that waits is enough (D2.4)"),
    pytest.param(TWO, {"a": RUNS}, "Pending", id="one that is unknown is enough (D2.5)"),
    pytest.param(ONE_RETRIED, {"a": BROKEN}, "Running", id="OnFailure: it will run again (D2.6)"),
    pytest.param(ONE_RETRIED, {"a": BACKS_OFF}, "Running", id="OnFailure: in back-off (D2.6)"),
    pytest.param(ONE_RETRIED, {"a": DONE}, "Succeeded", id="OnFailure: not after success (D2.1)"),
    pytest.param(
        TWO_RETRIED, {"a": DONE, "b": BROKEN}, "Running", id="OnFailure: one is restarted (D2.6)"
    ),
    pytest.param(ONE, {"a": BACKS_OFF}, "Failed", id="Never: an end that waits is an end"),
    pytest.param(ONE, {"a": WILL_RUN_AGAIN}, "Failed", id="Never: though not a success"),
    pytest.param(WITH_INIT, {"init": RUNS, "a": WAITS}, "Pending", id="initializing (D2.2)"),
    pytest.param(WITH_INIT, {"a": WAITS}, "Pending", id="initializer not seen (D2.2)"),
    pytest.param(
        WITH_INIT, {"init": BROKEN, "a": WAITS}, "Failed", id="an initializer that fails (D2.2)"
    ),
    pytest.param(
        WITH_INIT, {"init": BACKS_OFF, "a": WAITS}, "Failed", id="by its last state (D2.2)"
    ),
    pytest.param(
        WITH_INIT_RETRIED, {"init": BROKEN, "a": WAITS}, "Pending", id="it is retried (D2.2)"
    ),
    pytest.param(WITH_INIT, {"init": DONE, "a": RUNS}, "Running", id="initialized"),
    pytest.param(
        WITH_PROXY, {"proxy": STARTING, "a": WAITS}, "Pending", id="a sidecar not started (D2.3)"
    ),
    pytest.param(
        WITH_PROXY, {"proxy": RUNS, "a": DONE}, "Running", id="a sidecar that runs on (D2.3)"
    ),
    pytest.param(
        WITH_PROXY, {"proxy": BROKEN, "a": DONE}, "Succeeded", id="its exit code is nothing (D2.12)"
    ),
    pytest.param(
        WITH_PROXY, {"proxy": BACKS_OFF, "a": RUNS}, "Running", id="nor that it restarts (D2.3)"
    ),
    pytest.param(WITH_PROXY, {"a": DONE}, "Pending", id="a sidecar not seen"),
    pytest.param(PodShape([]), {}, "Pending", id="nothing is pending"),
]


@pytest.mark.parametrize(("shape", "seen", "want"), PHASES)
def test_the_phase_of_containers(
    shape: PodShape, seen: dict[str, ObservedContainer], want: str
) -> None:
    assert phase.compute(shape, seen) == want


@cases(
    "shape seen want",
    {
        "nothing is restarted": (ONE_RETRIED, {"a": BROKEN}, "Failed"),
        "success is success": (ONE_RETRIED, {"a": DONE}, "Succeeded"),
        "what runs is running": (ONE_RETRIED, {"a": RUNS}, "Running"),
        "back-off is an end": (ONE_RETRIED, {"a": BACKS_OFF}, "Failed"),
    },
)
def test_the_phase_of_a_pod_that_is_terminating(
    shape: PodShape, seen: dict[str, ObservedContainer], want: str
) -> None:
    """Behaviour D2.7."""
    assert phase.compute(shape, seen, terminating=True) == want


def test_a_sidecar_that_starts_again_does_not_make_a_pod_pending() -> None:
    """Behaviour D2.3."""
    states = {"proxy": STARTING, "a": RUNS}
    assert phase.compute(WITH_PROXY, states) == "Pending"
    assert phase.compute(WITH_PROXY, states, initialized=True) == "Running"


RULE = RestartRule("In", frozenset((42,)))

RESTARTS: list[Any] = [
    pytest.param(A, "Never", 1, False, id="Never"),
    pytest.param(A, "OnFailure", 1, True, id="OnFailure, after failure"),
    pytest.param(A, "OnFailure", 0, False, id="OnFailure, after success"),
    pytest.param(A, "Always", 0, True, id="Always"),
    pytest.param(ContainerShape("a", "Never"), "Always", 1, False, id="its own policy comes first"),
    pytest.param(
        ContainerShape("a", "Never", (RULE,)), "Never", 42, True, id="its rules come first"
    ),
    pytest.param(ContainerShape("a", "Never", (RULE,)), "Never", 41, False, id="if they match"),
    pytest.param(ContainerShape("a", None, (RULE,)), "Never", 42, False, id="if it has a policy"),
    pytest.param(
        ContainerShape("a", "Never", (RestartRule("NotIn", frozenset((0,))),)),
        "Never",
        5,
        True,
        id="a rule with NotIn",
    ),
]


@pytest.mark.parametrize(("container", "policy", "code", "want"), RESTARTS)
def test_what_is_restarted(container: ContainerShape, policy: str, code: int, want: bool) -> None:
    """Behaviour D2.1."""
    assert container.restarts(code, policy) is want


def test_a_pod_whose_containers_all_start_anew_is_not_over() -> None:
    restarting = ObservedContainer("terminated", 1, restarting_all=True)
    assert phase.compute(ONE, {"a": restarting}) == "Running"
    assert not phase.is_over(ONE, {"a": restarting})


@pytest.mark.parametrize(
    ("current", "computed", "want"),
    [
        ("Failed", "Running", "Failed"),
        ("Succeeded", "Failed", "Succeeded"),
        ("Running", "Failed", "Failed"),
        ("Running", "Pending", "Pending"),
    ],
)
def test_a_terminal_phase_is_never_left(current: str, computed: str, want: str) -> None:
    """Behaviour D2.9."""
    assert phase.advance(current, computed) == want


@cases(
    "shape seen want",
    {
        "only a sidecar runs": (WITH_PROXY, {"proxy": RUNS, "a": DONE}, True),
        "it still works": (WITH_PROXY, {"proxy": RUNS, "a": RUNS}, False),
        "one is not known": (TWO, {"a": DONE}, False),
        "it will be started again": (ONE_RETRIED, {"a": BROKEN}, False),
        "it will never be started": (WITH_INIT, {"init": BROKEN}, True),
    },
)
def test_when_the_rest_of_a_pod_is_stopped(
    shape: PodShape, seen: dict[str, ObservedContainer], want: bool
) -> None:
    """Behaviour D2.11."""
    assert phase.is_over(shape, seen) is want
