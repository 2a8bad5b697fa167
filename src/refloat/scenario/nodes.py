# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster, as a user changes them and waits for them."""

from refloat.api import conditions
from refloat.api.meta import Object
from refloat.scenario.cluster import NODES, ScenarioCluster
from refloat.scenario.namespace import PATIENCE_SECONDS, ScenarioNamespace

# The taint of a new node until the node controller has seen the node Ready.
_NEW = "node.kubernetes.io/not-ready"


class ScenarioNodes(ScenarioNamespace):
    """The nodes, by name."""

    def __init__(self, cluster: ScenarioCluster) -> None:
        super().__init__(cluster, "")

    def node(self, name: str) -> Object:
        """The node; empty before it has joined."""
        return self.objects.get(("nodes", name), {})

    def taints(self, name: str) -> list[str]:
        """The keys of a node's taints."""
        return [each["key"] for each in self.node(name).get("spec", {}).get("taints") or ()]

    def is_ready(self, name: str) -> bool:
        """Whether the node has joined and takes pods."""
        is_ready = conditions.is_true(conditions.of(self.node(name)), "Ready")
        return is_ready and _NEW not in self.taints(name)

    async def patch(self, name: str, **spec: object) -> Object:
        """Patch fields of a node's spec."""
        return await self.client.patch(NODES, name, {"spec": spec})

    async def wait_ready(self, name: str, seconds: float = PATIENCE_SECONDS) -> None:
        what = f"node {name} is not ready"
        await self.wait_until(lambda _: self.is_ready(name), what, seconds)

    async def wait_lost(self, name: str) -> None:
        """Wait until the cluster has noticed the silence of a node."""
        await self.wait_until(lambda _: not self.is_ready(name), f"node {name} is ready")

    async def wait_condition(self, name: str, condition: str) -> None:
        """Wait until a node has this condition."""
        await self.wait_until(
            lambda _: conditions.is_true(conditions.of(self.node(name)), condition),
            f"node {name} has no {condition}",
        )
