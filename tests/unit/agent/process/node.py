# SPDX-License-Identifier: Apache-2.0
"""A node with real processes, which leaves no process or cgroup behind."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from refloat.agent.keeper import launch, process_tree, service
from refloat.agent.process.runtime import ProcessRuntime
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.runtime import ContainerRecord, StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import RealClock

# For a busy machine; a test that passes waits much less.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int = 0o644


class Inputs:
    """The inputs of containers: plain variables, and files and folders of the test."""

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
    """Wait until `holds` returns a true value, and return that value."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (answer := holds()):
            await asyncio.sleep(0.005)
        return answer


class ProcessNode:
    """A runtime and its pods."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.settings = settings
        self.inputs = Inputs()
        self.pods: dict[str, Object] = {}
        self.changes: list[str] = []
        self.runtime = self.another()

    def another(self) -> ProcessRuntime:
        """A runtime on the same folder, as after a restart."""
        runtime = ProcessRuntime(
            self.settings, clock=RealClock(), fetch_pod=self._whole, inputs=self.inputs
        )
        runtime.listen(self.changes.append)
        return runtime

    async def _whole(self, pod: Pod) -> Object:
        try:
            return self.pods[pod.metadata.uid]
        except KeyError as error:
            raise StartError("it has ended", reason="") from error

    async def start(self, manifest: Object, attempt: int = 0) -> str:
        uid = str(manifest["metadata"]["uid"])
        self.pods[uid] = manifest
        await self.runtime.start(msgspec.convert(manifest, Pod), "main", attempt)
        return uid

    async def run(self, manifest: Object, attempt: int = 0) -> ContainerRecord:
        return await self.ended(await self.start(manifest, attempt))

    def current(self, uid: str, container: str = "main") -> ContainerRecord:
        return self.runtime.containers(uid)[container].current

    async def ended(self, uid: str) -> ContainerRecord:
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
        """Wait until the log has a text. Returns the log."""
        await until(lambda: text in self.log(uid))
        return self.log(uid)

    @property
    def mark(self) -> str:
        return service.node_mark(str(self.settings.folder))

    async def reopen(self) -> None:
        """What another process of the agent does on the same folder."""
        self.runtime = self.another()
        await self.runtime.open()

    def processes(self) -> list[int]:
        """All that carry this node's mark."""
        return process_tree.find_marked(self.mark)


@asynccontextmanager
async def node(folder: Path, **settings: Any) -> AsyncIterator[ProcessNode]:
    """A running node; at the end no process and no cgroup may be left."""
    here = ProcessNode(ProcessSettings(folder / "node", **settings))
    await here.runtime.open()
    try:
        yield here
    finally:
        if here.runtime.is_replaced:
            await here.reopen()
        for uid in here.runtime.pods():
            here.runtime.remove(uid)
        await here.runtime.shutdown()
        await until(lambda: not is_alive(here.runtime.features["pid"]))
    assert here.processes() == []
    assert list(Path("/sys/fs/cgroup").glob(f"*/refloat-{here.mark}")) == []
    assert (here.settings.folder / "keeper.log").read_text() == ""


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
