# SPDX-License-Identifier: Apache-2.0
"""The `Runtime` whose containers are processes of this machine.

It keeps a copy of what the keeper keeps, so that the worker can look without
waiting, and makes requests of containers. All that must outlive the agent is
with the keeper or on the disk: a new one connects and goes on. When the keeper
dies its containers die too, and are reported as containers that nobody finds, once
the next keeper has ended what was left of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from refloat.agent import containers, machine
from refloat.agent.keeper import service
from refloat.agent.process import endings, link, request, security_context, volumes
from refloat.agent.process.images import Images
from refloat.agent.process.link import KeeperError, Link
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import File, PodFolder
from refloat.agent.runtime import Attempts, Containers, Record, StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError

log = logging.getLogger(__name__)

T = TypeVar("T")

KILLED = 137

_PREFIX = "process://"  # of a container's id, as others see it

# While a keeper that was told to end still does, none can take its place.
_CONNECT_SECONDS, _RETRY_SECONDS = 10.0, 0.05

# Where no keeper can be started, a new one is tried for ever: nothing can be said without.
_LONGEST_RETRY_SECONDS = 30.0


class Resources(Protocol):
    """What containers are given that only the API knows; raises `StartError`."""

    async def environment(self, pod: Object, container: Object) -> dict[str, str]: ...

    async def files(self, pod: Object, volume: Object) -> Mapping[str, File] | None: ...

    async def folder(self, pod: Object, volume: Object) -> Path | None: ...


Whole = Callable[[Pod], Awaitable[Object]]
"""All of a pod, as the API has it now; raises `StartError` where nothing may start any more."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one container uses now."""

    processes: int
    memory_bytes: int


@dataclass(slots=True)
class _Making:
    """A container whose image is being pulled, and which is then started."""

    record: Record
    task: "asyncio.Task[None]"


class ProcessRuntime:
    """The containers of one node; `open` it first."""

    def __init__(
        self, settings: ProcessSettings, *, clock: Clock, whole: Whole, resources: Resources
    ) -> None:
        self._settings, self._clock = settings, clock
        self._whole, self._resources = whole, resources
        self._images = Images(settings.images)
        self._link: Link | None = None
        self._kept: dict[str, dict[str, Attempts]] = {}
        self._making: dict[tuple[str, str], _Making] = {}
        self._starting: set[str] = set()  # ids of containers that the keeper was asked to start
        self._stopping: set[str] = set()  # ids of containers that were asked to end
        self._prepared: set[str] = set()  # and of those whose hook was begun
        self._deadlines: dict[str, float] = {}  # these outlive a keeper: starts carry them
        self._folders: dict[str, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed: Callable[[str], object] = _nobody
        self._connecting = asyncio.Lock()
        self._recovering: asyncio.Task[None] | None = None
        self.is_replaced = False  # another agent has taken over; nothing can be started any more
        self.allows: dict[str, Any] = {}

    async def open(self) -> None:
        """Find the keeper and all that it keeps, or start one."""
        settings = self._settings
        self._mark = service.node_mark(str(settings.folder))
        self._pods_folder = settings.folder / "pods"
        self._pods_folder.mkdir(parents=True, exist_ok=True)
        settings.folder.chmod(0o700)
        await self._connected()
        if self.allows["mounts"] == "none" and settings.user is not None:
            settings.folder.chmod(0o711)  # else they could not reach their volumes
        self._folders = {each.name: None for each in self._pods_folder.iterdir()}

    async def close(self) -> None:
        """Let go of the keeper; the containers run on."""
        for making in self._making.values():
            making.task.cancel()
        self._stop_recovering()
        if self._link is not None:
            await self._link.close()
            self._link = None
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def shutdown(self) -> None:
        """Kill all containers, end the keeper, and let go."""
        self._stop_recovering()
        connected = await self._connected()
        self._link = None
        await connected.send("shutdown")
        await connected.ended()
        await self.close()

    def listen(self, changed: Callable[[str], object]) -> None:
        self._changed = changed

    def pods(self) -> Sequence[str]:
        making = {uid: None for uid, _ in self._making}
        return list(self._folders | dict.fromkeys(self._kept) | making)

    def containers(self, uid: str) -> Containers:
        held: dict[str, Attempts] = dict(self._kept.get(uid, {}))
        if self._making:
            for (pod, name), making in self._making.items():
                if pod == uid:
                    before = held.get(name)
                    held[name] = Attempts(making.record, before.current if before else None)
        return held

    def folder(self, uid: str) -> PodFolder:
        """Where a pod's logs and volumes are."""
        return PodFolder(self._pods_folder, uid)

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        uid = pod.metadata.uid
        whole = await self._whole(pod)
        if self.is_replaced:
            raise StartError("another agent runs this node's containers now")
        spec = request.container_of(whole, container)
        self._images.check(uid, spec, self._clock.monotonic())
        seconds = self._images.pull_seconds(spec)
        if not seconds:
            await self._launch(uid, whole, spec, attempt)
            return
        task = self._spawn(self._pull(pod, spec, attempt, seconds))
        self._making[uid, container] = _Making(Record(attempt), task)

    def prepare_stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        current = self._current(uid, container)
        if current is None or current.has_ended or current.container_id in self._prepared:
            return False
        self._prepared.add(current.container_id)
        self._ask("prepare", pod=uid, container=container, grace=grace_seconds)
        return True

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        making = self._making.get((uid, container))
        current = making.record if making is not None else self._current(uid, container)
        if current is None or current.has_ended:
            return False
        made = self._id(uid, container, current.attempt)
        if making is not None and made not in self._starting:
            del self._making[uid, container]
            making.task.cancel()
            asyncio.get_running_loop().call_soon(self._changed, uid)
            return True
        # One that is on its way into being is not given up: the keeper hears of this after it.
        first = made not in self._stopping
        self._stopping.add(made)
        self._ask("stop", pod=uid, container=container, grace=grace_seconds)
        return first

    def remove(self, uid: str) -> None:
        held = self._kept.pop(uid, {})
        for each in held.values():
            self._stopping.discard(each.current.container_id)
            self._prepared.discard(each.current.container_id)
        had_folder = self._folders.pop(uid, "") is None
        if self._deadlines.pop(uid, None) is not None or held:
            self._ask("remove", pod=uid)
        if had_folder:
            self._spawn(self._in_thread(self.folder(uid).remove))

    def crash(self) -> None:
        connected, self._link = self._link, None
        if connected is not None:
            connected.send("shutdown")
            connected.ignore()
        for making in self._making.values():
            making.task.cancel()
        self._making.clear()
        self._kept.clear()
        self._stopping.clear()
        self._deadlines.clear()

    @property
    def boot_id(self) -> str:
        return machine.boot_id()

    def deadlines(self) -> Mapping[str, float]:
        return self._deadlines

    async def arm(self, uid: str, at: float) -> None:
        try:
            answer = await (await self._connected()).send("deadlines", at={uid: at})
        except KeeperError as error:
            raise StartError(str(error)) from error
        if answer["passed"]:
            raise StartError(f"pod {uid}: its deadline has passed")
        self._deadlines[uid] = at

    def extend(self, at: Mapping[str, float]) -> None:
        now = self._clock.monotonic()
        moved = {uid: when for uid, when in at.items() if self._deadlines.get(uid, 0.0) > now}
        self._deadlines |= moved
        if moved:
            self._ask("deadlines", at=moved)

    def disarm(self, uid: str) -> None:
        if self._deadlines.pop(uid, None) is not None:
            self._ask("deadlines", at={uid: None})

    async def usage(self) -> dict[str, dict[str, Usage]]:
        """Processes and memory of all that runs, by pod and container."""
        told = await (await self._connected()).send("stats")
        found: dict[str, dict[str, Usage]] = {}
        for each in told:
            used = Usage(each["processes"], each["memory"])
            found.setdefault(each["pod"], {})[each["container"]] = used
        return found

    async def disk_usage(self, uid: str) -> dict[str, int]:
        """Bytes of each `volumes/NAME` and `logs/CONTAINER`; a walk through all files."""
        return await self._in_thread(self.folder(uid).used_bytes)

    async def execute(
        self, uid: str, container: str, command: Sequence[str], timeout_seconds: float
    ) -> tuple[int | None, str]:
        """Run something within a container; its exit code (None: timed out) and output."""
        answer = await (await self._connected()).send(
            "exec", pod=uid, container=container, argv=list(command), timeout=timeout_seconds
        )
        return answer["exit_code"], answer["output"]

    async def _pull(self, pod: Pod, spec: Object, attempt: int, seconds: float) -> None:
        uid, name = pod.metadata.uid, spec["name"]
        await self._clock.sleep(seconds)
        self._images.pulled(spec["image"])
        try:
            await self._launch(uid, await self._whole(pod), spec, attempt)
        except RefloatError as error:
            # The worker starts it again, and is then told why it cannot be.
            log.info("pod %s: container %s after its pull: %s", uid, name, error)
        self._making.pop((uid, name), None)
        self._changed(uid)

    async def _launch(self, uid: str, whole: Object, spec: Object, attempt: int) -> None:
        folder = self.folder(uid)
        machine = security_context.Machine.of(self.allows)
        security_context.judge(self._settings.user, whole, spec, machine)
        variables = await self._resources.environment(whole, spec)
        self._folders[uid] = None
        try:
            begun = await self._in_thread(folder.prepare, spec["name"], attempt)
            if begun >= attempt and self._forgot(uid, spec["name"], begun):
                return
            given = self._resources
            await volumes.make_volumes(folder, whole, given.files, given.folder)
            asked = request.build(
                self._settings,
                self._images,
                whole,
                spec,
                attempt,
                variables,
                folder,
                mark=self._mark,
                machine=machine,
            )
        except OSError as error:
            raise StartError(f"{error.filename}: {error.strerror}") from error
        except ValueError as error:  # the author of the pod wrote a zero into a path
            raise StartError(f"a path of the pod cannot be used: {error}") from error
        await self._send(asked)

    def _forgot(self, uid: str, container: str, begun: int) -> bool:
        """One that began and is with no keeper is not begun again: it has ended, unseen."""
        before = self._current(uid, container)
        if before is not None and before.attempt >= begun:
            return False
        record = Record(begun, self._id(uid, container, begun))
        lost = Attempts(_vanished(record, self._clock.now()), before)
        self._kept.setdefault(uid, {})[container] = lost
        asyncio.get_running_loop().call_soon(self._changed, uid)
        return True

    async def _send(self, asked: dict[str, Any]) -> None:
        """Have the keeper start a container, until that runs."""
        made = _PREFIX + asked["id"]
        try:
            connected = await self._connected()
            asked["deadline"] = self._deadlines.get(asked["pod"])
            self._starting.add(made)
            record = await connected.send("start", spec=asked)
        except KeeperError as error:
            raise StartError(str(error)) from error
        finally:
            self._starting.discard(made)
        self._keep(record)

    def _keep(self, told: Mapping[str, Any]) -> bool:
        """Take over what the keeper says of an attempt; whether that is new."""
        record = _record(told)
        held = self._kept.setdefault(told["pod"], {})
        before = held.get(told["container"])
        if before is None or before.current.attempt < record.attempt:
            held[told["container"]] = Attempts(record, before.current if before else None)
        elif before.current.attempt == record.attempt:
            # The answer to `start` may be looked at after the end was heard of.
            if before.current.has_ended or before.current == record:
                return False
            held[told["container"]] = replace(before, current=record)
        return True

    def _id(self, uid: str, container: str, attempt: int) -> str:
        return _PREFIX + request.container_id(self._mark, uid, container, attempt)

    def _current(self, uid: str, container: str) -> Record | None:
        held = self._kept.get(uid, {}).get(container)
        return held.current if held is not None else None

    def _heard(self, message: Mapping[str, Any]) -> None:
        if message["event"] == "replaced":
            self.is_replaced = True
            log.error("another agent has taken over %s", self._settings.folder)
        elif message["event"] == "passed":
            self._changed(message["pod"])
        elif message["event"] == "container" and self._is_news(message["record"]):
            self._changed(message["record"]["pod"])

    def _is_news(self, told: Mapping[str, Any]) -> bool:
        # That it runs is the answer to `start` too, and whoever waits for that looks by itself.
        is_awaited = _PREFIX + told["id"] in self._starting
        return self._keep(told) and (told["exit_code"] is not None or not is_awaited)

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is None:
                self._link = await self._connect()
            return self._link

    async def _connect(self) -> Link:
        give_up = self._clock.monotonic() + _CONNECT_SECONDS
        while True:
            try:
                made = await link.connect(
                    self._settings.folder, self._heard, self._lost, options=self._options()
                )
                listed = await self._greet(made)
            except KeeperError:
                if self._clock.monotonic() > give_up:
                    raise
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            for each in sorted(listed["containers"], key=lambda record: int(record["attempt"])):
                self._keep(each)
            self._lose({_PREFIX + each["id"] for each in listed["containers"]})
            self._deadlines |= listed["deadlines"]
            return made

    async def _greet(self, made: Link) -> dict[str, Any]:
        """Become its agent; all that it keeps."""
        try:
            self.allows = await made.send("hello")
            listed: dict[str, Any] = await made.send("list")
        except asyncio.CancelledError:
            made.ignore()  # else it would hear that we have replaced ourselves
            raise
        return listed

    def _options(self) -> list[str]:
        return [] if self._settings.use_groups else [service.NO_GROUPS]

    def _lose(self, listed: set[str]) -> None:
        """What a keeper does not know has ended with the one before, and the rest of it since."""
        now = self._clock.now()
        for held in self._kept.values():
            for name, each in held.items():
                if not each.current.has_ended and each.current.container_id not in listed:
                    held[name] = replace(each, current=_vanished(each.current, now))

    def _lost(self, lost: Link) -> None:
        """The keeper died, or has cut us off. What ran may do so still (behaviour D4.5)."""
        if lost is not self._link or self.is_replaced:
            return
        self._link = None
        log.error("the keeper of %s is gone", self._settings.folder)
        self._recovering = self._spawn(self._recover())

    def _stop_recovering(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()

    async def _recover(self) -> None:
        """Find or start a keeper, which ends what is left before it listens; then tell all."""
        wait = _RETRY_SECONDS
        while True:
            try:
                await self._connected()
                break
            except (KeeperError, OSError) as error:
                log.error("the keeper of %s cannot be replaced: %s", self._settings.folder, error)
            wait = min(2 * wait, _LONGEST_RETRY_SECONDS)
            await self._clock.sleep(wait)
        for uid in list(self._kept):
            self._changed(uid)

    def _ask(self, op: str, **arguments: Any) -> None:
        """Without waiting: what cannot be asked for has ended with the keeper."""
        if self._link is not None:
            self._link.send(op, **arguments)

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("process runtime: %s", error)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def _record(told: Mapping[str, Any]) -> Record:
    code, message = told["exit_code"], told["message"]
    if code is not None and not message:
        message = endings.message(told["memo"], code)
    return Record(
        told["attempt"],
        _PREFIX + told["id"],
        started_at=_time(told["started_at"]),
        exit_code=code,
        finished_at=_time(told["finished_at"]),
        reason=told["reason"],
        message=message,
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _vanished(record: Record, now: datetime) -> Record:
    return replace(
        record,
        exit_code=KILLED,
        finished_at=now,
        reason=containers.UNKNOWN,
        message=containers.GONE_WHILE_RUNNING,
    )


def _nobody(uid: str) -> None:
    """Until somebody listens."""
