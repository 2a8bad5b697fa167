# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes that join a cluster over the wire.

`refloat.agent` implements the nodes; this module gives them a client, a watch of
pods and a process. The embedded cluster makes its simulated nodes with the same
function `simulated`.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from refloat.agent.fleet import POD_INDEXES, Fleet, Member
from refloat.agent.node import NodeSettings
from refloat.agent.simulated import PodHistory, SimulatedRuntime
from refloat.agent.usage import SimulatedUsage
from refloat.app import timings
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.base.rand import Rand
from refloat.client import kinds, kubeconfig
from refloat.client.contract import Selector
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from refloat.policy.job.job_gates import JobGates
from refloat.runtime.controller import Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Manager, Parts
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics

# The capacity of a simulated node, with Kubernetes' own number of pods.
CAPACITY = {"cpu": "8", "ephemeral-storage": "100Gi", "memory": "32Gi", "pods": "110"}

# Pods without a node concern no node.
_BOUND = Selector(fields="spec.nodeName!=")


def simulated(prefix: str, count: int, clock: Clock, like: NodeSettings) -> list[Member]:
    """So many nodes, named and counted from 0, each with a runtime of its own."""
    past = PodHistory()
    return [
        _member(replace(like, name=f"{prefix}-{number}", capacity=CAPACITY), clock, past)
        for number in range(count)
    ]


def fenced(node: NodeSettings, seconds: int | None) -> NodeSettings:
    """The node with this self-fence time; None leaves the node unchanged."""
    return node if seconds is None else replace(node, self_fence_seconds=seconds)


def _member(settings: NodeSettings, clock: Clock, past: PodHistory) -> Member:
    runtime = SimulatedRuntime(clock, past)
    return Member(settings, runtime, SimulatedUsage(runtime, settings.capacity))


@dataclass(frozen=True, slots=True)
class ClusterNodesSettings:
    """The nodes and the cluster that they join."""

    kubeconfig: Path | None = None
    """The file that names the cluster; else KUBECONFIG, the pod's own identity, ~/.kube/config."""
    context: str = ""
    """The context in that file; else the current one."""
    prefix: str = "node"
    """The start of the nodes' names."""
    simulated_nodes: int = 0
    """The number of nodes."""
    gates: Gates = field(default_factory=Gates)
    fast: bool = False
    """Whether heartbeats are as fast as a cluster with short waits expects (`timings`)."""
    self_fence_seconds: int | None = None
    """How long pods with self-fencing go on without a renewal of the lease; else as with `fast`."""


class ClusterNodes:
    """One process of nodes on a cluster."""

    def __init__(self, settings: ClusterNodesSettings, clock: Clock, rand: Rand) -> None:
        access = kubeconfig.find(settings.kubeconfig, context=settings.context)
        self.server = access.cluster.server
        # On real nodes each kubelet has a limit of its own, so the nodes together have none.
        how = ClientSettings(component="agent", field_manager="refloat-agent", qps=0)
        self._client = HttpClient(access, clock=clock, rand=rand, settings=how)
        registry = metrics.process_registry()
        node = fenced(timings.select(fast=settings.fast).node, settings.self_fence_seconds)
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
            job_gates=JobGates.of(settings.gates),
            force_eviction=settings.gates.enabled(TAINT_FORCE_EVICTION),
        )
        self._manager = Manager(Parts(informers=[pods], controllers=[fleet]), clock=clock)

    async def run(self) -> None:
        """Run until `stop`. The Node objects stay, as for machines that go off."""
        try:
            await self._manager.run()
        finally:
            await self._client.close()

    def stop(self) -> None:
        self._manager.stop()
