# SPDX-License-Identifier: Apache-2.0
"""What a disruption budget allows (behaviour C5, C6)."""

from typing import Any

import msgspec
import pytest

from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.api.policy import PodDisruptionBudget
from refloat.api.structs import LabelSelector
from refloat.policy.scheduling import disruption_budgets
from refloat.policy.scheduling.disruption_budgets import BudgetTally
from tests.cases import cases
from tests.unit.policy.builders import at, condition, pod, text

READY = [condition("Ready")]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def budget(disrupted: dict[str, str] | None = None, **spec: Any) -> PodDisruptionBudget:
    status = {"disruptedPods": disrupted or {}}
    return msgspec.convert({"spec": spec, "status": status}, PodDisruptionBudget)


def well(uid: str, **more: Any) -> Pod:
    return pod(uid, conditions=READY, **more)


THREE = [well("a"), well("b"), well("c")]


@cases(
    "spec pods counts",
    {
        "one may go": ({"minAvailable": 2}, THREE, (3, 2, 3, 1)),
        "none may go": ({"minAvailable": 3}, THREE, (3, 3, 3, 0)),
        "more than there are": ({"minAvailable": 5}, THREE, (3, 5, 3, 0)),
        "none of none": ({"minAvailable": 0}, [], (0, 0, 0, 0)),
        "a budget that says nothing allows nothing": ({}, THREE, (3, 0, 0, 0)),
        "not ready is not well": ({"minAvailable": 1}, [well("a"), pod("b")], (1, 1, 2, 0)),
        "terminating is not well (C5.3)": (
            {"minAvailable": 1},
            [well("a"), well("b", deleted=0)],
            (1, 1, 2, 0),
        ),
        "nobody says how many there should be": ({"maxUnavailable": 1}, THREE, (3, 0, 0, 0)),
        "nor a percentage of how many": ({"minAvailable": "50%"}, THREE, (3, 0, 0, 0)),
    },
)
def test_how_many_are_well_wanted_expected_and_may_go(
    spec: Object, pods: list[Pod], counts: tuple[int, ...]
) -> None:
    tally = disruption_budgets.tally(budget(**spec), pods, now=at(0))
    assert (tally.healthy, tally.desired, tally.expected, tally.allowed) == counts


@pytest.mark.parametrize(
    ("spec", "unmanaged"),
    [({"maxUnavailable": 1}, True), ({"minAvailable": "50%"}, True), ({"minAvailable": 1}, False)],
)
def test_pods_without_an_owner_matter_where_their_number_does(
    spec: Object, unmanaged: bool
) -> None:
    assert disruption_budgets.tally(budget(**spec), THREE, now=at(0)).unmanaged is unmanaged


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (JOB, "jobs.batch does not implement the scale subresource"),
        (
            {**JOB, "apiVersion": "v1", "kind": "ConfigMap"},
            "configmaps does not implement the scale subresource",
        ),
        (
            {**JOB, "apiVersion": "x.io/v1", "kind": "Foo"},
            'no matches for kind "Foo" in version "x.io/v1"',
        ),
    ],
)
def test_an_owner_that_cannot_say_its_number_is_an_error(owner: Object, why: str) -> None:
    with pytest.raises(disruption_budgets.Uncountable) as error:
        disruption_budgets.tally(budget(maxUnavailable=1), [well("u", owner=owner)], now=at(0))
    assert str(error.value) == why


def test_pods_of_jobs_have_a_budget_in_whole_numbers() -> None:
    assert (
        disruption_budgets.tally(budget(minAvailable=0), [well("u", owner=JOB)], now=at(0)).allowed
        == 1
    )


def granted(seconds: float, *pods: Pod) -> BudgetTally:
    """A pod was let go at 0; so many seconds later."""
    budget_ = budget({"pod-a": text(0)}, minAvailable=1)
    return disruption_budgets.tally(budget_, pods, now=at(seconds))


def test_a_pod_that_was_let_go_does_not_count_for_two_minutes() -> None:
    """behaviour C5.3"""
    tally = granted(119, *THREE)
    assert (tally.healthy, tally.disrupted) == (2, {"pod-a": text(0)})
    assert tally.recheck_at == at(120)
    assert not tally.not_deleted


def test_a_pod_that_was_let_go_and_stayed_counts_again() -> None:
    """behaviour C5.2"""
    tally = granted(121, *THREE)
    assert (tally.healthy, tally.disrupted, tally.recheck_at) == (3, {}, None)
    assert [each.metadata.name for each in tally.not_deleted] == ["pod-a"]


@pytest.mark.parametrize("pods", [[], [well("a", deleted=5)]], ids=["gone", "on its way"])
def test_a_pod_that_was_let_go_and_went_is_forgotten(pods: list[Pod]) -> None:
    assert granted(1, *pods).disrupted == {}


def marked(**more: Any) -> Pod:
    status = {"conditions": [{**condition("DisruptionTarget", since=10), "reason": "R"}]}
    return pod(**{**status, **more})


@cases(
    "of since",
    {
        "marked": (marked(), 10),
        "no mark": (pod(), None),
        "terminating": (marked(deleted=20), None),
        "over": (marked(phase="Failed"), None),
        "taken back": (marked(conditions=[condition("DisruptionTarget", "False", since=10)]), None),
        "a kubelet's": (
            marked(
                conditions=[
                    {**condition("DisruptionTarget", since=10), "reason": "TerminationByKubelet"}
                ]
            ),
            None,
        ),
    },
)
def test_since_when_a_pod_is_marked(of: Pod, since: float | None) -> None:
    """behaviour C5.1"""
    assert disruption_budgets.marked_since(of) == (None if since is None else at(since))


@pytest.mark.parametrize(
    ("selector", "printed"),
    [
        (None, "nil"),
        (
            {
                "matchLabels": {"b": "c", "a": "bare"},
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["bare", "z"]},
                    {"key": "q", "operator": "DoesNotExist"},
                ],
            },
            (
                "&LabelSelector{MatchLabels:map[string]string{a: bare,b: c,},"
                "MatchExpressions:[]LabelSelectorRequirement{"
                "LabelSelectorRequirement{Key:a,Operator:In,Values:[bare z],},"
                "LabelSelectorRequirement{Key:q,Operator:DoesNotExist,Values:[],},},}"
            ),
        ),
    ],
)
def test_a_selector_is_printed_as_go_does(selector: Object | None, printed: str) -> None:
    body = None if selector is None else msgspec.convert(selector, LabelSelector)
    assert disruption_budgets.selector_text(body) == printed
