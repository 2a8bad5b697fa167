# SPDX-License-Identifier: Apache-2.0
"""What a node objects to a pod that was bound to it (behaviour D6, D6.4, D6.5)."""

from typing import Any

import pytest

from refloat.api.core import Pod, Taint
from refloat.policy import node_admission
from refloat.policy.demand import Demands
from refloat.policy.fit import Place, Tenant
from tests.unit.policy import scheduling

BEARING = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}
OTHER = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}


@pytest.mark.parametrize(
    ("pod", "conditions", "want"),
    [
        pytest.param(scheduling.pod(), [], None, id="nothing is low"),
        pytest.param(scheduling.pod(), ["MemoryPressure"], "[MemoryPressure]", id="memory is"),
        pytest.param(
            scheduling.pod(cpu="1"), ["MemoryPressure"], None, id="it was promised something"
        ),
        pytest.param(
            scheduling.pod(tolerations=[BEARING]), ["MemoryPressure"], None, id="it bears it"
        ),
        pytest.param(
            scheduling.pod(tolerations=[OTHER]),
            ["MemoryPressure"],
            "[MemoryPressure]",
            id="it bears something else",
        ),
        pytest.param(
            scheduling.pod(cpu="1", tolerations=[OTHER]),
            ["DiskPressure"],
            "[DiskPressure]",
            id="disk is, which nobody bears",
        ),
        pytest.param(
            scheduling.pod(cpu="1"),
            ["MemoryPressure", "DiskPressure"],
            "[MemoryPressure DiskPressure]",
            id="both are",
        ),
        pytest.param(
            scheduling.pod(priority=2_000_000_000), ["DiskPressure"], None, id="it is critical"
        ),
    ],
)
def test_a_node_that_is_low(pod: Pod, conditions: list[str], want: str | None) -> None:
    """behaviour D6.5."""
    found = node_admission.under_pressure(pod, conditions)
    if want is None:
        assert found is None
        return
    assert found is not None
    assert (found.reason, found.text) == ("Evicted", f"The node had condition: {want}. ")
    assert found.message == f"Pod was rejected: The node had condition: {want}. "


def place(*tenants: Pod, **more: Any) -> Place:
    made = Place("n")
    made.describe(scheduling.node(**more))
    for each in tenants:
        of = Demands().of(each)
        made.add(each.metadata.uid, Tenant(each, of.needs, of.ports))
    return made


def port(number: int) -> list[dict[str, Any]]:
    return [scheduling.container(ports=[{"hostPort": number}])]


NO_EXECUTE = Taint(key="k", effect="NoExecute")
NO_SCHEDULE = Taint(key="k", effect="NoSchedule")


@pytest.mark.parametrize(
    ("pod", "there", "taints", "want"),
    [
        pytest.param(scheduling.pod(cpu="4"), place(), (), [], id="as much as there is"),
        pytest.param(scheduling.pod(cpu="4001m"), place(), (), ["OutOfcpu"], id="a little more"),
        pytest.param(
            scheduling.pod("q", cpu="5"),
            place(scheduling.pod(), pods=1),
            (),
            ["OutOfpods", "OutOfcpu"],
            id="the number of pods comes first",
        ),
        pytest.param(
            scheduling.pod(containers=[scheduling.container(**{"example.com/a": "1"})]),
            place(),
            (),
            [],
            id="a resource that the node never heard of",
        ),
        pytest.param(
            scheduling.pod(containers=[scheduling.container(**{"example.com/a": "2"})]),
            place(**{"example.com/a": "1"}),
            (),
            ["OutOfexample.com/a"],
            id="one of which it has too little",
        ),
        pytest.param(
            scheduling.pod(cpu="5", nodeSelector={"a": "b"}),
            place(),
            (),
            ["OutOfcpu", "NodeAffinity"],
            id="resources come before labels",
        ),
        pytest.param(
            scheduling.pod("q", containers=port(80)),
            place(scheduling.pod(containers=port(80))),
            (),
            ["NodePorts"],
            id="a port that is taken",
        ),
        pytest.param(
            scheduling.pod(),
            place(),
            (NO_EXECUTE,),
            ["TaintToleration"],
            id="a taint for those there",
        ),
        pytest.param(scheduling.pod(), place(), (NO_SCHEDULE,), [], id="a taint for the scheduler"),
    ],
)
def test_objections(pod: Pod, there: Place, taints: tuple[Taint, ...], want: list[str]) -> None:
    found = node_admission.objections(Demands().of(pod), there, taints)
    assert [each.rejection().reason for each in found] == want


def test_a_critical_pod_is_only_hindered_by_what_pods_cannot_leave() -> None:
    pod = scheduling.pod("q", cpu="5", nodeSelector={"a": "b"})
    found = node_admission.objections(Demands().of(pod), place())
    unfit, missing = node_admission.for_critical(found)
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
