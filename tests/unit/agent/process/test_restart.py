# SPDX-License-Identifier: Apache-2.0
"""Agents that are killed, frozen or replaced, and keepers that die."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.agent import container_status
from refloat.agent.keeper import launch
from refloat.agent.keeper.container import ContainerAttempt, ContainerTable
from refloat.agent.pod_worker import PodWorker
from refloat.agent.process import keeper_client
from refloat.agent.process.keeper_client import KeeperError
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.runtime import StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.client.errors import Unavailable
from tests.unit.agent.process.node import ProcessNode, is_alive, node, pod, sh, until

ROUNDS = 12


def agent(folder: Path, *acts: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.unit.agent.process.agent", str(folder), *acts]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def again(here: ProcessNode) -> ProcessNode:
    """The same node with a new agent."""
    await here.runtime.close()
    await here.reopen()
    return here


async def test_an_agent_that_restarts_finds_what_runs_and_what_ended_without_it(
    here: ProcessNode,
) -> None:
    await here.start(sh("a", "sleep 0.2; exit 9"))
    await here.start(pod("b", "sleep", "100"))
    before = here.current("b")
    await here.runtime.close()
    await asyncio.sleep(0.4)
    await here.reopen()
    assert here.current("a").exit_code == 9
    assert here.current("b") == before
    assert sorted(here.runtime.pods()) == ["a", "b"]
    here.runtime.stop("b", "main", 30)
    assert (await here.ended("b")).exit_code == 143


async def test_what_was_started_is_not_started_twice(here: ProcessNode) -> None:
    await here.start(pod("a", "sleep", "100"))
    first = here.processes()
    await again(here)
    await here.start(pod("a", "sleep", "100"))
    assert here.processes() == first
    await here.runtime.close()
    await here.reopen()
    here.runtime.stop("a", "main", 0)
    assert (await here.ended("a")).exit_code == 143


async def test_an_attempt_cannot_begin_while_the_one_before_runs(here: ProcessNode) -> None:
    await here.start(pod("a", "sleep", "100"))
    with pytest.raises(StartError, match="container main of pod a still runs"):
        await here.start(pod("a", "sleep", "100"), attempt=1)
    here.runtime.stop("a", "main", 0)
    await here.ended("a")


@pytest.mark.parametrize("delay", [each / ROUNDS for each in range(ROUNDS)])
async def test_agent_killed_at_any_moment_loses_no_exit_code(tmp_path: Path, delay: float) -> None:
    """An agent dies during five starts; the next one continues, and each container runs once."""
    folder = tmp_path / "node"
    folder.mkdir()
    ran = "echo ran; exit 4"
    acts = [f"p{number}={ran}" for number in range(5)]
    killed = agent(folder, *acts)
    assert killed.stdout is not None
    if delay:
        await asyncio.sleep(0.3 + 0.5 * delay)
    os.kill(killed.pid, signal.SIGKILL)
    killed.stdout.close()
    killed.wait()
    async with node(tmp_path) as here:
        for number in range(5):
            record = await here.run(sh(f"p{number}", ran))
            assert (record.exit_code, record.attempt) == (4, 0)
            assert here.log(f"p{number}") == "ran\n"


async def test_a_frozen_agent_stops_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    frozen = agent(folder, "a=sleep 0.2; exit 4", "b=sleep 100")
    try:
        assert frozen.stdout is not None
        with frozen.stdout as output:
            for _ in range(2):
                await asyncio.get_running_loop().run_in_executor(None, output.readline)
        os.kill(frozen.pid, signal.SIGSTOP)
        async with node(tmp_path) as here:
            assert (await here.ended("a")).exit_code == 4
            assert not here.current("b").has_ended
            here.runtime.stop("b", "main", 0)
            await here.ended("b")
    finally:
        frozen.kill()
        frozen.wait()


async def test_an_agent_that_was_replaced_starts_nothing_any_more(here: ProcessNode) -> None:
    old = here.runtime
    await here.reopen()
    await until(lambda: old.is_replaced)
    here.pods["a"] = pod("a", "true")
    with pytest.raises(StartError, match="another agent runs this node's containers now"):
        await old.start(msgspec.convert(here.pods["a"], Pod), "main", 0)
    await old.close()


async def test_when_the_keeper_dies_its_containers_do_and_are_reported_as_lost(
    here: ProcessNode,
) -> None:
    await here.start(sh("a", "setsid sleep 100 & echo ready; wait"))
    await here.run(sh("b", "exit 3"))
    await here.printed("a", "ready")
    started = here.current("a").started_at
    os.kill(here.runtime.features["pid"], signal.SIGKILL)
    record = await here.ended("a")
    assert (record.exit_code, record.reason) == (137, container_status.UNKNOWN)
    assert record.message == container_status.GONE_WHILE_RUNNING
    assert record.started_at == started
    assert here.current("b").exit_code == 3
    assert here.processes() == []  # the next keeper ended what was left
    assert (await here.run(pod("c", "true"))).exit_code == 0


async def test_the_end_of_a_lost_container_is_told_when_nothing_of_it_is_left(
    here: ProcessNode,
) -> None:
    """behaviour D4.5"""
    await here.start(sh("a", "setsid sleep 100 & echo ready; wait"))
    await here.printed("a", "ready")
    observations: list[tuple[bool, list[int]]] = []
    here.runtime.listen(
        lambda uid: observations.append((here.current(uid).has_ended, here.processes()))
    )
    os.kill(here.runtime.features["pid"], signal.SIGKILL)
    await until(lambda: observations)
    assert observations == [(True, [])]


async def test_a_keeper_that_cannot_be_replaced_is_tried_again(
    here: ProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.start(pod("a", "sleep", "100"))
    folders: list[Path] = []

    async def refuse(folder: Path, *rest: object, **more: object) -> keeper_client.KeeperClient:
        folders.append(folder)
        raise OSError(errno.EAGAIN, "no process can be started")

    with monkeypatch.context() as patched:
        patched.setattr(keeper_client, "connect", refuse)
        os.kill(here.runtime.features["pid"], signal.SIGKILL)
        await until(lambda: len(folders) > 2)
        assert not here.current("a").has_ended  # the runtime does not know yet
    assert (await here.ended("a")).reason == container_status.UNKNOWN


async def test_an_agent_that_the_keeper_has_cut_off_finds_its_containers_again(
    here: ProcessNode,
) -> None:
    await here.start(pod("a", "sleep", "100"))
    before = here.current("a")
    assert here.runtime._keeper is not None
    here.runtime._keeper._writer.close()
    await until(lambda: here.changes == ["a"])
    assert here.current("a") == before
    here.runtime.stop("a", "main", 0)
    assert (await here.ended("a")).exit_code == 143


async def test_a_crash_loses_everything_and_tells_nobody(here: ProcessNode) -> None:
    await here.start(pod("a", "sleep", "100"))
    (process,) = here.processes()
    here.changes.clear()
    here.runtime.crash()
    assert here.runtime.containers("a") == {}
    await until(lambda: not is_alive(process))
    assert here.changes == []
    assert (await here.run(pod("b", "true"))).exit_code == 0


async def lose_both(here: ProcessNode) -> None:
    """Agent and keeper die; another agent finds what they have left."""
    keeper = here.runtime.features["pid"]
    await here.runtime.close()
    os.kill(keeper, signal.SIGKILL)
    await here.reopen()


async def test_what_began_before_agent_and_keeper_died_is_not_begun_again(
    here: ProcessNode,
) -> None:
    await here.start(sh("a", "echo ran; sleep 100"))
    await here.printed("a", "ran")
    await lose_both(here)
    assert here.runtime.containers("a") == {}
    here.changes.clear()
    record = await here.run(here.pods["a"])
    assert (record.exit_code, record.reason, record.attempt) == (137, container_status.UNKNOWN, 0)
    assert here.log("a") == "ran\n"
    await until(lambda: here.changes == ["a"])
    assert (await here.run(sh("a", "echo again"), 1)).exit_code == 0


async def test_attempts_that_nobody_remembers_are_counted(here: ProcessNode) -> None:
    for attempt in range(3):
        await here.run(sh("a", "echo ran"), attempt)
    await lose_both(here)
    record = await here.run(here.pods["a"])
    assert (record.exit_code, record.attempt) == (137, 2)


def test_a_container_that_could_not_be_forked_was_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_fork(*_: object, **__: object) -> launch.Child:
        raise OSError(errno.EAGAIN, "no fork")

    monkeypatch.setattr(launch, "start", no_fork)
    loop: Any = None
    log = {"log": str(tmp_path / "0.log"), "log_bytes": 1000, "log_files": 2}
    with pytest.raises(OSError, match="no fork"):
        ContainerAttempt(
            ContainerTable(loop, None, "none"), {"id": "a", "pids": 1, **log}, lambda _: None
        )
    assert list(tmp_path.iterdir()) == []


class _Api:
    """A small API server for one pod, which may be unreachable."""

    is_away = True

    def __init__(self, manifest: Object) -> None:
        self.pod = manifest

    async def patch(self, kind: object, name: str, patch: Object, **more: object) -> Pod:
        if self.is_away:
            raise Unavailable("away")
        self.pod = {**self.pod, "status": patch["status"]}
        return msgspec.convert(self.pod, Pod)


async def test_pod_that_never_restarts_runs_once_though_nobody_heard_of_it(tmp_path: Path) -> None:
    """Agent and keeper died before the first status reached the API."""
    manifest = sh("a", "echo ran; sleep 100")
    manifest["spec"]["restartPolicy"] = "Never"
    api: Any = _Api(manifest)

    def worker(here: ProcessNode) -> PodWorker:
        here.pods["a"] = manifest
        worker = PodWorker(api, here.runtime, clock=RealClock())
        worker.pods["a"] = msgspec.convert(manifest, Pod)
        return worker

    async with node(tmp_path) as here:
        with pytest.raises(Unavailable):
            await worker(here).reconcile("a")
        await here.printed("a", "ran")
        await lose_both(here)
        api.is_away = False
        await worker(here).reconcile("a")
        assert here.log("a") == "ran\n"
        status = api.pod["status"]
        state = status["containerStatuses"][0]["state"]["terminated"]
        assert (status["phase"], state["exitCode"]) == ("Failed", 137)
        assert state["reason"] == container_status.UNKNOWN


async def test_one_folder_has_one_keeper(here: ProcessNode) -> None:
    other = here.another()
    await other.open()
    assert other.features["pid"] == here.runtime.features["pid"]
    await other.close()
    await until(lambda: here.runtime.is_replaced)


async def test_the_socket_is_for_its_owner_alone(here: ProcessNode) -> None:
    assert (here.settings.folder / "keeper.sock").stat().st_mode & 0o777 == 0o600


async def test_the_keeper_refuses_what_it_does_not_understand(here: ProcessNode) -> None:
    other = await keeper_client.connect(here.settings.folder, lambda _: None, lambda _: None)
    with pytest.raises(KeeperError, match="op: 'dance' is not known"):
        await other.send("dance")
    with pytest.raises(KeeperError, match="stop: KeyError: 'pod'"):
        await other.send("stop")
    with pytest.raises(KeeperError, match="no container x"):
        await other.send("stop", pod="p", container="x", grace=1)
    await other.close()


async def test_the_keeper_is_small(here: ProcessNode) -> None:
    for number in range(20):
        await here.start(pod(f"p{number}", "sleep", "100"))
    status = Path(f"/proc/{here.runtime.features['pid']}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 20_000
    for number in range(20):
        here.runtime.stop(f"p{number}", "main", 0)
        await here.ended(f"p{number}")


async def test_a_keeper_that_cannot_start_says_where_it_told_why(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "keeper.lock").mkdir()
    here = ProcessNode(ProcessSettings(tmp_path / "node"))
    with pytest.raises(KeeperError, match=r"did not start; see .*keeper\.log"):
        await keeper_client.connect(here.settings.folder, lambda _: None, lambda _: None)
    assert "IsADirectoryError" in (tmp_path / "node" / "keeper.log").read_text()


@pytest.mark.parametrize("protocol", [None, 1, 3])
async def test_a_keeper_of_another_version_starts_nothing_until_it_is_replaced(
    here: ProcessNode, monkeypatch: pytest.MonkeyPatch, protocol: int | None
) -> None:
    """As after an upgrade of the agent."""
    await here.start(pod("a", "sleep", "100"))
    with monkeypatch.context() as patched:
        _answer_hello_as(patched, protocol)
        await again(here)
    keeper = here.runtime.features["pid"]
    with pytest.raises(StartError, match=f"another version of Refloat.*`kill {keeper}`"):
        await here.start(pod("b", "sleep", "100"))
    assert not here.current("a").has_ended
    assert "b" not in here.runtime.pods()
    os.kill(keeper, signal.SIGTERM)  # as the message says
    await here.ended("a")
    await until(lambda: here.runtime.features["pid"] != keeper)
    assert (await here.run(sh("b", "exit 3"))).exit_code == 3


def _answer_hello_as(patched: pytest.MonkeyPatch, protocol: int | None) -> None:
    """The answer of a keeper with that protocol; None: before protocols had numbers."""
    send = keeper_client.KeeperClient.send

    async def older(answer: "asyncio.Future[Any]") -> Any:
        new = ("protocol", "read_only_root", "seccomp")
        features = {name: value for name, value in (await answer).items() if name not in new}
        return features if protocol is None else features | {"protocol": protocol}

    def ask(self: keeper_client.KeeperClient, op: str, **arguments: Any) -> Any:
        answer = send(self, op, **arguments)
        return older(answer) if op == "hello" else answer

    patched.setattr(keeper_client.KeeperClient, "send", ask)
