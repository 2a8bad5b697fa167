# SPDX-License-Identifier: Apache-2.0
"""The `Runtime` whose containers are processes of this machine.

The runtime keeps a copy of the keeper's records, so that the pod worker can read them
without waiting. All state that must outlive the agent is in the keeper or on the disk,
so a new agent connects and goes on. The containers of a keeper die with the keeper.
The runtime reports them as containers that could not be located, once the next keeper
has killed the rest of their processes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from refloat.agent import container_status, machine_info
from refloat.agent.keeper import service
from refloat.agent.process import (
    keeper_client,
    security_context,
    start_request,
    termination_message,
    volumes,
)
from refloat.agent.process.images import Images
from refloat.agent.process.keeper_client import KeeperClient, KeeperError
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import FileContent, PodFolder
from refloat.agent.runtime import Attempts, ContainerRecord, Containers, StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.base.tasks import Tasks

log = logging.getLogger(__name__)

T = TypeVar("T")

KILLED = 137

_PREFIX = "process://"  # of a container's id in the API

# A new keeper cannot start until the old one has ended.
_CONNECT_SECONDS, _RETRY_SECONDS = 10.0, 0.05

# If no keeper can start, the runtime tries for ever, because it cannot work without one.
_LONGEST_RETRY_SECONDS = 30.0


class InputSource(Protocol):
    """Environments and volumes of containers, from the API; raises `StartError`."""

    async def environment(self, pod: Object, container: Object) -> dict[str, str]: ...

    async def files(self, pod: Object, volume: Object) -> Mapping[str, FileContent] | None: ...

    async def folder(self, pod: Object, volume: Object) -> Path | None: ...


FetchPod = Callable[[Pod], Awaitable[Object]]
"""Reads the whole pod from the API; raises `StartError` if the pod must not start any more."""


@dataclass(frozen=True, slots=True)
class ContainerStats:
    """The present usage of one container."""

    processes: int
    memory_bytes: int


@dataclass(slots=True)
class _ImagePull:
    """A container that starts after the pull of its image."""

    record: ContainerRecord
    task: "asyncio.Task[None]"


class ProcessRuntime:
    """The containers of one node; call `open` first."""

    def __init__(
        self, settings: ProcessSettings, *, clock: Clock, fetch_pod: FetchPod, inputs: InputSource
    ) -> None:
        self._settings, self._clock = settings, clock
        self._fetch_pod, self._inputs = fetch_pod, inputs
        self._images = Images(settings.images)
        self._keeper: KeeperClient | None = None
        self._records: dict[str, dict[str, Attempts]] = {}
        self._pulls: dict[tuple[str, str], _ImagePull] = {}
        # Ids of containers, by the last request to the keeper.
        self._starting: set[str] = set()
        self._stopping: set[str] = set()
        self._prepared: set[str] = set()
        self._deadlines: dict[str, float] = {}  # also for the next keeper: starts have them
        self._folders: dict[str, None] = {}
        self._tasks = Tasks()
        self._changed: Callable[[str], object] = str  # until `listen`
        self._connecting = asyncio.Lock()
        self._recovering: asyncio.Task[None] | None = None
        self.is_replaced = False  # another agent runs the containers; this one starts no more
        self.features: dict[str, Any] = {}

    async def open(self) -> None:
        """Connect to the keeper and read its records, or start a keeper."""
        settings = self._settings
        self._mark = service.node_mark(str(settings.folder))
        self._pods_folder = settings.folder / "pods"
        self._pods_folder.mkdir(parents=True, exist_ok=True)
        settings.folder.chmod(0o700)
        await self._open_keeper()
        if self.features["mounts"] == "none" and settings.user is not None:
            settings.folder.chmod(0o711)  # so that containers can reach their volumes
        self._folders = {each.name: None for each in self._pods_folder.iterdir()}

    async def close(self) -> None:
        """Disconnect from the keeper; the containers run on."""
        for pull in self._pulls.values():
            pull.task.cancel()
        self._stop_recovering()
        if self._keeper is not None:
            await self._keeper.close()
            self._keeper = None
        await self._tasks.wait()

    async def shutdown(self) -> None:
        """Kill all containers, end the keeper and disconnect."""
        self._stop_recovering()
        keeper = await self._open_keeper()
        self._keeper = None
        await keeper.send("shutdown")
        await keeper.ended()
        await self.close()

    def listen(self, changed: Callable[[str], object]) -> None:
        self._changed = changed

    def pods(self) -> Sequence[str]:
        pulling = {uid: None for uid, _ in self._pulls}
        return list(self._folders | dict.fromkeys(self._records) | pulling)

    def containers(self, uid: str) -> Containers:
        attempts: dict[str, Attempts] = dict(self._records.get(uid, {}))
        for (pod, name), pull in self._pulls.items():
            if pod == uid:
                before = attempts.get(name)
                attempts[name] = Attempts(pull.record, before.current if before else None)
        return attempts

    def folder(self, uid: str) -> PodFolder:
        """The folder of a pod's logs and volumes."""
        return PodFolder(self._pods_folder, uid)

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        uid = pod.metadata.uid
        whole = await self._fetch_pod(pod)
        if self.is_replaced:
            raise StartError("another agent runs this node's containers now")
        spec = start_request.container_of(whole, container)
        self._images.check(uid, spec, self._clock.monotonic())
        seconds = self._images.pull_seconds(spec)
        if not seconds:
            await self._launch(uid, whole, spec, attempt)
            return

        async def pull() -> None:
            await self._clock.sleep(seconds)
            self._images.add(spec["image"])
            try:
                await self._launch(uid, await self._fetch_pod(pod), spec, attempt)
            except RefloatError as error:
                # The worker tries again and then gets the error.
                log.info("pod %s: container %s after its pull: %s", uid, container, error)
            self._pulls.pop((uid, container), None)
            self._changed(uid)

        task = self._tasks.spawn(pull(), name=f"pull for container {container} of pod {uid}")
        self._pulls[uid, container] = _ImagePull(ContainerRecord(attempt), task)

    def prepare_stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        current = self._current(uid, container)
        if current is None or current.has_ended or current.container_id in self._prepared:
            return False
        self._prepared.add(current.container_id)
        self._send("prepare", pod=uid, container=container, grace=grace_seconds)
        return True

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        pull = self._pulls.get((uid, container))
        current = pull.record if pull is not None else self._current(uid, container)
        if current is None or current.has_ended:
            return False
        container_id = self._id(uid, container, current.attempt)
        if pull is not None and container_id not in self._starting:
            del self._pulls[uid, container]
            pull.task.cancel()
            asyncio.get_running_loop().call_soon(self._changed, uid)
            return True
        # A start is never taken back: the keeper gets this request after the start.
        first = container_id not in self._stopping
        self._stopping.add(container_id)
        self._send("stop", pod=uid, container=container, grace=grace_seconds)
        return first

    def remove(self, uid: str) -> None:
        containers = self._records.pop(uid, {})
        for each in containers.values():
            self._stopping.discard(each.current.container_id)
            self._prepared.discard(each.current.container_id)
        had_folder = self._folders.pop(uid, "") is None
        if self._deadlines.pop(uid, None) is not None or containers:
            self._send("remove", pod=uid)
        if had_folder:
            removal = self._in_thread(self.folder(uid).remove)
            self._tasks.spawn(removal, name=f"removal of the folder of pod {uid}")

    def crash(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.send("shutdown")
            keeper.ignore()
        for pull in self._pulls.values():
            pull.task.cancel()
        self._pulls.clear()
        self._records.clear()
        self._stopping.clear()
        self._deadlines.clear()

    @property
    def boot_id(self) -> str:
        return machine_info.boot_id()

    def deadlines(self) -> Mapping[str, float]:
        return self._deadlines

    async def arm(self, uid: str, at: float) -> None:
        try:
            answer = await (await self._open_keeper()).send("deadlines", at={uid: at})
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
            self._send("deadlines", at=moved)

    def disarm(self, uid: str) -> None:
        if self._deadlines.pop(uid, None) is not None:
            self._send("deadlines", at={uid: None})

    async def usage(self) -> dict[str, dict[str, ContainerStats]]:
        """Processes and memory of all live containers, by pod and container."""
        samples = await (await self._open_keeper()).send("stats")
        usage: dict[str, dict[str, ContainerStats]] = {}
        for each in samples:
            used = ContainerStats(each["processes"], each["memory"])
            usage.setdefault(each["pod"], {})[each["container"]] = used
        return usage

    async def disk_usage(self, uid: str) -> dict[str, int]:
        """Bytes of each `volumes/NAME` and `logs/CONTAINER`; reads all folders."""
        return await self._in_thread(self.folder(uid).used_bytes)

    async def execute(
        self, uid: str, container: str, command: Sequence[str], timeout_seconds: float
    ) -> tuple[int | None, str]:
        """Run a command in a container. Returns exit code (None: timed out) and output."""
        answer = await (await self._open_keeper()).send(
            "exec", pod=uid, container=container, argv=list(command), timeout=timeout_seconds
        )
        return answer["exit_code"], answer["output"]

    async def _launch(self, uid: str, whole: Object, spec: Object, attempt: int) -> None:
        folder = self.folder(uid)
        machine = security_context.Machine.of(self.features)
        security_context.resolve(self._settings.user, whole, spec, machine)
        variables = await self._inputs.environment(whole, spec)
        self._folders[uid] = None
        try:
            last = await self._in_thread(folder.prepare, spec["name"], attempt)
            before = self._current(uid, spec["name"])
            if last >= attempt and (before is None or before.attempt < last):
                # The attempt has started, and no keeper knows it any more: record its end.
                record = ContainerRecord(last, self._id(uid, spec["name"], last))
                attempts = Attempts(_vanished(record, self._clock.now()), before)
                self._records.setdefault(uid, {})[spec["name"]] = attempts
                asyncio.get_running_loop().call_soon(self._changed, uid)
                return
            inputs = self._inputs
            await volumes.make_volumes(folder, whole, inputs.files, inputs.folder)
            request = start_request.build(
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
        except ValueError as error:  # a path of the pod has a zero byte
            raise StartError(f"a path of the pod cannot be used: {error}") from error
        await self._start(request)

    async def _start(self, request: dict[str, Any]) -> None:
        """Let the keeper start a container, and wait until the container runs."""
        container_id = _PREFIX + request["id"]
        try:
            keeper = await self._open_keeper()
            request["deadline"] = self._deadlines.get(request["pod"])
            self._starting.add(container_id)
            record = await keeper.send("start", spec=request)
        except KeeperError as error:
            raise StartError(str(error)) from error
        finally:
            self._starting.discard(container_id)
        self._take_record(record)

    def _take_record(self, answer: Mapping[str, Any]) -> bool:
        """Store a record of the keeper. Returns whether the record is new."""
        record = _record(answer)
        containers = self._records.setdefault(answer["pod"], {})
        before = containers.get(answer["container"])
        if before is None or before.current.attempt < record.attempt:
            containers[answer["container"]] = Attempts(record, before.current if before else None)
        elif before.current.attempt == record.attempt:
            # The event of the end may come before the answer to `start`.
            if before.current.has_ended or before.current == record:
                return False
            containers[answer["container"]] = replace(before, current=record)
        return True

    def _id(self, uid: str, container: str, attempt: int) -> str:
        return _PREFIX + start_request.container_id(self._mark, uid, container, attempt)

    def _current(self, uid: str, container: str) -> ContainerRecord | None:
        attempts = self._records.get(uid, {}).get(container)
        return attempts.current if attempts is not None else None

    def _on_event(self, message: Mapping[str, Any]) -> None:
        if message["event"] == "replaced":
            self.is_replaced = True
            log.error("another agent has taken over %s", self._settings.folder)
        elif message["event"] == "passed":
            self._changed(message["pod"])
        elif message["event"] == "container":
            record = message["record"]
            # The caller of `start` learns from the answer that the container runs.
            has_caller = record["exit_code"] is None and _PREFIX + record["id"] in self._starting
            if self._take_record(record) and not has_caller:
                self._changed(record["pod"])

    async def _open_keeper(self) -> KeeperClient:
        async with self._connecting:
            if self._keeper is None:
                self._keeper = await self._connect()
            return self._keeper

    async def _connect(self) -> KeeperClient:
        give_up = self._clock.monotonic() + _CONNECT_SECONDS
        options = [] if self._settings.use_groups else [service.NO_GROUPS]
        while True:
            try:
                client = await keeper_client.connect(
                    self._settings.folder, self._on_event, self._on_close, options=options
                )
                try:  # to become the agent of the keeper
                    self.features = await client.send("hello")
                    listing: dict[str, Any] = await client.send("list")
                except asyncio.CancelledError:
                    client.ignore()  # else the next `hello` would report a replacement by itself
                    raise
            except KeeperError:
                if self._clock.monotonic() > give_up:
                    raise
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            for each in sorted(listing["containers"], key=lambda record: int(record["attempt"])):
                self._take_record(each)
            # Containers that the keeper does not list have died with an earlier keeper.
            ids, now = {each["id"] for each in listing["containers"]}, self._clock.now()
            for containers in self._records.values():
                for name, each in containers.items():
                    current = each.current
                    if not current.has_ended and current.container_id[len(_PREFIX) :] not in ids:
                        containers[name] = replace(each, current=_vanished(current, now))
            self._deadlines |= listing["deadlines"]
            return client

    def _on_close(self, client: KeeperClient) -> None:
        """The keeper died or closed the connection. Containers may still run (behaviour D4.5)."""
        if client is not self._keeper or self.is_replaced:
            return
        self._keeper = None
        log.error("the keeper of %s is gone", self._settings.folder)
        self._recovering = self._tasks.spawn(self._recover(), name="recovery of the keeper")

    def _stop_recovering(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()

    async def _recover(self) -> None:
        """Connect to a new keeper, which first kills old processes; then report all pods."""
        wait = _RETRY_SECONDS
        while True:
            try:
                await self._open_keeper()
                break
            except (KeeperError, OSError) as error:
                log.error("the keeper of %s cannot be replaced: %s", self._settings.folder, error)
            wait = min(2 * wait, _LONGEST_RETRY_SECONDS)
            await self._clock.sleep(wait)
        for uid in list(self._records):
            self._changed(uid)

    def _send(self, op: str, **arguments: Any) -> None:
        """Send a request without waiting. Without a keeper there are no containers either."""
        if self._keeper is not None:
            self._keeper.send(op, **arguments)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def _record(answer: Mapping[str, Any]) -> ContainerRecord:
    code, message = answer["exit_code"], answer["message"]
    if code is not None and not message:
        message = termination_message.message(answer["memo"], code)
    return ContainerRecord(
        answer["attempt"],
        _PREFIX + answer["id"],
        started_at=_time(answer["started_at"]),
        exit_code=code,
        finished_at=_time(answer["finished_at"]),
        reason=answer["reason"],
        message=message,
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _vanished(record: ContainerRecord, now: datetime) -> ContainerRecord:
    return replace(
        record,
        exit_code=KILLED,
        finished_at=now,
        reason=container_status.UNKNOWN,
        message=container_status.GONE_WHILE_RUNNING,
    )
