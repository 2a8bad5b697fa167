# SPDX-License-Identifier: Apache-2.0
"""`PodDisruptionConditions` and its neighbours, on and off, in the whole cluster (KEPs 3329, 3939).

A controller that disrupts a pod adds a condition, if its own gate is on; in a
rollout some are on and others not yet.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from refloat.api import structs
from refloat.api.core import Pod
from refloat.app import controller_names
from refloat.base.gates import Gates
from refloat.client import kinds
from refloat.sim.cluster import ALL_CONTROLLERS, NAMESPACE, Cluster
from refloat.sim.journal import GONE
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

CONDITIONS = "PodDisruptionConditions"
FAILURE = "JobPodFailurePolicy"
REPLACEMENT = "JobPodReplacementPolicy"

Disrupt: TypeAlias = Callable[[Cluster, Pod], Awaitable[None]]

WHOLE_NODE = {
    "containers": [{"name": "main", "image": "work", "resources": {"requests": {"cpu": "8"}}}],
    "nodeSelector": {"kubernetes.io/hostname": "node-0"},
}


async def evict(c: Cluster, pod: Pod) -> None:
    await c.client.evict(pod.metadata.name, namespace=NAMESPACE)


async def taint(c: Cluster, pod: Pod) -> None:
    await c.taint(c.node_of(pod), {"key": "broken", "effect": "NoExecute"})


async def preempt(c: Cluster, _: Pod) -> None:
    await c.client.create(kinds.PRIORITY_CLASSES, builders.priority_class("urgent", value=1000))
    await c.submit("urgent", pod={**WHOLE_NODE, "priorityClassName": "urgent"})


async def orphan(c: Cluster, pod: Pod) -> None:
    c.fleet.fail(c.node_of(pod), "crash")
    await c.client.delete(kinds.NODES, c.node_of(pod))


# How, the reason that it leaves, and whose gate that depends on.
DISRUPTIONS: dict[str, tuple[Disrupt, str, str]] = {
    "eviction": (evict, "EvictionByEvictionAPI", "server"),
    "taint": (taint, "DeletionByTaintManager", "controllers"),
    "preemption": (preempt, "PreemptionByScheduler", "controllers"),
    "orphan": (orphan, "DeletionByPodGC", "controllers"),
}


async def disrupted(c: Cluster, how: Disrupt) -> Pod:
    """A Job's pod, after it was disrupted and is gone."""
    await c.submit(pod=WHOLE_NODE)
    await c.until(0)
    pod = c.pods()[0]
    assert c.history(pod)[-1][1] == "Running ready"
    await how(c, pod)
    await c.until(70)
    assert c.history(pod)[-1][1] == GONE
    return pod


def last(c: Cluster, pod: Pod) -> Pod:
    """The pod in its newest version."""
    newest = c.journal.objects[pod.metadata.uid]
    assert isinstance(newest, Pod)
    return newest


def reasons(c: Cluster, pod: Pod) -> list[str]:
    """Who says that the pod is disrupted."""
    condition = structs.find(last(c, pod).status.conditions, "DisruptionTarget")
    return [condition.reason] if condition is not None else []


@pytest.mark.parametrize("in_controllers", [True, False], ids=["controllers on", "controllers off"])
@pytest.mark.parametrize("in_server", [True, False], ids=["server on", "server off"])
@pytest.mark.parametrize("name", DISRUPTIONS)
@virtual()
async def test_only_a_component_whose_gate_is_on_writes_the_condition(
    sim: Sim, name: str, in_server: bool, in_controllers: bool
) -> None:
    how, reason, whose = DISRUPTIONS[name]
    gates = Gates({CONDITIONS: in_controllers})
    async with Cluster(sim, gates=gates, server_gates=Gates({CONDITIONS: in_server})) as c:
        pod = await disrupted(c, how)
        is_on = in_server if whose == "server" else in_controllers
        assert reasons(c, pod) == ([reason] if is_on else [])
        assert c.job().status.failed == 1


@virtual()
async def test_controllers_of_two_versions_go_by_their_own_gates(sim: Sim) -> None:
    """As in a rollout: the scheduler is old, what watches over nodes is new."""
    old = replace(ALL_CONTROLLERS, controllers=(controller_names.SCHEDULER,), simulated_nodes=0)
    others = tuple(each for each in controller_names.KNOWN if each != controller_names.SCHEDULER)
    async with Cluster(sim, replace(ALL_CONTROLLERS, controllers=others)) as c:
        c.start(old, Gates({CONDITIONS: False}))
        await c.mark()
        preempted = await disrupted(c, preempt)
        assert reasons(c, preempted) == []
        urgent = c.pods("urgent")[0]
        await taint(c, urgent)
        await c.until(140)
        assert reasons(c, urgent) == ["DeletionByTaintManager"]


# What becomes of a pod whose node is deleted: the phase in which it goes, and the condition.
COLLECTED = [
    ({}, "Failed", ["DeletionByPodGC"]),
    ({REPLACEMENT: False}, "Failed", ["DeletionByPodGC"]),
    ({CONDITIONS: False}, "Failed", []),
    ({CONDITIONS: False, REPLACEMENT: False}, "Failed", []),  # JobPodFailurePolicy is on
    ({CONDITIONS: False, REPLACEMENT: False, FAILURE: False}, "Running", []),
]


@pytest.mark.parametrize(
    ("off", "want_phase", "want_reasons"),
    COLLECTED,
    ids=[" and ".join(off) + " off" if off else "all on" for off, _, _ in COLLECTED],
)
@virtual()
async def test_the_collector_of_pods_fails_them_by_its_gates(
    sim: Sim, off: dict[str, bool], want_phase: str, want_reasons: list[str]
) -> None:
    """KEP-3939, "Risks and Mitigations"; with all gates off an orphan goes unchanged."""
    async with Cluster(sim, gates=Gates(off)) as c:
        pod = await disrupted(c, orphan)
        assert last(c, pod).status.phase == want_phase
        assert reasons(c, pod) == want_reasons
