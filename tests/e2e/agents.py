# SPDX-License-Identifier: Apache-2.0
"""`refloat agent` as a separate process, with the rights of a node and no more."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import yaml

from refloat.agent.process import keeper_client
from refloat.app import tokens
from tests.e2e.cluster import PATIENCE_SECONDS, REFLOAT, PipeLines, ServerProcess


def kubeconfig(server: ServerProcess, name: str) -> Path:
    """The cluster, from the view of the node."""
    document = yaml.safe_load(server.kubeconfig.read_text())
    document["users"][0]["user"]["token"] = tokens.node_token(server.data_dir, name)
    path = server.data_dir / "nodes" / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


class AgentProcess:
    """A node of the cluster that a kubeconfig names; `start` works again after a `kill`."""

    def __init__(self, data_dir: Path, access: Path, name: str, *flags: str) -> None:
        self.name = name
        self.folder = data_dir / "nodes" / name
        self.command = [
            *(str(REFLOAT), "agent", "--name", name, "--data-dir", str(data_dir)),
            *("--kubeconfig", str(access), "--trust-pods", *flags),
        ]
        self._errors = data_dir.with_name(f"{name}.stderr")
        self.start()

    def start(self) -> None:
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        assert self.process.stdout is not None
        try:
            assert PipeLines(self.process.stdout).next().startswith(f"node {self.name} on https://")
        except BaseException:  # also a Ctrl-C: only this code knows of the process
            self.kill()
            raise

    def kill(self) -> None:
        """As a crash of the agent alone: the containers run on."""
        self.process.kill()
        self._wait()

    def end(self) -> int:
        self.process.terminate()
        return self._wait()

    def _wait(self) -> int:
        code = self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def clear(self) -> None:
        """End the keeper, and all containers with the keeper."""
        asyncio.run(_shutdown(self.folder))

    def errors(self) -> str:
        return self._errors.read_text()


async def _shutdown(folder: Path) -> None:
    line = await keeper_client.connect(folder, lambda _: None, lambda _: None)
    await line.send("shutdown")
    await line.ended()


def joined(server: ServerProcess, name: str, *flags: str) -> AbstractContextManager[AgentProcess]:
    """A node of a server of ours."""
    return running(server.data_dir, kubeconfig(server, name), name, *flags)


@contextlib.contextmanager
def running(data_dir: Path, access: Path, name: str, *flags: str) -> Iterator[AgentProcess]:
    """A node until the end of the block; nothing of the node outlives the block."""
    agent = AgentProcess(data_dir, access, name, *flags)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.kill()
        agent.clear()
    assert "Traceback" not in agent.errors(), agent.errors()
