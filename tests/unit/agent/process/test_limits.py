# SPDX-License-Identifier: Apache-2.0
"""Bounds: memory, output, and the disk that a pod takes."""

import errno
import os
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.agent.keeper import cgroups
from refloat.agent.keeper.container import ContainerTable
from refloat.agent.keeper.log_writer import LogWriter
from refloat.agent.keeper.server import KeeperServer
from refloat.agent.process_usage import ProcessUsage
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.node import kubelet_eviction
from tests.unit.agent.process.node import ProcessNode, node, pod, sh, until

EATER = "a = []\nwhile True: a.append(bytearray(b'x' * 1000000))"
FORKED = """
import os, time
held = bytearray(b'x' * 30_000_000)
for _ in range(6):
    if os.fork() == 0: time.sleep(0.5); os._exit(0)
time.sleep(0.5)
"""


def limited(uid: str, script: str, memory: str) -> dict[str, object]:
    resources = {"limits": {"memory": memory}}
    return pod(uid, sys.executable, "-S", "-c", script, resources=resources)


@pytest.fixture(params=[True, False], ids=["as the machine allows", "measured"])
def use_groups(request: pytest.FixtureRequest) -> bool:
    """How memory is limited: by the kernel if possible, and by measurement."""
    return bool(request.param)


async def test_one_that_takes_too_much_memory_is_killed_for_it(
    tmp_path: Path, use_groups: bool
) -> None:
    async with node(tmp_path, user=None, use_groups=use_groups) as here:
        assert use_groups or here.runtime.features["memory"] == cgroups.MEASURED
        record = await here.run(limited("a", EATER, "64Mi"))
        assert (record.exit_code, record.reason) == (137, "OOMKilled")


async def test_memory_that_processes_share_counts_once(tmp_path: Path, use_groups: bool) -> None:
    async with node(tmp_path, user=None, use_groups=use_groups) as here:
        record = await here.run(limited("a", FORKED, "100Mi"))
        assert (record.exit_code, record.reason) == (0, "")


async def test_a_container_ends_whole_for_what_a_child_of_it_takes(
    tmp_path: Path, use_groups: bool
) -> None:
    async with node(tmp_path, user=None, use_groups=use_groups) as here:
        child = f"import os, time\nif os.fork(): time.sleep(100)\n{EATER}"
        record = await here.run(limited("a", child, "64Mi"))
        assert (record.exit_code, record.reason) == (137, "OOMKilled")
        assert here.processes() == []


async def test_files_that_the_kernel_could_forget_do_not_count(
    tmp_path: Path, use_groups: bool
) -> None:
    (tmp_path / "big").touch(0o666)
    async with node(tmp_path, user=None, use_groups=use_groups) as here:
        script = f"""
with open({str(tmp_path / "big")!r}, 'wb') as file:
    for _ in range(200): file.write(bytes(1_000_000))
"""
        record = await here.run(limited("a", script, "64Mi"))
        assert (record.exit_code, record.reason) == (0, "")


async def test_a_limit_of_nothing_is_none(tmp_path: Path, use_groups: bool) -> None:
    async with node(tmp_path, user=None, use_groups=use_groups) as here:
        record = await here.run(limited("a", "print('fine')", "0"))
        assert (record.exit_code, record.reason) == (0, "")


async def test_no_group_is_left_of_containers_with_limits(tmp_path: Path) -> None:
    async with node(tmp_path, user=None) as here:
        await here.run(limited("a", EATER, "64Mi"))
        tree = cgroups.CgroupTree.make(here.mark)
        assert tree is None or tree.existing() == []
        await here.start(limited("b", "import time; time.sleep(100)", "64Mi"))
        assert tree is None or len(tree.existing()) == 1
        here.runtime.stop("b", "main", 0)
        await here.ended("b")
        assert tree is None or tree.existing() == []


class _Steps:
    """A keeper's loop whose timers the test runs by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def watch(self, *_: object) -> None:
        """Does nothing: no client connects."""

    def after(self, seconds: float, step: Callable[[], object]) -> None:
        self.due.append(step)


@dataclass
class _Kept:
    """As much of a container with a limit as is looked at."""

    memory_limit: int = 10
    killed: list[str] = field(default_factory=list)

    def holds_too_much(self, *, processes: object) -> bool:
        return True

    def kill(self, reason: str) -> None:
        self.killed.append(reason)


def _no_descriptor(path: str) -> list[str]:
    raise OSError(errno.EMFILE, "too many")


def test_memory_is_measured_again_after_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: Any = _Steps()
    container: Any = _Kept()
    keeping = ContainerTable(loop, None, "none")
    keeping.live["a"] = container
    with socket.socket(socket.AF_UNIX) as listener:
        KeeperServer(loop, keeping, listener)._measure_if_needed()
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", _no_descriptor)
        with pytest.raises(OSError, match="too many"):
            loop.due.pop()()
    loop.due.pop()()
    assert container.killed == ["OOMKilled"]


async def test_a_flood_of_output_is_bounded_and_does_not_stop_the_node(tmp_path: Path) -> None:
    async with node(tmp_path, log_bytes=2_000_000, log_files=3) as here:
        await here.start(pod("a", "yes"))
        folder = here.runtime.folder("a").log("main", 0).parent
        await until(lambda: len(list(folder.iterdir())) == 3)
        assert (await here.run(pod("b", "echo", "fine"))).exit_code == 0
        here.runtime.stop("a", "main", 5)
        await here.ended("a")
        assert sorted(each.name for each in folder.iterdir()) == ["0.log", "0.log.1", "0.log.2"]
        assert all(each.stat().st_size <= 2_000_000 for each in folder.iterdir())
        assert (folder / "0.log.1").read_text().endswith("Z stdout F y\n")


async def test_a_log_has_times_streams_and_parts_of_lines(here: ProcessNode) -> None:
    await here.run(sh("a", "echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three"))
    lines = here.runtime.folder("a").log("main", 0).read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "stdout F one",
        "stderr F two",
        "stdout P three",
    ]
    times = [line.split(" ", 1)[0] for line in lines]
    assert times == sorted(times)
    assert all(len(each) == len("2026-01-02T03:04:05.123456789Z") for each in times)


async def test_any_bytes_can_be_printed(here: ProcessNode) -> None:
    await here.run(sh("a", r"printf '\377\000\001\r\n'"))
    text = here.runtime.folder("a").log("main", 0).read_bytes()
    assert text.endswith(b" stdout F \xff\x00\x01\r\n")


async def test_all_that_was_printed_before_the_end_is_in_the_log(here: ProcessNode) -> None:
    await here.run(sh("a", "seq 1 20000"))
    assert here.log("a").split() == [str(each) for each in range(1, 20001)]


async def test_logs_of_the_attempt_before_are_kept_and_older_ones_are_not(
    here: ProcessNode,
) -> None:
    for attempt in range(3):
        await here.run(pod("a", "echo", str(attempt)), attempt)
    folder = here.runtime.folder("a").log("main", 0).parent
    assert sorted(each.name for each in folder.iterdir()) == ["1.log", "2.log"]
    attempts = here.runtime.containers("a")["main"]
    assert attempts.current.attempt == 2
    assert attempts.previous is not None
    assert attempts.previous.attempt == 1


async def test_the_disk_that_a_pod_takes_is_measured(here: ProcessNode) -> None:
    write = "head -c 1000000 /dev/zero > ${REFLOAT_VOLUME_V:-/full}/file"
    volume = [{"name": "v", "emptyDir": {}}]
    mount = [{"name": "v", "mountPath": "/full"}]
    await here.run(sh("a", write, volumes=volume, volumeMounts=mount))
    used = await here.runtime.disk_usage("a")
    assert 1_000_000 <= used["volumes/v"] < 1_100_000
    assert used["logs/main"] < 10_000


async def test_a_log_counts_as_its_containers_and_against_its_limit(tmp_path: Path) -> None:
    """behaviour D6: with several containers the message names the container of the log."""
    manifest = sh("a", "head -c 2000000 /dev/zero; echo done; sleep 100")
    (loud,) = manifest["spec"]["containers"]
    quiet: Object = {"name": "quiet", "image": "any", "command": ["sleep", "100"]}
    for each, limit in ((loud, "1M"), (quiet, "100M")):
        each["resources"] = {"limits": {"ephemeral-storage": limit}}
    manifest["spec"]["containers"] = [loud, quiet]

    async def no_limits(uid: str) -> dict[str, str]:
        return {}

    async with node(tmp_path) as here:
        await here.start(manifest)
        whole = msgspec.convert(manifest, Pod)
        await here.runtime.start(whole, "quiet", 0)
        await here.printed("a", "done")
        measured = await ProcessUsage(here.runtime, tmp_path, no_limits).measure()
        (eviction,) = kubelet_eviction.over_limits([whole], measured.pods)
        want = 'Container main exceeded its local ephemeral storage limit "1M". '
        assert eviction.message == want
        for name in ("main", "quiet"):
            here.runtime.stop("a", name, 0)
        await until(lambda: all(e.current.has_ended for e in here.runtime.containers("a").values()))


def test_output_is_lost_rather_than_the_container_when_the_disk_is_full() -> None:
    log = LogWriter("/dev/full", 1000, 2)
    log.write(b"lost\n")
    log.write(b"lost too\n")
    log.close()


async def test_a_container_may_open_as_many_files_as_its_agent(here: ProcessNode) -> None:
    await here.run(sh("a", "ulimit -n"))
    assert here.log("a").split() == [str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
