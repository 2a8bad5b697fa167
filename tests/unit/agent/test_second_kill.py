# SPDX-License-Identifier: Apache-2.0
"""Pods that the node ends while they end already: the grace only ever shrinks (behaviour D4.2)."""

import asyncio
from dataclasses import replace
from typing import Any

from refloat.agent.pod_status import Ending
from refloat.agent.self_fence import DEFAULT_SECONDS
from refloat.api import self_fence
from refloat.policy.node.node_shutdown import ShutdownSettings
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.unit.agent.test_endings import disruption, outcome
from tests.unit.agent.test_shutdown import CRITICAL, TEXT
from tests.virtual import virtual

SLOW = {"seconds": None, "stopSeconds": 500}
LATE: dict[str, Any] = {"activeDeadlineSeconds": 5}
SOFT = Ending("Evicted", "soft. ", insists=False, disruption="soft. ", grace_seconds=300)
HARD = replace(SOFT, message="hard. ", disruption="hard. ", grace_seconds=1)
PREEMPTED = Ending("Preempting", "room. ", disruption="room. ")


def slow(script: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that needs 500 s to end, and has 600."""
    return nodes.pod(script={"main": {**SLOW, **(script or {})}}, grace=600, spec=spec)


def kill(here: nodes.Nodes, ending: Ending) -> bool:
    (uid,) = here.runtimes["n0"].pods()
    return here.fleet.worker("n0").kill(uid, ending)


@on_nodes(seeds=3)
async def test_a_node_that_is_low_does_not_wait_for_one_past_its_deadline(here: Nodes) -> None:
    await here.create(slow(**LATE))
    await here.after(10)
    assert (await here.status())["phase"] == "Running"
    # A pod that is never evicted takes all memory.
    takes = {"main": {"seconds": None, "memory": "8128Mi"}}
    await here.create(nodes.pod("q", script=takes, spec=CRITICAL))
    await here.after(3)
    status = await here.status()
    assert outcome(status)[:2] == ("Failed", "Evicted")
    assert disruption(status) is not None
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert "Evicted" in [reason for _, reason, _ in here.events]


@virtual(
    nodes.running,
    ways=nodes.Ways(shutdown=ShutdownSettings(grace_seconds=3, critical_grace_seconds=0)),
    seeds=3,
)
async def test_a_node_that_shuts_down_does_not_wait_for_one_past_its_deadline(here: Nodes) -> None:
    await here.create(slow(**LATE))
    await here.after(10)
    off = asyncio.ensure_future(here.fleet.end_pods("n0"))
    await here.after(4)
    assert off.done()
    assert outcome(await here.status()) == ("Failed", "Terminated", TEXT)


@cases(
    "first seconds",
    {
        "one that was evicted softly": (SOFT, 10),
        "one that makes room": (PREEMPTED, 10),
        "at the same moment": (SOFT, 0),
    },
)
@on_nodes(seeds=3)
async def test_a_second_kill_that_gives_less_time_is_the_one_that_counts(
    here: Nodes, first: Ending, seconds: float
) -> None:
    await here.create(slow())
    await here.after(1)
    assert kill(here, first)
    await here.after(seconds)
    assert kill(here, HARD)
    assert not kill(here, HARD)
    await here.after(2.1)
    status = await here.status()
    assert outcome(status) == ("Failed", "Evicted", "hard. ")
    assert (condition := disruption(status)) is not None
    assert condition["message"] == "hard. "


@on_nodes(seeds=3)
async def test_a_second_kill_gives_no_more_time_though_it_has_the_last_word(here: Nodes) -> None:
    """A kubelet uses the last status function and the shortest grace."""
    await here.create(slow())
    await here.after(1)
    assert kill(here, HARD)
    assert not kill(here, SOFT)
    assert kill(here, replace(PREEMPTED, grace_seconds=300))
    await here.after(2.1)
    assert outcome(await here.status()) == ("Failed", "Preempting", "room. ")


@virtual(
    nodes.running,
    ways=nodes.Ways(shutdown=ShutdownSettings(grace_seconds=30, critical_grace_seconds=0)),
    seeds=3,
)
async def test_one_past_its_deadline_that_is_shut_down_fails_though_it_ends_well(
    here: Nodes,
) -> None:
    """A pod may succeed in a shutdown, but this pod failed before, at the deadline."""
    await here.create(slow({"stopSeconds": 12, "stopExitCode": 0}, **LATE))
    await here.after(10)
    off = asyncio.ensure_future(here.fleet.end_pods("n0"))
    await here.after(10)
    await off
    assert outcome(await here.status()) == ("Failed", "Terminated", TEXT)


@on_nodes(seeds=3)
async def test_one_past_its_deadline_is_evicted_when_it_takes_more_than_it_may(here: Nodes) -> None:
    takes = {"volumes": {"tmp": {"used": "2Gi", "sizeLimit": "1Gi"}}}
    # Because of this pod the node measures now, and then after ten seconds.
    await here.create(nodes.pod("q", script={"main": {"seconds": None, "memory": "1Mi"}}))
    await here.after(1)
    await here.create(slow(takes, **LATE))
    await here.after(8)
    assert (await here.status())["phase"] == "Running"
    await here.after(5)
    assert outcome(await here.status())[:2] == ("Failed", "Evicted")
    notes = [note for _, reason, note in here.events if reason == "Evicted"]
    assert notes == ['Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ']


@on_nodes(seeds=3)
async def test_one_that_ended_by_itself_for_its_node_is_not_said_to_be_evicted(here: Nodes) -> None:
    """Other components rely on the reason: see docs/agent.md, "Self-fencing"."""
    manifest = slow({"killSeconds": 20})
    manifest["metadata"]["annotations"][self_fence.ANNOTATION] = "true"
    await here.create(manifest)
    await here.after(15)
    here.fleet.fail("n0", "partition")
    await here.after(DEFAULT_SECONDS + 1)
    assert not kill(here, HARD)
    here.fleet.heal("n0")
    await here.after(25)
    assert outcome(await here.status())[:2] == ("Failed", "SelfFenced")
