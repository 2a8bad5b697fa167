# SPDX-License-Identifier: Apache-2.0
"""The ends of containers: none of their processes survives."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from refloat.base.clock import RealClock
from tests.unit.agent.process.node import ProcessNode, is_alive, node, pod, sh, until

# A process that hides: another session, no open file, no parent.
DAEMON = """
import os, sys, time
if os.fork(): os.wait(); print('away', flush=True); time.sleep(float(sys.argv[1])); sys.exit(4)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 100)
open(sys.argv[2], 'w').write(str(os.getpid()))
if len(sys.argv) > 3: os.execve('/bin/sleep', ['sleep', '1000'], {})
time.sleep(1000)
"""


def daemon(uid: str, seconds: float, note: Path, *more: str) -> Any:
    return pod(uid, sys.executable, "-S", "-c", DAEMON, str(seconds), str(note), *more)


@pytest.fixture(params=["cgroup", "inherited"])
def mechanism(request: pytest.FixtureRequest) -> str:
    """How the keeper finds processes: with cgroups if possible, and by session and mark."""
    return str(request.param)


async def test_term_is_asked_first(here: ProcessNode) -> None:
    await here.start(pod("a", "sleep", "100"))
    assert here.runtime.stop("a", "main", 30)
    assert (await here.ended("a")).exit_code == 143


async def test_the_whole_group_is_asked(here: ProcessNode) -> None:
    await here.start(
        sh("a", "sh -c 'trap \"echo heard; exit\" TERM; echo ready; sleep 100 & wait' & wait")
    )
    await here.printed("a", "ready")
    here.runtime.stop("a", "main", 30)
    await here.ended("a")


async def test_one_that_traps_term_ends_as_it_likes(here: ProcessNode) -> None:
    await here.start(sh("a", "trap 'echo bye; exit 5' TERM; echo ready; sleep 100 & wait"))
    await here.printed("a", "ready")
    here.runtime.stop("a", "main", 30)
    assert (await here.ended("a")).exit_code == 5
    assert here.log("a") == "ready\nbye\n"


async def test_one_that_ignores_term_is_killed_after_its_grace(here: ProcessNode) -> None:
    await here.start(sh("a", "trap '' TERM; echo ready; while true; do sleep 1; done"))
    await here.printed("a", "ready")
    began = RealClock().monotonic()
    assert here.runtime.stop("a", "main", 0.3)
    record = await here.ended("a")
    assert record.exit_code == 137
    assert RealClock().monotonic() - began >= 0.3


def hooked(script: str, hook: list[str], **more: Any) -> Any:
    return sh("a", script, lifecycle={"preStop": {"exec": {"command": hook}}}, **more)


async def test_a_hook_comes_before_term(tmp_path: Path) -> None:
    volume = [{"name": "v", "emptyDir": {}}]
    mount = [{"name": "v", "mountPath": "/hook"}]
    at = "${REFLOAT_VOLUME_V:-/hook}"
    script = f"trap 'cat {at}/said; exit 6' TERM; echo ready; sleep 100 & wait"
    hook = ["sh", "-c", f"sleep 0.1; echo hooked > {at}/said"]
    async with node(tmp_path) as here:
        await here.start(hooked(script, hook, volumes=volume, volumeMounts=mount))
        await here.printed("a", "ready")
        here.runtime.stop("a", "main", 30)
        assert (await here.ended("a")).exit_code == 6
        assert here.log("a") == "ready\nhooked\n"


async def test_a_hook_that_does_not_end_uses_up_the_grace(here: ProcessNode) -> None:
    await here.start(hooked("trap 'exit 6' TERM; echo ready; sleep 100 & wait", ["sleep", "100"]))
    await here.printed("a", "ready")
    began = RealClock().monotonic()
    here.runtime.stop("a", "main", 0.3)
    assert (await here.ended("a")).exit_code in (6, 137)
    assert RealClock().monotonic() - began >= 0.3


async def test_a_hook_can_begin_before_its_container_is_asked_to_end(here: ProcessNode) -> None:
    await here.start(hooked("trap 'exit 6' TERM; echo ready; sleep 100 & wait", ["true"]))
    await here.printed("a", "ready")
    assert here.runtime.prepare_stop("a", "main", 30)
    assert not here.runtime.prepare_stop("a", "main", 30)
    assert not here.current("a").has_ended
    assert here.runtime.stop("a", "main", 30)
    assert (await here.ended("a")).exit_code == 6


def post_started(script: str, hook: str) -> Any:
    command = ["sh", "-c", hook]
    return sh("a", script, lifecycle={"postStart": {"exec": {"command": command}}})


async def test_a_hook_after_the_start_runs_beside_the_container(tmp_path: Path) -> None:
    at = "${REFLOAT_VOLUME_V:-/hook}"
    waits = f"until cat {at}/said 2>/dev/null; do sleep 0.02; done"
    manifest = post_started(waits, f"echo hi > {at}/new; mv {at}/new {at}/said")
    manifest["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/hook"}]
    async with node(tmp_path) as here:
        assert (await here.run(manifest)).exit_code == 0
        assert here.log("a") == "hi\n"


async def test_a_container_whose_hook_after_the_start_fails_is_ended(here: ProcessNode) -> None:
    await here.start(post_started("sleep 100", "exit 1"))
    assert (await here.ended("a")).exit_code == 143


async def away(here: ProcessNode, note: Path) -> int:
    """Wait for the pid that an escaped process writes into a file."""
    return int(await until(lambda: note.exists() and note.read_text()))


@pytest.mark.parametrize("hides", [[], ["its environment too"]], ids=["marked", "unmarked"])
async def test_what_daemonised_away_ends_with_its_container(
    tmp_path: Path, mechanism: str, hides: list[str]
) -> None:
    note = tmp_path / f"{mechanism}-{len(hides)}"
    async with node(tmp_path, user=None, use_groups=mechanism == "cgroup") as here:
        await here.start(daemon("a", 0.2, note, *hides))
        process = await away(here, note)
        assert is_alive(process)
        record = await here.ended("a")
        assert record.exit_code == 4
        assert not is_alive(process)


async def test_what_daemonised_away_is_killed_with_its_container(
    tmp_path: Path, mechanism: str
) -> None:
    note = tmp_path / f"killed-{mechanism}"
    async with node(tmp_path, user=None, use_groups=mechanism == "cgroup") as here:
        await here.start(daemon("a", 100, note))
        process = await away(here, note)
        here.runtime.stop("a", "main", 0)
        await here.ended("a")
        assert not is_alive(process)


async def test_the_end_of_one_container_leaves_the_strays_of_another(
    tmp_path: Path, mechanism: str
) -> None:
    note = tmp_path / f"other-{mechanism}"
    async with node(tmp_path, user=None, use_groups=mechanism == "cgroup") as here:
        await here.start(daemon("a", 100, note))
        process = await away(here, note)
        await here.run(sh("b", "sleep 100 & true"))
        assert is_alive(process)
        here.runtime.stop("a", "main", 0)
        await here.ended("a")


async def test_a_fork_bomb_within_limits_ends_with_its_container(
    tmp_path: Path, mechanism: str
) -> None:
    bomb = "b() { sleep 100 & b & wait; }; (b) 2>/dev/null & exec sleep 100"
    async with node(tmp_path, max_pids=60, use_groups=mechanism == "cgroup") as here:
        await here.start(sh("a", bomb))
        await until(lambda: len(here.processes()) > 20)
        usage = (await here.runtime.usage())["a"]["main"]
        assert usage.processes <= 60 or mechanism == "inherited"
        assert (await here.run(pod("b", "true"))).exit_code == 0  # others do not suffer
        here.runtime.stop("a", "main", 0)
        await here.ended("a")
        assert here.processes() == []


async def test_a_direct_kill_is_told_as_such(here: ProcessNode) -> None:
    await here.start(pod("a", "sleep", "100"))
    (process,) = here.processes()
    os.kill(process, signal.SIGKILL)
    record = await here.ended("a")
    assert (record.exit_code, record.reason) == (137, "")
