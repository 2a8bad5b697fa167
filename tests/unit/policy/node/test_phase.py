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

PHASES: dict[str, Any] = {
    "what runs is running (D2.5)": (ONE, {"a": RUNS}, "Running"),
    "what never ran is pending (D2.4)": (ONE, {"a": WAITS}, "Pending"),
    "what is not known is pending (D2.8)": (ONE, {}, "Pending"),
    "a status without state is pending (D2.8)": (ONE, {"a": BLANK}, "Pending"),
    "exit code 0 is success (D2.6)": (ONE, {"a": DONE}, "Succeeded"),
    "another is failure (D2.6)": (ONE, {"a": BROKEN}, "Failed"),
    "Never: one failure does not end it (D2.10)": (TWO, {"a": BROKEN, "b": RUNS}, "Running"),
    "one failure makes it failed (D2.6)": (TWO, {"a": BROKEN, "b": DONE}, "Failed"),
    "all must succeed (D2.6)": (TWO, {"a": DONE, "b": DONE}, "Succeeded"),
    "one that waits is enough (D2.4)": (TWO, {"a": RUNS, "b": WAITS}, "Pending"),
    "one that is unknown is enough (D2.5)": (TWO, {"a": RUNS}, "Pending"),
    "OnFailure: it will run again (D2.6)": (ONE_RETRIED, {"a": BROKEN}, "Running"),
    "OnFailure: in back-off (D2.6)": (ONE_RETRIED, {"a": BACKS_OFF}, "Running"),
    "OnFailure: not after success (D2.1)": (ONE_RETRIED, {"a": DONE}, "Succeeded"),
    "OnFailure: one is restarted (D2.6)": (TWO_RETRIED, {"a": DONE, "b": BROKEN}, "Running"),
    "Never: an end that waits is an end": (ONE, {"a": BACKS_OFF}, "Failed"),
    "Never: though not a success": (ONE, {"a": WILL_RUN_AGAIN}, "Failed"),
    "initializing (D2.2)": (WITH_INIT, {"init": RUNS, "a": WAITS}, "Pending"),
    "initializer not seen (D2.2)": (WITH_INIT, {"a": WAITS}, "Pending"),
    "an initializer that fails (D2.2)": (WITH_INIT, {"init": BROKEN, "a": WAITS}, "Failed"),
    "by its last state (D2.2)": (WITH_INIT, {"init": BACKS_OFF, "a": WAITS}, "Failed"),
    "it is retried (D2.2)": (WITH_INIT_RETRIED, {"init": BROKEN, "a": WAITS}, "Pending"),
    "initialized": (WITH_INIT, {"init": DONE, "a": RUNS}, "Running"),
    "a sidecar not started (D2.3)": (WITH_PROXY, {"proxy": STARTING, "a": WAITS}, "Pending"),
    "a sidecar that runs on (D2.3)": (WITH_PROXY, {"proxy": RUNS, "a": DONE}, "Running"),
    "its exit code is nothing (D2.12)": (WITH_PROXY, {"proxy": BROKEN, "a": DONE}, "Succeeded"),
    "nor that it restarts (D2.3)": (WITH_PROXY, {"proxy": BACKS_OFF, "a": RUNS}, "Running"),
    "a sidecar not seen": (WITH_PROXY, {"a": DONE}, "Pending"),
    "nothing is pending": (PodShape([]), {}, "Pending"),
}


@cases("shape seen want", PHASES)
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

RESTARTS: dict[str, Any] = {
    "Never": (A, "Never", 1, False),
    "OnFailure, after failure": (A, "OnFailure", 1, True),
    "OnFailure, after success": (A, "OnFailure", 0, False),
    "Always": (A, "Always", 0, True),
    "its own policy comes first": (ContainerShape("a", "Never"), "Always", 1, False),
    "its rules come first": (ContainerShape("a", "Never", (RULE,)), "Never", 42, True),
    "if they match": (ContainerShape("a", "Never", (RULE,)), "Never", 41, False),
    "if it has a policy": (ContainerShape("a", None, (RULE,)), "Never", 42, False),
    "a rule with NotIn": (
        ContainerShape("a", "Never", (RestartRule("NotIn", frozenset((0,))),)),
        "Never",
        5,
        True,
    ),
}


@cases("container policy code want", RESTARTS)
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
