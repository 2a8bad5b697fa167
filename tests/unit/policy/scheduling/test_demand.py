# SPDX-License-Identifier: Apache-2.0
"""What a pod asks for, as Kubernetes adds it up."""

import weakref
from typing import Any

from refloat.policy.scheduling import demand
from refloat.policy.scheduling.demand import Demands
from tests.cases import cases
from tests.unit.policy.scheduling.objects import container, pod


@cases(
    "spec want",
    {
        "nothing": ({"containers": [container()]}, {}),
        "containers run at once": (
            {"containers": [container(cpu="100m", memory="1Gi"), container(cpu="1")]},
            {"cpu": 1100, "memory": 2**30},
        ),
        "init containers run before, one after the other": (
            {
                "containers": [container(cpu="1", memory="1")],
                "initContainers": [container(cpu="3"), container(cpu="2", memory="5")],
            },
            {"cpu": 3000, "memory": 5},
        ),
        "a sidecar runs beside the containers": (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(sidecar=True, cpu="2"), container(cpu="500m")],
            },
            {"cpu": 3000},
        ),
        "a sidecar runs beside the init containers after it": (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(sidecar=True, cpu="2"), container(cpu="4")],
            },
            {"cpu": 6000},
        ),
        "a sidecar does not run beside those before it": (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="4"), container(sidecar=True, cpu="2")],
            },
            {"cpu": 4000},
        ),
        "overhead comes on top": (
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "1"}},
            {"cpu": 1250, "memory": 1},
        ),
        "what the pod asks for as a whole, where it may": (
            {
                "containers": [container(cpu="1", memory="7", **{"example.com/gpu": "1"})],
                "resources": {"requests": {"cpu": "3", "example.com/gpu": "9"}},
                "overhead": {"cpu": "1"},
            },
            {"cpu": 4000, "memory": 7, "example.com/gpu": 1},
        ),
        "parts are added before they are rounded up": (
            {"containers": [container(cpu="0.0001"), container(cpu="0.0001", memory="1500m")]},
            {"cpu": 1, "memory": 2},
        ),
        "zero is nothing": ({"containers": [container(cpu="0", memory="0")]}, {}),
        "storage and huge pages": (
            {"containers": [container(**{"ephemeral-storage": "1k", "hugepages-2Mi": "4Mi"})]},
            {"ephemeral-storage": 1000, "hugepages-2Mi": 4 * 2**20},
        ),
        "no more than 64 bits hold": (
            {"containers": [container(cpu="1e400", memory="1e400"), container(cpu="1e4000")]},
            {"cpu": 2**63 - 1, "memory": 2**63 - 1},
        ),
    },
)
def test_a_pod_needs(spec: dict[str, Any], want: dict[str, int]) -> None:
    assert dict(demand.needs(pod(**spec))) == want


def test_needs_come_in_one_order() -> None:
    one = pod(containers=[container(**{"x.y/z": "1", "memory": "1", "cpu": "1", "a.b/c": "1"})])
    assert [name for name, _ in demand.needs(one)] == ["cpu", "memory", "a.b/c", "x.y/z"]


def test_ports_of_the_node_are_those_of_containers_and_sidecars() -> None:
    port = {"containerPort": 1, "hostPort": 80, "protocol": "TCP"}
    beside = {"containerPort": 1, "hostPort": 81, "hostIP": "10.0.0.1", "protocol": "UDP"}
    once = {"containerPort": 1, "hostPort": 82}
    new_pod = pod(
        containers=[container(ports=[port, {"containerPort": 5}])],
        initContainers=[container(sidecar=True, ports=[beside]), container(ports=[once])],
    )
    assert demand.ports(new_pod) == (("10.0.0.1", "UDP", 81), ("0.0.0.0", "TCP", 80))


def test_pods_that_ask_the_same_have_one_demand() -> None:
    demands = Demands()
    assert demands.of(pod("a", cpu="1")) is demands.of(pod("b", cpu="1000m"))


@cases(
    "other",
    {
        "requests": {"cpu": "2"},
        "priority": {"cpu": "1", "priority": 5},
        "selector": {"cpu": "1", "nodeSelector": {"a": "b"}},
        "tolerations": {"cpu": "1", "tolerations": [{"key": "k"}]},
        "affinity": {"cpu": "1", "affinity": {"nodeAffinity": {}}},
        "preemption": {"cpu": "1", "preemptionPolicy": "Never"},
    },
)
def test_pods_that_ask_for_something_else_have_not(other: dict[str, Any]) -> None:
    demands = Demands()
    assert demands.of(pod(cpu="1")) is not demands.of(pod(**other))


def test_a_demand_that_is_held_stays_the_one_however_many_others_there_were() -> None:
    demands = Demands()
    shared_demand = demands.of(pod(cpu="1"))
    for number in range(5000):
        demands.of(pod(cpu="1", nodeSelector={"a": str(number)}))
    assert demands.of(pod(cpu="1")) is shared_demand


def test_a_demand_that_nobody_holds_is_forgotten() -> None:
    demands = Demands()
    reference = weakref.ref(demands.of(pod(cpu="1")))
    assert reference() is None
