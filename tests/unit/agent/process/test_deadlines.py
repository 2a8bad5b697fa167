# SPDX-License-Identifier: Apache-2.0
"""Deadlines that the keeper enforces with or without an agent."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from refloat.agent import machine_info
from refloat.agent.process import keeper_client
from refloat.agent.process.keeper_client import KeeperError
from refloat.agent.runtime import StartError
from refloat.agent.self_fence import KILL_GRACE_SECONDS
from refloat.base.clock import RealClock
from tests.unit.agent.process.node import ProcessNode, is_alive, node, pod, sh, until

LONG = 1000.0

# What a container may do so as not to be found: other sessions, a daemon, no mark, deaf ears.
HIDING = (
    "trap '' TERM; setsid sleep 100 & (setsid sh -c 'sleep 100 & sleep 100' &)"
    "; env -i sleep 100 & echo pid $!; (env -i setsid sleep 100 & echo pid $!)"
    "; echo ready; while :; do sleep 1; done"
)


def now() -> float:
    return RealClock().monotonic()


async def again(here: ProcessNode) -> None:
    """The same node with a new agent."""
    await here.runtime.close()
    await here.reopen()


async def move(here: ProcessNode, uid: str, seconds: float) -> float:
    """Set a pod's deadline, and wait for the keeper's answer. Returns the deadline."""
    deadline = now() + seconds
    await here.runtime.arm(uid, deadline)
    return deadline


@pytest.mark.parametrize("groups", [True, False], ids=["cgroup", "inherited"])
async def test_all_of_a_pod_is_killed_at_its_deadline_without_an_agent(
    tmp_path: Path, groups: bool
) -> None:
    async with node(tmp_path, use_groups=groups) as here:
        await here.start(pod("b", "sleep", "100"))
        beside = here.processes()
        await move(here, "a", LONG)
        await here.start(sh("a", HIDING))
        printed = (await here.printed("a", "ready")).split()
        unmarked = [int(each) for each in printed if each.isdigit()]
        await move(here, "b", 1.0)
        deadline = await move(here, "a", 0.5)
        here.runtime.extend({"b": deadline + LONG})
        await here.runtime.close()
        await until(lambda: now() > deadline)
        await here.reopen()
        record = await here.ended("a")
        assert (record.exit_code, record.reason) == (137, "Fenced")
        assert record.finished_at is not None
        assert here.processes() == beside
        assert [pid for pid in unmarked if is_alive(pid)] == []
        assert len(unmarked) == 2
        assert here.runtime.deadlines() == {"a": deadline, "b": deadline + LONG}
        here.runtime.stop("b", "main", 0)
        await here.ended("b")


@pytest.mark.parametrize("groups", [True, False], ids=["cgroup", "inherited"])
async def test_all_pods_of_a_full_node_are_dead_within_the_promised_time(
    tmp_path: Path, groups: bool
) -> None:
    """As in an outage of the API: all deadlines of a node pass at once."""
    uids = [f"p{number}" for number in range(machine_info.MAX_PODS)]
    async with node(tmp_path, use_groups=groups) as here:
        for uid in uids:
            await here.start(sh(uid, "for i in 1 2 3 4; do setsid sleep 100 & done; wait"))
            await move(here, uid, LONG)
        deadline = now() + 0.5
        here.runtime.extend(dict.fromkeys(uids, deadline))
        for uid in uids:
            assert (await here.ended(uid)).reason == "Fenced"
        assert now() < deadline + KILL_GRACE_SECONDS
        assert here.processes() == []


async def test_a_deadline_holds_while_a_pod_ends_with_grace(tmp_path: Path) -> None:
    hook = {"preStop": {"exec": {"command": ["sleep", "100"]}}}
    async with node(tmp_path) as here:
        await move(here, "a", LONG)
        await here.start(sh("a", "trap '' TERM; while :; do sleep 1; done", lifecycle=hook))
        here.runtime.stop("a", "main", LONG)
        deadline = await move(here, "a", 0.5)
        await again(here)
        assert (await here.ended("a")).reason == "Fenced"
        assert now() >= deadline


async def test_an_agent_that_restarts_finds_deadlines_and_can_move_them(here: ProcessNode) -> None:
    deadline = await move(here, "a", LONG)
    await here.start(pod("a", "sleep", "100"))
    await again(here)
    assert here.runtime.deadlines() == {"a": deadline}
    here.runtime.extend({"a": deadline + 10})
    await again(here)
    assert here.runtime.deadlines() == {"a": deadline + 10}
    assert not here.current("a").has_ended
    here.runtime.extend({"a": now() + 0.1})
    assert (await here.ended("a")).reason == "Fenced"


async def test_an_extension_that_is_heard_too_late_changes_nothing(here: ProcessNode) -> None:
    """A stopped keeper gets the request together with its timer, or before."""
    await move(here, "a", LONG)
    await here.start(pod("a", "sleep", "100"))
    keeper = here.runtime.features["pid"]
    deadline = await move(here, "a", 0.4)
    os.kill(keeper, signal.SIGSTOP)
    here.runtime.extend({"a": deadline + LONG})  # in time, but the request waits in the socket
    await until(lambda: now() > deadline)
    late = await keeper_client.connect(here.settings.folder, lambda _: None, lambda _: None)
    answer = late.send("deadlines", at={"a": deadline + LONG})
    os.kill(keeper, signal.SIGCONT)
    assert (await answer)["passed"] == ["a"]
    assert (await here.ended("a")).reason == "Fenced"
    await late.close()


async def test_a_new_keeper_knows_a_deadline_before_anything_runs(here: ProcessNode) -> None:
    deadline = await move(here, "a", LONG)
    await here.start(pod("a", "sleep", "100"))
    os.kill(here.runtime.features["pid"], signal.SIGKILL)
    assert (await here.ended("a")).exit_code == 137
    await here.start(pod("a", "sleep", "100"), attempt=1)
    await again(here)
    assert here.runtime.deadlines() == {"a": deadline}
    await move(here, "a", 0.1)
    assert (await here.ended("a")).reason == "Fenced"


async def test_a_new_keeper_starts_nothing_after_the_deadline(here: ProcessNode) -> None:
    await move(here, "a", LONG)
    await here.start(pod("a", "sleep", "100"))
    deadline = await move(here, "a", 0.5)
    os.kill(here.runtime.features["pid"], signal.SIGKILL)
    await here.ended("a")
    await until(lambda: now() > deadline)
    here.runtime.extend({"a": deadline + LONG})
    with pytest.raises(StartError, match="its deadline has passed"):
        await here.start(pod("a", "sleep", "100"), attempt=1)
    assert here.runtime.deadlines() == {"a": deadline}


async def test_a_pod_that_has_nothing_running_is_told_of_too(here: ProcessNode) -> None:
    await here.run(sh("a", "exit 3"))
    here.changes.clear()
    await move(here, "a", 0.5)
    await until(lambda: here.changes == ["a"])
    assert here.current("a").exit_code == 3
    with pytest.raises(StartError, match="its deadline has passed"):
        await here.start(pod("a", "true"), attempt=1)


async def test_a_keeper_that_is_gone_arms_nobody(here: ProcessNode) -> None:
    keeper = here.runtime.features["pid"]
    os.kill(keeper, signal.SIGSTOP)
    arming = asyncio.ensure_future(here.runtime.arm("a", now() + LONG))
    await asyncio.sleep(0)
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(StartError, match="the keeper is gone"):
        await arming
    assert here.runtime.deadlines() == {}


@pytest.mark.parametrize("when", [-1, float("inf"), float("nan"), 1e300, "soon", [1]])
async def test_a_keeper_refuses_what_is_no_time_and_keeps_the_others(
    here: ProcessNode, when: Any
) -> None:
    await move(here, "a", LONG)
    await here.start(pod("a", "sleep", "100"))
    other = await keeper_client.connect(here.settings.folder, lambda _: None, lambda _: None)
    with pytest.raises(KeeperError, match="deadlines: "):
        await other.send("deadlines", at={"a": when})
    await other.close()
    await move(here, "a", 0.2)
    assert (await here.ended("a")).reason == "Fenced"
