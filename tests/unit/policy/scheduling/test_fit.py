# SPDX-License-Identifier: Apache-2.0
"""Whether a pod fits on a node, and the reasons if not, in the words of Kubernetes."""

from typing import Any

import pytest

from refloat.api.core import Taint
from refloat.base.rand import Rand
from refloat.controllers.scheduler.scheduler_cache import SchedulerCache
from refloat.policy.scheduling import fit
from tests.cases import cases
from tests.unit.policy.scheduling.objects import container, demand, node, place, pod

TAINT = Taint("k", "v", "NoSchedule")
PORT = {"containerPort": 1, "hostPort": 80, "protocol": "TCP"}


def with_port(**more: Any) -> dict[str, Any]:
    return {"containers": [container(ports=[{**PORT, **more}])]}


@cases(
    "node wanted want resolvable",
    {
        "nothing against it": ({}, {}, None, False),
        "all that it has": ({}, {"cpu": "4"}, None, False),
        "more than it has": ({}, {"cpu": "4001m"}, ["Insufficient cpu"], False),
        "no pods at all": ({"pods": 0}, {}, ["Too many pods"], True),
        "all reasons at once": (
            {"pods": 0},
            {"containers": [container(cpu="5", memory="9Gi")]},
            ["Too many pods", "Insufficient cpu", "Insufficient memory"],
            False,
        ),
        "a resource that it does not have": (
            {},
            {"containers": [container(**{"example.com/gpu": "1"})]},
            ["Insufficient example.com/gpu"],
            False,
        ),
        "a resource nobody asks for": ({"example.com/gpu": "1"}, {}, None, False),
        "cordoned comes before tainted": (
            {"unschedulable": True, "taints": (TAINT,)},
            {},
            ["node(s) were unschedulable"],
            False,
        ),
        "tainted comes before not selected": (
            {"taints": (TAINT,)},
            {"nodeSelector": {"a": "b"}},
            ["node(s) had untolerated taint(s)"],
            False,
        ),
        "NoExecute keeps new pods away too": (
            {"taints": (Taint("k", "v", "NoExecute"),)},
            {},
            ["node(s) had untolerated taint(s)"],
            False,
        ),
        "only asks": ({"taints": (Taint("k", "v", "PreferNoSchedule"),)}, {}, None, False),
        "all": ({"taints": (TAINT,)}, {"tolerations": [{"operator": "Exists"}]}, None, False),
        "cordoned, tolerated": (
            {"unschedulable": True},
            {"tolerations": [{"operator": "Exists"}]},
            None,
            False,
        ),
        "not selected comes before too small": (
            {},
            {"nodeSelector": {"a": "b"}, "cpu": "9"},
            ["node(s) didn't match Pod's node affinity/selector"],
            False,
        ),
        "is": ({"labels": {"a": "b"}}, {"nodeSelector": {"a": "b"}}, None, False),
    },
)
def test_an_empty_node_objects(
    node: dict[str, Any], wanted: dict[str, Any], want: list[str] | None, resolvable: bool
) -> None:
    objection = fit.objection(demand(**wanted), place(**node))
    assert objection == (None if want is None else fit.Objection(tuple(want), resolvable))


@cases(
    "held wanted want",
    {
        "what is left is enough": ({"cpu": "3"}, {"cpu": "1"}, None),
        "is not": ({"cpu": "3"}, {"cpu": "2"}, "Insufficient cpu"),
        "who asks for nothing fits always": ({"cpu": "3"}, {}, None),
        "the same port": (
            with_port(),
            with_port(),
            "node(s) didn't have free ports for the requested pod ports",
        ),
        "another protocol": (with_port(), with_port(protocol="UDP"), None),
        "another port": (with_port(), with_port(hostPort=81), None),
        "the port on all addresses": (
            with_port(),
            with_port(hostIP="10.0.0.1"),
            "node(s) didn't have free ports for the requested pod ports",
        ),
        "another address": (with_port(hostIP="10.0.0.2"), with_port(hostIP="10.0.0.1"), None),
    },
)
def test_a_node_with_a_pod_objects(
    held: dict[str, Any], wanted: dict[str, Any], want: str | None
) -> None:
    objection = fit.objection(demand(**wanted), place(pod("q", **held)))
    assert objection == (None if want is None else fit.Objection((want,), resolvable=True))


def test_a_pod_that_goes_gives_back_all_that_it_took() -> None:
    node_info = place()
    before = node_info.room.copy()
    other = pod("q", containers=[container(cpu="1", memory="5", ports=[PORT])])
    node_info.add("q", fit.Tenant(other, (("cpu", 1000), ("memory", 5)), (("0.0.0.0", "TCP", 80),)))
    assert node_info.room != before
    node_info.remove("q")
    assert node_info.room == before
    assert not node_info.priorities


@cases(
    "priority but fits",
    {
        "of lower priority than who was promised": (5, "", False),
        "of equal priority": (10, "", False),
        "of higher priority": (11, "", True),
        "who was promised it": (10, "uid-q", True),
    },
)
def test_a_promised_place_is_kept_from(priority: int, but: str, fits: bool) -> None:
    node_info = place()
    node_info.expected["uid-q"] = demand("q", cpu="3", priority=10)
    objection = fit.objection(demand(cpu="2", priority=priority), node_info, but)
    assert (objection is None) is fits


def test_however_much_a_pod_asks_for_the_share_that_is_taken_is_a_number() -> None:
    assert fit.share_taken(place(pod("huge", cpu="1e400"))) == pytest.approx((2**63 - 1) / 4000)


def test_the_message_counts_reasons_and_sorts_them_as_texts() -> None:
    tally = {"b": 2, "a": 10, "c": 0}
    assert fit.message(12, tally) == "0/12 nodes are available: 10 a, 2 b."


@cases(
    "on tolerations want",
    {
        "with the gate it is as NoSchedule": (True, [], fit.TAINTED),
        "whoever tolerates it may come": (True, [{"operator": "Exists"}], None),
        "without the gate it does nothing": (False, [], None),
    },
)
def test_force_eviction_keeps_pods_away(on: bool, tolerations: list[Any], want: Any) -> None:
    """KEP-36"""
    scheduler_cache = SchedulerCache(Rand(1), force_eviction=on)
    scheduler_cache.put_node(node(taints=(Taint("k", "", "ForceEviction"),)))
    assert fit.objection(demand(tolerations=tolerations), scheduler_cache.places["n"]) is want
