# SPDX-License-Identifier: Apache-2.0
"""Whether a node takes a pod, and the reasons if it does not, in the words of Kubernetes."""

from typing import Any

import pytest

from refloat.api.core import Taint
from refloat.base.rand import Rand
from refloat.policy import fit
from refloat.policy.cluster import Cluster
from tests.unit.policy.scheduling import container, demand, node, place, pod

TAINT = Taint("k", "v", "NoSchedule")
PORT = {"containerPort": 1, "hostPort": 80, "protocol": "TCP"}


def with_port(**more: Any) -> dict[str, Any]:
    return {"containers": [container(ports=[{**PORT, **more}])]}


@pytest.mark.parametrize(
    ("node", "wanted", "want", "resolvable"),
    [
        pytest.param({}, {}, None, False, id="nothing against it"),
        pytest.param({}, {"cpu": "4"}, None, False, id="all that it has"),
        pytest.param({}, {"cpu": "4001m"}, ["Insufficient cpu"], False, id="more than it has"),
        pytest.param({"pods": 0}, {}, ["Too many pods"], True, id="no pods at all"),
        pytest.param(
            {"pods": 0},
            {"containers": [container(cpu="5", memory="9Gi")]},
            ["Too many pods", "Insufficient cpu", "Insufficient memory"],
            False,
            id="all reasons at once",
        ),
        pytest.param(
            {},
            {"containers": [container(**{"example.com/gpu": "1"})]},
            ["Insufficient example.com/gpu"],
            False,
            id="a resource that it does not have",
        ),
        pytest.param({"example.com/gpu": "1"}, {}, None, False, id="a resource nobody asks for"),
        pytest.param(
            {"unschedulable": True, "taints": (TAINT,)},
            {},
            ["node(s) were unschedulable"],
            False,
            id="cordoned comes before tainted",
        ),
        pytest.param(
            {"taints": (TAINT,)},
            {"nodeSelector": {"a": "b"}},
            ["node(s) had untolerated taint(s)"],
            False,
            id="tainted comes before not selected",
        ),
        pytest.param(
            {"taints": (Taint("k", "v", "NoExecute"),)},
            {},
            ["node(s) had untolerated taint(s)"],
            False,
            id="NoExecute keeps new pods away too",
        ),
        pytest.param(
            {"taints": (Taint("k", "v", "PreferNoSchedule"),)}, {}, None, False, id="only asks"
        ),
        pytest.param(
            {"taints": (TAINT,)}, {"tolerations": [{"operator": "Exists"}]}, None, False, id="all"
        ),
        pytest.param(
            {"unschedulable": True},
            {"tolerations": [{"operator": "Exists"}]},
            None,
            False,
            id="cordoned, tolerated",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"a": "b"}, "cpu": "9"},
            ["node(s) didn't match Pod's node affinity/selector"],
            False,
            id="not selected comes before too small",
        ),
        pytest.param({"labels": {"a": "b"}}, {"nodeSelector": {"a": "b"}}, None, False, id="is"),
    ],
)
def test_an_empty_node_objects(
    node: dict[str, Any], wanted: dict[str, Any], want: list[str] | None, resolvable: bool
) -> None:
    found = fit.objection(demand(**wanted), place(**node))
    assert found == (None if want is None else fit.Objection(tuple(want), resolvable))


@pytest.mark.parametrize(
    ("held", "wanted", "want"),
    [
        pytest.param({"cpu": "3"}, {"cpu": "1"}, None, id="what is left is enough"),
        pytest.param({"cpu": "3"}, {"cpu": "2"}, "Insufficient cpu", id="is not"),
        pytest.param({"cpu": "3"}, {}, None, id="who asks for nothing fits always"),
        pytest.param(
            with_port(),
            with_port(),
            "node(s) didn't have free ports for the requested pod ports",
            id="the same port",
        ),
        pytest.param(with_port(), with_port(protocol="UDP"), None, id="another protocol"),
        pytest.param(with_port(), with_port(hostPort=81), None, id="another port"),
        pytest.param(
            with_port(),
            with_port(hostIP="10.0.0.1"),
            "node(s) didn't have free ports for the requested pod ports",
            id="the port on all addresses",
        ),
        pytest.param(
            with_port(hostIP="10.0.0.2"), with_port(hostIP="10.0.0.1"), None, id="another address"
        ),
    ],
)
def test_a_node_with_a_pod_objects(
    held: dict[str, Any], wanted: dict[str, Any], want: str | None
) -> None:
    found = fit.objection(demand(**wanted), place(pod("q", **held)))
    assert found == (None if want is None else fit.Objection((want,), resolvable=True))


def test_a_pod_that_goes_gives_back_all_that_it_took() -> None:
    made = place()
    before = made.room.copy()
    other = pod("q", containers=[container(cpu="1", memory="5", ports=[PORT])])
    made.add("q", fit.Tenant(other, (("cpu", 1000), ("memory", 5)), (("0.0.0.0", "TCP", 80),)))
    assert made.room != before
    made.remove("q")
    assert made.room == before
    assert not made.priorities


@pytest.mark.parametrize(
    ("priority", "but", "fits"),
    [
        pytest.param(5, "", False, id="of lower priority than who was promised"),
        pytest.param(10, "", False, id="of equal priority"),
        pytest.param(11, "", True, id="of higher priority"),
        pytest.param(10, "uid-q", True, id="who was promised it"),
    ],
)
def test_a_promised_place_is_kept_from(priority: int, but: str, fits: bool) -> None:
    made = place()
    made.expected["uid-q"] = demand("q", cpu="3", priority=10)
    found = fit.objection(demand(cpu="2", priority=priority), made, but)
    assert (found is None) is fits


def test_however_much_a_pod_asks_for_the_share_that_is_taken_is_a_number() -> None:
    assert fit.share_taken(place(pod("huge", cpu="1e400"))) == pytest.approx((2**63 - 1) / 4000)


def test_the_message_counts_reasons_and_sorts_them_as_texts() -> None:
    tally = {"b": 2, "a": 10, "c": 0}
    assert fit.message(12, tally) == "0/12 nodes are available: 10 a, 2 b."


@pytest.mark.parametrize(
    ("on", "tolerations", "want"),
    [
        pytest.param(True, [], fit.TAINTED, id="with the gate it is as NoSchedule"),
        pytest.param(True, [{"operator": "Exists"}], None, id="whoever tolerates it may come"),
        pytest.param(False, [], None, id="without the gate it does nothing"),
    ],
)
def test_force_eviction_keeps_pods_away(on: bool, tolerations: list[Any], want: Any) -> None:
    """KEP-36"""
    made = Cluster(Rand(1), force_eviction=on)
    made.put_node(node(taints=(Taint("k", "", "ForceEviction"),)))
    assert fit.objection(demand(tolerations=tolerations), made.places["n"]) is want
