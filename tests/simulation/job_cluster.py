# SPDX-License-Identifier: Apache-2.0
"""The Job controller and a kubelet that runs pods as a script says, in virtual time.

The script says what the nth pod of a Job or index does.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.job import controller as job_controller
from refloat.controllers.job.controller import JobReconciler
from refloat.controllers.job.settings import JobSettings
from refloat.controllers.job.sync import JobContext
from refloat.policy.job import job_conditions, pod_state
from refloat.runtime.controller import Controller
from refloat.sim.faulty_client import FaultyClient
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.controller_cluster import NAMESPACE, ControllerCluster


@dataclass(frozen=True, slots=True)
class Run:
    """What becomes of a pod."""

    seconds: float = 5.0
    exit_code: int = 0
    stop_seconds: float = 2.0
    """How long the pod takes to end when deleted."""

    stop_code: int = 143


FOREVER = Run(seconds=1e9)
OK = Run()
FAILS = Run(exit_code=1)

Script: TypeAlias = Callable[[Pod, int], Run]
"""What the nth pod (from 0) of a Job or index does."""


def in_turn(*runs: Run) -> Script:
    """The nth pod does the nth thing; all others the last."""
    return lambda _, number: runs[min(number, len(runs) - 1)]


ALL_END_WELL = in_turn(OK)


def by_index(**runs: Run) -> Script:
    """By completion index, `i0=...`; all others end well."""
    return lambda pod, _: runs.get(f"i{pod_state.completion_index(pod)}", OK)


class JobCluster(ControllerCluster):
    """The Job controller and a kubelet; both run when the block begins."""

    def __init__(
        self, sim: Sim, script: Script = ALL_END_WELL, settings: JobSettings | None = None
    ) -> None:
        super().__init__(sim, job_controller.build, settings=[settings or JobSettings()])
        self.kubelet = Kubelet(self, script)
        self._tasks = Tasks()

    async def open(self) -> None:
        self.kubelet.start()
        await self.start()

    async def close(self) -> None:
        await self._tasks.close()
        await super().close()
        await self.kubelet.close()

    @property
    def context(self) -> JobContext:
        """Of the Job controller."""
        (jobs, _) = self.workers
        assert isinstance(jobs, Controller)
        assert isinstance(jobs._reconciler, JobReconciler)
        return jobs._reconciler._context

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the test."""
        self._tasks.spawn(work, name="beside")

    async def restart_when_dead(self, client: FaultyClient) -> None:
        await client.died.wait()
        await self.restart()

    async def switch(self, gates: Gates, *, server: Gates | None = None) -> None:
        """Restart server and controller with these gates, or the server with others."""
        self.server.use(gates if server is None else server)
        self.gates = gates
        await self.restart()

    async def submit(
        self,
        name: str = "job",
        template: Object | None = None,
        labels: Object | None = None,
        **spec: Any,
    ) -> Job:
        body = builders.job(
            name, spec=spec, pod_spec=template, pod_metadata={"labels": labels} if labels else None
        )
        return await self.client.create(kinds.JOBS, body, namespace=NAMESPACE)

    async def change(self, name: str = "job", **spec: Any) -> None:
        await self.client.patch(kinds.JOBS, name, {"spec": spec}, namespace=NAMESPACE)

    async def job(self, name: str = "job") -> Job:
        return await self.client.get(kinds.JOBS, name, namespace=NAMESPACE)

    async def pods(self) -> list[Pod]:
        pages = self.client.list(kinds.PODS, namespace=NAMESPACE)
        return [pod async for page in pages for pod in page.items]

    async def finished(self, name: str = "job", *, within: float = 20_000) -> Job:
        """The Job when it has ended; reads every half second."""
        deadline = self.sim.clock.monotonic() + within
        while True:
            job = await self.job(name)
            if job_conditions.is_finished(job.status.conditions):
                return job
            assert self.sim.clock.monotonic() < deadline, f"not over: {job.status}"
            await self.sleep(0.5)


class Kubelet:
    """Binds pods, runs them by the script, and ends them when they are deleted."""

    def __init__(self, cluster: JobCluster, script: Script) -> None:
        self._cluster = cluster
        self._script = script
        self._tasks = Tasks()
        self._numbers: Counter[object] = Counter()
        self._deleted: dict[str, asyncio.Event] = {}
        self.created: list[Pod] = []
        """All pods there ever were, in order."""
        self.created_at: list[float] = []
        self.done: set[str] = set()
        """The uids of those that ended well."""

    def start(self) -> None:
        self._tasks.spawn(self._follow(), name="kubelet")

    async def close(self) -> None:
        await self._tasks.close()

    async def restarted(self, pod: Pod, times_restarted: int) -> None:
        """The kubelet restarted the container so often in all."""
        state = {"running": {"startedAt": self._now()}}
        await self._status(pod, "Running", state, ready=True, restarts=times_restarted)

    def ends_when_deleted(self, pod: Pod) -> Callable[[Request], Awaitable[None]]:
        """Ends the pod with code 0 directly before a request to delete it."""

        async def before(request: Request) -> None:
            if request.method == "DELETE" and pod.metadata.uid not in self.done:
                await self._end(pod, 0)

        return before

    async def _follow(self) -> None:
        watch = self._cluster.client.watch(kinds.PODS, initial_events=True)
        try:
            async for event in watch:
                if event.object is not None and event.type != "DELETED":
                    self._saw(event.object)
        finally:
            await watch.aclose()

    def _saw(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid not in self._deleted:
            self._deleted[uid] = asyncio.Event()
            self.created.append(pod)
            self.created_at.append(self._cluster.seconds)
            owner = pod.metadata.controller
            group = (owner and owner.uid, pod_state.completion_index(pod))
            run = self._script(pod, self._numbers[group])
            self._numbers[group] += 1
            self._tasks.spawn(self._run(pod, run), name=pod.metadata.name)
        if pod.is_terminating:
            self._deleted[uid].set()

    async def _run(self, pod: Pod, run: Run) -> None:
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # gone meanwhile
            await self._live(pod, run)

    async def _live(self, pod: Pod, run: Run) -> None:
        cluster, meta = self._cluster, pod.metadata
        deleted = self._deleted[meta.uid]
        await cluster.client.bind(meta.name, "node-1", namespace=NAMESPACE, uid=meta.uid)
        await self._status(pod, "Running", {"running": {"startedAt": self._now()}}, ready=True)
        try:
            async with cluster.sim.clock.timeout(run.seconds):
                await deleted.wait()
            await cluster.sleep(run.stop_seconds)
            await self._end(pod, run.stop_code)
        except TimeoutError:
            await self._end(pod, run.exit_code)
            await deleted.wait()
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        await cluster.client.delete(kinds.PODS, meta.name, namespace=NAMESPACE, options=options)

    async def _end(self, pod: Pod, code: int) -> None:
        if code == 0:
            self.done.add(pod.metadata.uid)
        now = self._now()
        state = {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}}
        await self._status(pod, "Failed" if code else "Succeeded", state, ready=False)

    async def _status(
        self, pod: Pod, phase: str, state: Object, *, ready: bool, restarts: int = 0
    ) -> None:
        container = {
            "name": "main",
            "image": "busybox:1",
            "imageID": "",
            "ready": ready,
            "restartCount": restarts,
            "state": state,
        }
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        status = {"phase": phase, "conditions": [condition], "containerStatuses": [container]}
        await self._cluster.client.patch(
            kinds.PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": status},
            patch_type="strategic",
            namespace=NAMESPACE,
            subresource="status",
        )

    def _now(self) -> str:
        return times.format_time(self._cluster.sim.clock.now())
