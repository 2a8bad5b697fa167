# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec

from refloat.api.core import Node, Pod
from refloat.explain import node as nodes
from refloat.explain.account import Point
from refloat.explain.actors import Outlook
from refloat.explain.surroundings import Surroundings
from refloat.policy import zombie
from refloat.policy.force_eviction import PROGRESS
from tests.unit.explain.test_pod import LOST, NONE, configuration, node, stuck
from tests.unit.policy.made import at, text

RULE = {"taintNodeOutOfService": {"unreachableNodeTimeout": "10m"}}


def told(of: Node, about: str, *there: Pod, **around: Any) -> list[str]:
    defaults: dict[str, Any] = {"now": at(110), "pods": there, "recovery": Outlook(configuration())}
    account = nodes.explain(of, Surroundings(**(defaults | around)))
    return [point.text for point in account.points if point.about == about]


def named(name: str) -> Pod:
    return stuck(name=name)


def test_each_stuck_pod_is_told_with_its_fate() -> None:
    (said,) = told(LOST, "pod", stuck())
    assert said.startswith("ml/train-0: it will be made to fail at")
    assert told(LOST, "pods", stuck()) == ["1 Terminating"]


def test_many_are_counted() -> None:
    said = told(LOST, "pod", *(named(f"p{i}") for i in range(25)))
    assert len(said) == nodes.MAX_PODS + 1
    assert said[-1] == "and 5 more that are being deleted"


def test_a_rule_for_nodes_is_told_with_its_time() -> None:
    said = told(LOST, "out of service", stuck(), recovery=Outlook(configuration(rules=[RULE])))
    want = f"it will be tainted node.kubernetes.io/out-of-service at {text(600)}"
    assert said == [f"{want} unless it comes back"]


def test_the_pod_that_keeps_a_node_in_service_is_named() -> None:
    other = msgspec.convert(
        {
            "metadata": {"name": "db", "namespace": "prod"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        },
        Pod,
    )
    said = told(
        LOST, "out of service", stuck(), other, recovery=Outlook(configuration(rules=[RULE]))
    )
    assert said == ["not every pod on it may be ended by force: prod/db"]


def test_nothing_is_said_of_rules_that_are_not_there() -> None:
    assert told(LOST, "out of service", stuck()) == []


def test_health_says_who_lives() -> None:
    assert nodes.health(node(ready="True"), at(10)).startswith("ready since")
    assert nodes.health(node(ready="False"), at(10)).startswith("not ready, but its kubelet lives")
    assert nodes.health(LOST, at(10)).startswith("unreachable since")
    assert nodes.health(Node(), at(10)) == "nothing is known of it yet"


def test_without_a_refloat_that_is_said() -> None:
    assert told(LOST, "recovery", recovery=NONE) == [NONE.text]


def test_a_living_node_ends_its_pods_itself() -> None:
    (said,) = told(node(ready="True"), "pod", stuck())
    assert said == f"ml/train-0: {zombie.Ignore(zombie.Reason.NODE_REACHABLE).text}"


def evicted(progress: str, *taints: dict[str, str]) -> Node:
    annotations = {PROGRESS: progress} if progress else {}
    body = {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"taints": [*taints]}}
    return msgspec.convert(body, Node)


WISH = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
BEGUN = f'{{"step": "Evicting", "started": "{text(100)}"}}'


def test_force_eviction_is_told_with_the_step_that_it_is_at() -> None:
    runs = msgspec.convert({"metadata": {"name": "p"}, "status": {"phase": "Running"}}, Pod)
    cases = [
        (LOST, []),
        (evicted("", WISH), ["a taint says that it is down; awaited: its Ready condition must"]),
        (evicted('{"step": "VolumesCleared"}', WISH), ["its volumes are cleared; its lease is"]),
        (evicted(BEGUN, WISH), [f"since {text(100)} its pods are evicted; 1 are left"]),
        (evicted(BEGUN), ["the taint that asked for it is gone"]),
    ]
    for seen, want in cases:
        said = told(seen, "force eviction", runs)
        assert len(said) == len(want)
        assert all(one.startswith(other) for one, other in zip(said, want, strict=True))


def test_a_force_eviction_that_no_process_carries_out_is_told_so() -> None:
    assert told(evicted("", WISH), "but", force_eviction=NONE) == [NONE.text]
    actor = Point("actor", "manager m1 leads")
    acting = Outlook(configuration(), points=(actor,))
    assert told(evicted("", WISH), "but", force_eviction=acting) == []
    assert told(evicted("", WISH), "actor", force_eviction=acting) == [actor.text]
