# SPDX-License-Identifier: Apache-2.0
"""The objections of a node to a pod that was bound to it (behaviour D6, D6.4, D6.5)."""

from typing import Any

from refloat.api.core import Pod, Taint
from refloat.policy.node import node_admission
from refloat.policy.scheduling.demand import Demands
from refloat.policy.scheduling.fit import Tenant
from refloat.runtime.node_info import NodeInfo
from tests.cases import cases
from tests.unit.policy.scheduling import objects

BEARING = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}
OTHER = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}


@cases(
    "pod conditions want",
    {
        "nothing is low": (objects.pod(), [], None),
        "memory is": (objects.pod(), ["MemoryPressure"], "[MemoryPressure]"),
        "it was promised something": (objects.pod(cpu="1"), ["MemoryPressure"], None),
        "it bears it": (objects.pod(tolerations=[BEARING]), ["MemoryPressure"], None),
        "it bears something else": (
            objects.pod(tolerations=[OTHER]),
            ["MemoryPressure"],
            "[MemoryPressure]",
        ),
        "disk is, which nobody bears": (
            objects.pod(cpu="1", tolerations=[OTHER]),
            ["DiskPressure"],
            "[DiskPressure]",
        ),
        "both are": (
            objects.pod(cpu="1"),
            ["MemoryPressure", "DiskPressure"],
            "[MemoryPressure DiskPressure]",
        ),
        "it is critical": (objects.pod(priority=2_000_000_000), ["DiskPressure"], None),
    },
)
def test_a_node_that_is_low(pod: Pod, conditions: list[str], want: str | None) -> None:
    """behaviour D6.5."""
    result = node_admission.under_pressure(pod, conditions)
    if want is None:
        assert result is None
        return
    assert result is not None
    assert (result.reason, result.text) == ("Evicted", f"The node had condition: {want}. ")
    assert result.message == f"Pod was rejected: The node had condition: {want}. "


def place(*tenants: Pod, **more: Any) -> NodeInfo:
    node_info = NodeInfo("n")
    node_info.describe(objects.node(**more))
    for each in tenants:
        of = Demands().of(each)
        node_info.add(each.metadata.uid, Tenant(each, of.needs, of.ports))
    return node_info


def port(number: int) -> list[dict[str, Any]]:
    return [objects.container(ports=[{"hostPort": number}])]


NO_EXECUTE = Taint(key="k", effect="NoExecute")
NO_SCHEDULE = Taint(key="k", effect="NoSchedule")


@cases(
    "pod there taints want",
    {
        "as much as there is": (objects.pod(cpu="4"), place(), (), []),
        "a little more": (objects.pod(cpu="4001m"), place(), (), ["OutOfcpu"]),
        "the number of pods comes first": (
            objects.pod("q", cpu="5"),
            place(objects.pod(), pods=1),
            (),
            ["OutOfpods", "OutOfcpu"],
        ),
        "a resource that the node never heard of": (
            objects.pod(containers=[objects.container(**{"example.com/a": "1"})]),
            place(),
            (),
            [],
        ),
        "one of which it has too little": (
            objects.pod(containers=[objects.container(**{"example.com/a": "2"})]),
            place(**{"example.com/a": "1"}),
            (),
            ["OutOfexample.com/a"],
        ),
        "resources come before labels": (
            objects.pod(cpu="5", nodeSelector={"a": "b"}),
            place(),
            (),
            ["OutOfcpu", "NodeAffinity"],
        ),
        "a port that is taken": (
            objects.pod("q", containers=port(80)),
            place(objects.pod(containers=port(80))),
            (),
            ["NodePorts"],
        ),
        "a taint for those there": (objects.pod(), place(), (NO_EXECUTE,), ["TaintToleration"]),
        "a taint for the scheduler": (objects.pod(), place(), (NO_SCHEDULE,), []),
    },
)
def test_objections(pod: Pod, there: NodeInfo, taints: tuple[Taint, ...], want: list[str]) -> None:
    objection = node_admission.objections(Demands().of(pod), there, taints)
    assert [each.rejection().reason for each in objection] == want


def test_a_critical_pod_is_only_hindered_by_what_pods_cannot_leave() -> None:
    pod = objects.pod("q", cpu="5", nodeSelector={"a": "b"})
    objection = node_admission.objections(Demands().of(pod), place())
    unfit, missing = node_admission.for_critical(objection)
    assert unfit == [node_admission.AFFINITY]
    assert missing == {"cpu": 1000}


def test_the_words_of_a_shutdown() -> None:
    """behaviour D6.4."""
    assert node_admission.SHUTTING_DOWN.reason == "NodeShutdown"
    assert node_admission.SHUTTING_DOWN.message == (
        "Pod was rejected: Pod was rejected as the node is shutting down."
    )


def test_the_words_of_a_taint() -> None:
    assert node_admission.TAINTS.rejection().text == (
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    )
