# SPDX-License-Identifier: Apache-2.0
"""A node of real processes in a folder of its own, which leaves nothing behind."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from refloat.agent.keeper import launch, members, service
from refloat.agent.process.runtime import ProcessRuntime
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.runtime import Record, StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import RealClock

# A busy machine takes its time; nothing here waits for so long when it works.
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int = 0o644


class Given:
    """What containers are given: plain variables, and the files and folders that a test says."""

    def __init__(self) -> None:
        self.volumes: dict[str, Mapping[str, File]] = {}
        self.folders: dict[str, Path] = {}

    async def environment(self, pod: Object, container: Object) -> dict[str, str]:
        return {each["name"]: each.get("value", "") for each in container.get("env") or ()}

    async def files(self, pod: Object, volume: Object) -> Mapping[str, File] | None:
        return self.volumes.get(volume["name"])

    async def folder(self, pod: Object, volume: Object) -> Path | None:
        return self.folders.get(volume["name"])


def pod(uid: str, *command: str, volumes: list[Object] | None = None, **container: Any) -> Object:
    main = {"name": "main", "image": "any", "command": list(command), **container}
    spec: Object = {"containers": [main]}
    if volumes:
        spec["volumes"] = volumes
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec}


def sh(uid: str, script: str, **more: Any) -> Object:
    """A pod of one script; `$$` is Kubernetes' way to write a dollar sign."""
    return pod(uid, "sh", "-c", script.replace("$", "$$"), **more)


async def until(holds: Callable[[], Any]) -> Any:
    """What it says, as soon as that is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (answer := holds()):
            await asyncio.sleep(0.005)
        return answer


class Node:
    """A runtime, and the pods that it is told of."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.settings = settings
        self.given = Given()
        self.pods: dict[str, Object] = {}
        self.told: list[str] = []
        self.runtime = self.another()

    def another(self) -> ProcessRuntime:
        """A runtime on the same folder, as after a restart."""
        made = ProcessRuntime(
            self.settings, clock=RealClock(), whole=self._whole, resources=self.given
        )
        made.listen(self.told.append)
        return made

    async def _whole(self, pod: Pod) -> Object:
        try:
            return self.pods[pod.metadata.uid]
        except KeyError as error:
            raise StartError("it has ended", reason="") from error

    async def start(self, given: Object, attempt: int = 0) -> str:
        uid = str(given["metadata"]["uid"])
        self.pods[uid] = given
        await self.runtime.start(msgspec.convert(given, Pod), "main", attempt)
        return uid

    async def run(self, given: Object, attempt: int = 0) -> Record:
        return await self.ended(await self.start(given, attempt))

    def current(self, uid: str, container: str = "main") -> Record:
        return self.runtime.containers(uid)[container].current

    async def ended(self, uid: str) -> Record:
        await until(lambda: self.current(uid).has_ended)
        return self.current(uid)

    def log(self, uid: str, attempt: int = 0) -> str:
        """What a container printed, without times and streams."""
        lines = self.runtime.folder(uid).log("main", attempt).read_text().splitlines()
        return "".join(
            f"{line.split(' ', 3)[3]}{chr(10) if line.split(' ', 3)[2] == 'F' else ''}"
            for line in lines
        )

    async def printed(self, uid: str, text: str) -> str:
        """Its log, once that has the text."""
        await until(lambda: text in self.log(uid))
        return self.log(uid)

    @property
    def mark(self) -> str:
        return service.node_mark(str(self.settings.folder))

    def processes(self) -> list[int]:
        """All that carry this node's mark."""
        return members.marked(self.mark)


@asynccontextmanager
async def node(folder: Path, **settings: Any) -> AsyncIterator[Node]:
    """A node that runs; at its end nothing of it may be left."""
    made = Node(ProcessSettings(folder / "node", **settings))
    await made.runtime.open()
    try:
        yield made
    finally:
        if made.runtime.is_replaced:
            made.runtime = made.another()
            await made.runtime.open()
        for uid in made.runtime.pods():
            made.runtime.remove(uid)
        await made.runtime.shutdown()
        await until(lambda: not is_alive(made.runtime.allows["pid"]))
    assert made.processes() == []
    assert groups_of(made.mark) == []
    assert (made.settings.folder / "keeper.log").read_text() == ""


def groups_of(mark: str) -> list[Path]:
    """The cgroups of a node."""
    return list(Path("/sys/fs/cgroup").glob(f"*/refloat-{mark}"))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def environment_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(each.split("=", 1) for each in text.split("\0") if "=" in each)


IS_ROOT = os.geteuid() == 0
MARKER = launch.MARKER
