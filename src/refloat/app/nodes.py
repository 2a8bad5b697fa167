# SPDX-License-Identifier: Apache-2.0
"""Nodes on a cluster that runs elsewhere: simulated ones, over the wire.

What a node is and does is the agent's; here it only gets a client, a watch of
pods and its place in a process. The embedded cluster makes its simulated nodes
with the same `simulated`.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from refloat.agent.fleet import POD_INDEXES, Fleet, Member
from refloat.agent.node import NodeSettings
from refloat.agent.simulated import Past, SimulatedRuntime
from refloat.agent.usage import SimulatedUsage
from refloat.app import timings
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.base.rand import Rand
from refloat.client import kinds, kubeconfig
from refloat.client.contract import Selector
from refloat.client.http import HttpClient
from refloat.client.settings import Settings as ClientSettings
from refloat.policy.switches import Switches
from refloat.runtime.controller import Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Manager, Parts
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics

# What a simulated node offers; Kubernetes' own number of pods.
CAPACITY = {"cpu": "8", "ephemeral-storage": "100Gi", "memory": "32Gi", "pods": "110"}

# Pods that no node has yet concern no node.
_BOUND = Selector(fields="spec.nodeName!=")


def simulated(prefix: str, count: int, clock: Clock, like: NodeSettings) -> list[Member]:
    """So many nodes, named and counted from 0, each with a runtime of its own."""
    past = Past()
    return [
        _member(replace(like, name=f"{prefix}-{number}", capacity=CAPACITY), clock, past)
        for number in range(count)
    ]


def fenced(node: NodeSettings, seconds: int | None) -> NodeSettings:
    """A node on which pods that ask for it go on for so long; None: for as long as before."""
    return node if seconds is None else replace(node, self_fence_seconds=seconds)


def _member(settings: NodeSettings, clock: Clock, past: Past) -> Member:
    runtime = SimulatedRuntime(clock, past)
    return Member(settings, runtime, SimulatedUsage(runtime, settings.capacity))


@dataclass(frozen=True, slots=True)
class Settings:
    """Which nodes join which cluster."""

    kubeconfig: Path | None = None
    """The file that names the cluster; else KUBECONFIG, the pod's own identity, ~/.kube/config."""
    context: str = ""
    """The context in that file; else the current one."""
    prefix: str = "node"
    """What the nodes' names begin with."""
    simulated_nodes: int = 0
    """How many of them there are."""
    gates: Gates = field(default_factory=Gates)
    fast: bool = False
    """Whether they beat as a cluster with short waits expects (`timings`)."""
    self_fence_seconds: int | None = None
    """How long pods that ask for it go on without a renewal of the lease; else as `fast` says."""


class ClusterNodes:
    """One process of nodes on a cluster."""

    def __init__(self, settings: Settings, clock: Clock, rand: Rand) -> None:
        access = kubeconfig.find(settings.kubeconfig, context=settings.context)
        self.server = access.cluster.server
        # Each node would have a limit of its own; all of them together have none.
        how = ClientSettings(component="agent", field_manager="refloat-agent", qps=0)
        self._client = HttpClient(access, clock=clock, rand=rand, settings=how)
        registry = metrics.process_registry()
        node = fenced(timings.chosen(fast=settings.fast).node, settings.self_fence_seconds)
        pods = Informer(
            self._client,
            kinds.PODS,
            clock=clock,
            rand=rand,
            selector=_BOUND,
            indexes=POD_INDEXES,
        )
        fleet = Fleet(
            self._client,
            simulated(settings.prefix, settings.simulated_nodes, clock, node),
            pods,
            clock=clock,
            rand=rand,
            instruments=Instruments(ReconcileMetrics(registry), QueueMetrics(registry)),
            switches=Switches.of(settings.gates),
            force_eviction=settings.gates.enabled(TAINT_FORCE_EVICTION),
        )
        self._manager = Manager(Parts(informers=[pods], controllers=[fleet]), clock=clock)

    async def run(self) -> None:
        """Run until `stop`. The nodes' objects stay, as those of machines that go off."""
        try:
            await self._manager.run()
        finally:
            await self._client.close()

    def stop(self) -> None:
        self._manager.stop()
