# SPDX-License-Identifier: Apache-2.0
"""The scheduler in virtual time, on nodes without agents.

Nothing runs the pods: a test writes when one starts or ends. Deleted pods end after
their grace.
"""

import contextlib
from collections import Counter
from typing import Any

from refloat.api import structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.controllers import scheduler
from refloat.controllers.scheduler.settings import SchedulerSettings
from refloat.policy.scheduling import demand as demands
from refloat.runtime.informer import Change
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.controller_cluster import NAMESPACE, ControllerCluster

SETTINGS = SchedulerSettings(overlook_not_ready=True)


class SchedulerCluster(ControllerCluster):
    """A cluster whose scheduler runs when the block begins."""

    def __init__(
        self, sim: Sim, settings: SchedulerSettings = SETTINGS, gates: Gates | None = None
    ) -> None:
        super().__init__(sim, scheduler.build, settings=[settings])
        self.gates = gates
        self.most: Counter[str] = Counter()
        """The most cpu, in thousandths, that pods ever had on each node."""
        self.seen: list[str] = []
        """What became of deleted pods: `name condition` or `name deletion`, in order."""
        self._tasks = Tasks()
        self._pods: dict[str, Pod] = {}

    async def open(self) -> None:
        await self.watch(kinds.PODS, self._pod_changed)
        await self.start()

    async def close(self) -> None:
        await super().close()
        await self._tasks.close()

    async def settle(self, seconds: float = 1.0) -> None:
        await self.sim.clock.sleep(seconds)

    async def node(
        self,
        name: str,
        *,
        cpu: str = "4",
        pods: int = 110,
        ready: bool = True,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        body = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
        await self.client.create(kinds.NODES, body)
        status = {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": str(pods)},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }
        await self.client.patch(kinds.NODES, name, {"status": status}, subresource="status")

    async def classes(self, **values: int) -> None:
        for name, value in values.items():
            await self.client.create(
                kinds.PRIORITY_CLASSES, builders.priority_class(name, value=value)
            )

    async def pod(
        self,
        name: str = "p",
        *,
        cpu: str | None = None,
        priority: str = "",
        grace: int = 1,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Pod:
        main: Object = {"name": "main", "image": "busybox"}
        if cpu is not None:
            main["resources"] = {"requests": {"cpu": cpu}}
        spec = {"containers": [main], "terminationGracePeriodSeconds": grace, **spec}
        if priority:
            spec["priorityClassName"] = priority
        body = builders.pod(name, spec=spec, labels=labels or {})
        return await self.client.create(kinds.PODS, body, namespace=NAMESPACE)

    async def condition(self, name: str = "p", kind: str = "PodScheduled") -> Object | None:
        conditions = (await self.raw("pods", name))["status"].get("conditions") or []
        return next((each for each in conditions if each["type"] == kind), None)

    async def why(self, name: str = "p") -> str:
        condition = await self.condition(name)
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        return str(condition["message"])

    async def places(self) -> dict[str, str]:
        pages = self.client.list(kinds.PODS, namespace=NAMESPACE)
        return {pod.metadata.name: pod.spec.node_name async for page in pages for pod in page.items}

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Note what becomes of deleted pods, and end them after their grace."""
        pod, name = change.current, change.current.metadata.name
        before = self._pods.pop(pod.metadata.uid, None)
        if change.new is None:
            return
        self._pods[pod.metadata.uid] = pod
        if _is_marked(pod) and not (before is not None and _is_marked(before)):
            self.seen.append(f"{name} condition")
        if pod.is_terminating and not (before is not None and before.is_terminating):
            self.seen.append(f"{name} deletion")
            self._tasks.spawn(self._end(pod), name=f"end {name}")
        node = pod.spec.node_name
        cpu = sum(
            dict(demands.needs(each)).get("cpu", 0)
            for each in self._pods.values()
            if each.spec.node_name == node and not each.is_terminal
        )
        self.most[node] = max(self.most[node], cpu)

    async def _end(self, pod: Pod) -> None:
        await self.settle(pod.metadata.deletion_grace_period_seconds or 0)
        options = DeleteOptions(grace_seconds=0, uid=pod.metadata.uid)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self.client.delete(
                kinds.PODS, pod.metadata.name, namespace=NAMESPACE, options=options
            )


def _is_marked(pod: Pod) -> bool:
    return structs.find(pod.status.conditions, "DisruptionTarget") is not None


async def until(cluster: SchedulerCluster, check: Any, *, within: float = 300) -> None:
    """Wait until an async check holds; looks every half second."""
    deadline = cluster.sim.clock.monotonic() + within
    while not await check():
        assert cluster.sim.clock.monotonic() < deadline, await cluster.places()
        await cluster.settle(0.5)
