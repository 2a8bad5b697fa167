# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time with the real API server, the Job controller and a kubelet by script.

The controller stands on its own client, so that it can be killed at any of
its writes and started anew; the kubelet does what the script says for the nth
pod of a Job or index.
"""

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.apiserver.inprocess import InProcess
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions, Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.controllers.job.controller import JOB_INDEXES, POD_INDEXES, JobController
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.settings import Settings
from refloat.policy import job_conditions, pod_state
from refloat.policy.switches import Switches
from refloat.runtime.controller import Instruments
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.informer import Informer
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim.run import Sim
from tests.simulation import api_program

T = TypeVar("T")

NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Run:
    """What becomes of a pod."""

    seconds: float = 5.0
    exit_code: int = 0
    stop_seconds: float = 2.0
    """How long it takes to end when it is deleted."""

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


async def nothing(_: Request) -> None:
    pass


class MortalClient(LocalClient):
    """Dies before or after its nth write: then nothing ever comes back from it."""

    def __init__(self, api: InProcess) -> None:
        super().__init__(api, field_manager="job-controller")
        self.writes = 0
        self.dies_at: int | None = None
        self.dies_after = False
        self.dies_on: Callable[[Request], bool] = lambda _: False
        """Before which writes it dies, whatever their number."""
        self.before: Callable[[Request], Awaitable[None]] = nothing
        """What happens before each write."""
        self.before_read: Callable[[Request], Awaitable[None]] = nothing
        """What happens before each read."""
        self.loses: Container[int] = ()
        """The numbers of the writes whose answers are lost, though they happen."""
        self.answers: Callable[[Request, Callable[[], Awaitable[bytes]]], Awaitable[bytes]] | None
        self.answers = None
        """What becomes of a write, which it may make at any time, and of its answer."""
        self.refuses: Callable[[Request, int], errors.ClientError | None] = lambda *_: None
        """What a write comes back with instead of happening."""
        self.died = asyncio.Event()

    async def _call(self, request: Request) -> bytes:
        if self.died.is_set():
            await self._never()
        if request.method == "GET":
            await self.before_read(request)
            return await super()._call(request)
        self.writes += 1
        number = self.writes
        await self.before(request)
        if (number == self.dies_at and not self.dies_after) or self.dies_on(request):
            await self._die()
        if (refusal := self.refuses(request, number)) is not None:
            raise refusal
        call = functools.partial(super()._call, request)
        answer = await (call() if self.answers is None else self.answers(request, call))
        if number == self.dies_at:
            await self._die()
        if number in self.loses:
            raise errors.Unavailable("the answer was lost")
        return answer

    async def _die(self) -> None:
        self.died.set()
        await self._never()

    async def _never(self) -> None:
        await asyncio.get_running_loop().create_future()


class LaggingClient(LocalClient):
    """Whoever reads through it is behind, by up to so many seconds an event."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.api, field_manager="reader")
        self._world = world

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        return LaggingWatch(super()._open(request, kind), self._world)


class LaggingWatch(Generic[T]):
    def __init__(self, watch: Watch[T], world: "World") -> None:
        self._watch = watch
        self._world = world

    def __aiter__(self) -> "LaggingWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._watch.__anext__()
        if self._world.lag:
            await self._world.sleep(self._world.lag * self._world.sim.rand.random())
        if self._world.gaps and self._world.sim.rand.random() < self._world.gaps:
            raise errors.Expired("too old resource version")
        return event

    async def aclose(self) -> None:
        await self._watch.aclose()


@dataclass(slots=True)
class Told:
    """Takes down what the controller tells."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def event(
        self, regarding: Reference, event_type: EventType, reason: str, action: str, note: str
    ) -> None:
        assert regarding.uid
        assert action
        self.events.append((event_type, reason, note))

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


class Process:
    """One life of the controller."""

    def __init__(self, world: "World", settings: Settings | None) -> None:
        clock, rand = world.sim.clock, world.sim.rand
        self.client = MortalClient(world.api)
        self.registry = CollectorRegistry()
        reader = LaggingClient(world)
        self._jobs = Informer(reader, kinds.JOBS, clock=clock, rand=rand, indexes=JOB_INDEXES)
        self._pods = Informer(reader, kinds.PODS, clock=clock, rand=rand, indexes=POD_INDEXES)
        self.job_controller = JobController(
            self.client,
            self._jobs,
            self._pods,
            clock=clock,
            sink=world.told,
            instruments=Instruments(ReconcileMetrics(self.registry), QueueMetrics(self.registry)),
            metrics=JobMetrics(self.registry),
            settings=settings,
        )
        self._controllers = self.job_controller.controllers

    async def start(self) -> None:
        self._jobs.start()
        self._pods.start()
        await self._jobs.wait_synced()
        await self._pods.wait_synced()
        for each in self._controllers:
            each.start()

    async def stop(self) -> None:
        for each in self._controllers:
            await each.stop()
        await self._jobs.close()
        await self._pods.close()


class World:
    def __init__(self, sim: Sim, api: api_program.Server, script: Script) -> None:
        self.sim = sim
        self.api = api
        self.client = LocalClient(api, field_manager="test")
        self.told = Told()
        self.kubelet = Kubelet(self, script)
        self.settings: Settings | None = None
        self.lag = 0.0
        """How many seconds the controller's caches are behind, at most, with each event."""
        self.gaps = 0.0
        """How likely a watch of the controller ends in the place of an event, which is lost."""
        self._tasks = Tasks()
        self.process = Process(self, None)
        self.began: datetime = sim.clock.now()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return (self.sim.clock.now() - self.began).total_seconds()

    async def close(self) -> None:
        await self._tasks.close()
        await self.process.stop()
        await self.kubelet.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something happen beside all else."""
        self._tasks.spawn(work, name="beside")

    def restart_when_dead(self, client: MortalClient) -> None:
        self._tasks.spawn(self._restart(client), name="who restarts the controller")

    async def _restart(self, client: MortalClient) -> None:
        await client.died.wait()
        await self.restart()

    async def restart(self) -> None:
        await self.process.stop()
        self.process = Process(self, self.settings)
        await self.process.start()

    async def switch(self, gates: Gates, *, server: Gates | None = None) -> None:
        """Start server and controller anew with these gates, or the server with others."""
        self.api.use(gates if server is None else server)
        self.settings = Settings(switches=Switches.of(gates))
        await self.restart()

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    async def submit(
        self,
        name: str = "job",
        template: Object | None = None,
        labels: Object | None = None,
        **spec: Any,
    ) -> Job:
        pod = {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1"}],
        }
        metadata = {"metadata": {"labels": labels}} if labels else {}
        spec["template"] = {**metadata, "spec": {**pod, **(template or {})}}
        return await self.client.create(
            kinds.JOBS, {"metadata": {"name": name}, "spec": spec}, namespace=NAMESPACE
        )

    async def change(self, name: str = "job", **spec: Any) -> None:
        await self.client.patch(kinds.JOBS, name, {"spec": spec}, namespace=NAMESPACE)

    async def job(self, name: str = "job") -> Job:
        return await self.client.get(kinds.JOBS, name, namespace=NAMESPACE)

    async def pods(self) -> list[Pod]:
        found: list[Pod] = []
        async for page in self.client.list(kinds.PODS, namespace=NAMESPACE):
            found += page.items
        return found

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(kinds.PODS, name, namespace=NAMESPACE)

    async def finished(self, name: str = "job", *, within: float = 20_000) -> Job:
        """The Job when it is over; looks every half second."""
        deadline = self.sim.clock.monotonic() + within
        while True:
            job = await self.job(name)
            if job_conditions.is_finished(job.status.conditions):
                return job
            assert self.sim.clock.monotonic() < deadline, f"not over: {job.status}"
            await self.sleep(0.5)


class Kubelet:
    """Binds pods, runs them by the script, and ends them when they are deleted."""

    def __init__(self, world: World, script: Script) -> None:
        self._world = world
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
        """Its container was started anew, in all so often."""
        state = {"running": {"startedAt": self._now()}}
        await self._status(pod, "Running", state, ready=True, restarts=times_restarted)

    def ends_when_deleted(self, pod: Pod) -> Callable[[Request], Awaitable[None]]:
        """Lets the pod end well directly before a request to delete it."""

        async def before(request: Request) -> None:
            if request.method == "DELETE" and pod.metadata.uid not in self.done:
                await self._end(pod, 0)

        return before

    async def _follow(self) -> None:
        watch = self._world.client.watch(kinds.PODS, initial_events=True)
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
            self.created_at.append(self._world.seconds)
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
        world, meta = self._world, pod.metadata
        deleted = self._deleted[meta.uid]
        await world.client.bind(meta.name, "node-1", namespace=NAMESPACE, uid=meta.uid)
        await self._status(pod, "Running", {"running": {"startedAt": self._now()}}, ready=True)
        try:
            async with world.sim.clock.timeout(run.seconds):
                await deleted.wait()
            await world.sleep(run.stop_seconds)
            await self._end(pod, run.stop_code)
        except TimeoutError:
            await self._end(pod, run.exit_code)
            await deleted.wait()
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        await world.client.delete(kinds.PODS, meta.name, namespace=NAMESPACE, options=options)

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
        await self._world.client.patch(
            kinds.PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": status},
            patch_type="strategic",
            namespace=NAMESPACE,
            subresource="status",
        )

    def _now(self) -> str:
        return times.format_time(self._world.sim.clock.now())


@contextlib.asynccontextmanager
async def world(
    sim: Sim, script: Script = ALL_END_WELL, settings: Settings | None = None
) -> AsyncIterator[World]:
    async with api_program.serving(sim) as api:
        made = World(sim, api, script)
        made.settings = settings
        made.process = Process(made, settings)
        made.kubelet.start()
        await made.process.start()
        try:
            yield made
        finally:
            await made.close()
