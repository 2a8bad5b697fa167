# SPDX-License-Identifier: Apache-2.0
"""Gates of Jobs, switched off and on again, in one place or in all (docs/gates.md)."""

from typing import Any

import pytest

from refloat.api import structs
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.controllers.job.settings import Settings
from refloat.policy import job_conditions
from refloat.policy.switches import Switches
from refloat.sim.run import Sim
from tests.simulation import gate_table, job_world
from tests.simulation.gate_table import CONDITIONS, FAILURE, REPLACEMENT, Row
from tests.simulation.job_world import FOREVER, NAMESPACE, OK, Run, World
from tests.virtual import virtual

ON = Gates()
OFF = Gates({FAILURE: False, CONDITIONS: False, REPLACEMENT: False})
NO_FAILURE = Gates({FAILURE: False})
NO_REPLACEMENT = Gates({REPLACEMENT: False})
NO_CONDITIONS = Gates({CONDITIONS: False})

FAIL_ON_42 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
IGNORE_DISRUPTIONS = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}

EXITS_42 = Run(seconds=5, exit_code=42)
SLOW = Run(seconds=FOREVER.seconds, stop_seconds=60)


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"rules": list(rules)}


def end_of(job: Job) -> tuple[str, str] | None:
    """The condition by which the Job is over, and why."""
    for each in job.status.conditions or ():
        if each.type in ("Complete", "Failed") and each.status == "True":
            return each.type, each.reason
    return None


def pods_of(world: World, job: str) -> list[Pod]:
    """All that there ever were."""
    owners = [pod.metadata.controller for pod in world.kubelet.created]
    return [
        pod
        for pod, owner in zip(world.kubelet.created, owners, strict=True)
        if owner is not None and owner.name == job
    ]


# -- the table ---------------------------------------------------------------------


def test_all_combinations_are_documented_once() -> None:
    documented = [(row.failure, row.conditions, row.replacement, row.job) for row in ROWS]
    switch = gate_table.SWITCH
    assert documented == [
        (switch[failure], switch[conditions], switch[replacement], job)
        for failure, conditions, replacement, job in gate_table.cases()
    ]


ROWS = gate_table.documented()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:4]))
@virtual()
async def test_a_row_of_the_table(sim: Sim, row: Row) -> None:
    assert await gate_table.observe(sim, row.on, row.job) == row


def test_all_gates_are_documented() -> None:
    text = gate_table.DOCUMENT.read_text()
    for gate in gates.KNOWN:
        default = gate_table.SWITCH[gate.default]
        assert f"| `{gate.name}` | {default} | {gate.stage} | {gate.kep} |" in text


# -- KEP-3329: upgrade, downgrade, upgrade -----------------------------------------


async def exit_42(world: World, name: str) -> tuple[tuple[str, str] | None, int]:
    """Scenario 1: a container that fails with 42, and a rule FailJob on it."""
    await world.submit(name, backoffLimit=3, podFailurePolicy=policy(FAIL_ON_42))
    job = await world.finished(name)
    return end_of(job), len(pods_of(world, name))


async def drain(world: World, name: str) -> tuple[tuple[str, str] | None, int]:
    """Scenario 2: a node is drained, and the Job has no failure to spare."""
    await world.submit(name, backoffLimit=0, podFailurePolicy=policy(IGNORE_DISRUPTIONS))
    await world.sleep(5)
    [pod] = pods_of(world, name)
    await world.client.evict(pod.metadata.name, namespace=NAMESPACE)
    job = await world.finished(name)
    return end_of(job), len(pods_of(world, name))


SCENARIOS = {"exit": exit_42, "drain": drain}

ENDS = {
    ("exit", True): (("Failed", "PodFailurePolicy"), 1),
    ("exit", False): (("Complete", "CompletionsReached"), 2),
    ("drain", True): (("Complete", "CompletionsReached"), 2),
    ("drain", False): (("Failed", "BackoffLimitExceeded"), 1),
}


def by_name(pod: Pod, number: int) -> Run:
    if number:
        return OK
    return EXITS_42 if pod.metadata.name.startswith("exit") else FOREVER


@pytest.mark.parametrize("scenario", SCENARIOS)
@virtual(seeds=3)
async def test_kep_3329_upgrade_downgrade_upgrade(sim: Sim, scenario: str) -> None:
    """Off, on, off and on again: each time as the first time."""
    async with job_world.world(sim, by_name) as world:
        for turn, on in enumerate([False, True, False, True]):
            await world.switch(ON if on else OFF)
            seen = await SCENARIOS[scenario](world, f"{scenario}-{turn}")
            assert seen == ENDS[scenario, on]


@pytest.mark.parametrize("restarts", [True, False], ids=["restarted", "taken up while it runs"])
@virtual(seeds=3)
async def test_a_job_that_keeps_its_policy_heeds_it_when_it_may(sim: Sim, restarts: bool) -> None:
    """One Job of three pods that fail alike; the gate says what each of them means."""
    script = job_world.in_turn(*[Run(seconds=100, exit_code=42)] * 3)
    async with job_world.world(sim, script) as world:
        await world.submit(backoffLimit=6, podFailurePolicy=policy(FAIL_ON_42))
        for gate in (NO_FAILURE, ON, NO_FAILURE):
            await switched(world, gate, restarts=restarts)
        await world.sleep(150)
        assert (await world.job()).status.failed == 1
        for gate in (ON, NO_FAILURE):
            await switched(world, gate, restarts=restarts)
        await world.sleep(120)
        assert (await world.job()).status.failed == 2
        await switched(world, ON, restarts=restarts)
        job = await world.finished()
        assert end_of(job) == ("Failed", "PodFailurePolicy")
        assert len(world.kubelet.created) == 3
        last = world.kubelet.created[-1].metadata.name
        failed = structs.find(job.status.conditions, "Failed")
        assert failed is not None
        assert failed.message == (
            f"Container main for pod default/{last} failed with exit code 42 "
            "matching FailJob rule at index 0"
        )


async def switched(world: World, gate: Gates, *, restarts: bool) -> None:
    if restarts:
        await world.switch(gate)
    else:
        world.process.job_controller.take_up(Settings(switches=Switches.of(gate)))
        await world.sleep(0.1)


@virtual(seeds=5)
async def test_a_pod_that_was_counted_is_not_judged_again(sim: Sim) -> None:
    script = job_world.in_turn(EXITS_42, FOREVER)
    async with job_world.world(sim, script) as world:
        await world.switch(NO_FAILURE, server=ON)
        await world.submit(podFailurePolicy=policy(FAIL_ON_42))
        await world.sleep(30)
        await world.switch(ON)
        await world.sleep(60)
        job = await world.job()
        assert (end_of(job), job.status.failed, job.status.active) == (None, 1, 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 7))
@virtual()
async def test_what_is_written_down_is_not_judged_again_after_a_crash(
    sim: Sim, write: int, *, after: bool
) -> None:
    """A controller without the gate dies at one of its writes; its successor has the gate.

    Whether the failure was in the status then, counted or listed, says what
    becomes of it: the one decides as the other would have, and never twice.
    """
    script = job_world.in_turn(EXITS_42, OK)
    async with job_world.world(sim, script) as world:
        await world.switch(NO_FAILURE, server=ON)
        world.process.client.dies_at, world.process.client.dies_after = write, after
        await world.submit(podFailurePolicy=policy(FAIL_ON_42))
        await world.process.client.died.wait()
        await world.sleep(30)
        status = (await world.job()).status
        listed = status.uncounted_terminated_pods
        known = status.failed > 0 or (listed is not None and bool(listed.failed))
        await world.switch(ON)
        ended = await world.finished()
        want = ("Complete", "CompletionsReached") if known else ("Failed", "PodFailurePolicy")
        assert (end_of(ended), ended.status.failed) == (want, 1)


@virtual(seeds=5)
async def test_a_pod_that_was_counted_is_not_forgiven(sim: Sim) -> None:
    """Evicted and counted while Ignore was not heeded: the count stays."""
    script = job_world.in_turn(FOREVER)
    async with job_world.world(sim, script) as world:
        await world.submit(podFailurePolicy=policy(IGNORE_DISRUPTIONS))
        await world.switch(NO_FAILURE)
        await world.sleep(5)
        [pod] = world.kubelet.created
        await world.client.evict(pod.metadata.name, namespace=NAMESPACE)
        await world.sleep(30)
        assert (await world.job()).status.failed == 1
        await world.switch(ON)
        await world.sleep(60)
        job = await world.job()
        assert (job.status.failed, job.status.active) == (1, 1)


@virtual(seeds=5)
async def test_an_end_that_was_decided_is_not_taken_back(sim: Sim) -> None:
    """FailureTarget stands while the last pods end, whatever the gate says meanwhile."""

    def script(_: Pod, number: int) -> Run:
        return SLOW if number else EXITS_42

    async with job_world.world(sim, script) as world:
        await world.submit(parallelism=2, completions=2, podFailurePolicy=policy(FAIL_ON_42))
        await world.sleep(10)
        job = await world.job()
        conditions = [each.type for each in job.status.conditions or ()]
        assert conditions == [job_conditions.FAILURE_TARGET]
        await world.switch(OFF)
        job = await world.finished()
        assert end_of(job) == ("Failed", "PodFailurePolicy")
        assert len(world.kubelet.created) == 2


# -- KEP-3939: disable and enable again --------------------------------------------


@virtual(seeds=5)
async def test_kep_3939_disable_and_reenable(sim: Sim) -> None:
    """Its integration test, step by step."""

    def script(_: Pod, number: int) -> Run:
        # The first ends well when it is told to stop, the others do not.
        return Run(seconds=1e9, stop_seconds=60, stop_code=143 if number else 0)

    async with job_world.world(sim, script) as world:
        await world.submit(parallelism=2, completions=9, podReplacementPolicy="Failed")
        await world.sleep(5)
        first, second = world.kubelet.created
        assert (await world.job()).status.terminating == 0

        await world.switch(NO_REPLACEMENT)
        await world.delete_pod(first.metadata.name)
        await world.sleep(30)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 2, None)
        assert len(world.kubelet.created) == 3

        await world.switch(ON)
        await world.sleep(5)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 2, 1)
        await world.sleep(60)
        assert first.metadata.uid in world.kubelet.done  # it ended well
        status = (await world.job()).status
        assert (status.failed, status.succeeded, status.active, status.terminating) == (1, 0, 2, 0)

        await world.delete_pod(second.metadata.name)
        await world.sleep(50)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 1, 1)
        assert len(world.kubelet.created) == 3
        await world.sleep(40)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (2, 2, 0)
        assert len(world.kubelet.created) == 4


MODES: dict[str, dict[str, Any]] = {
    "NonIndexed": {},
    "Indexed": {"completionMode": "Indexed", "completions": 1},
    "Indexed, a limit for each": {
        "completionMode": "Indexed",
        "completions": 1,
        "backoffLimitPerIndex": 3,
    },
}


@pytest.mark.parametrize("mode", MODES)
@virtual(seeds=3)
async def test_a_pod_that_counted_while_the_gate_was_off_is_waited_for_if_nobody_took_its_place(
    sim: Sim, mode: str
) -> None:
    """It counts once; its replacement, which the delay put off, comes when it has ended."""
    async with job_world.world(sim, job_world.in_turn(SLOW)) as world:
        await world.submit(podReplacementPolicy="Failed", **MODES[mode])
        await world.switch(NO_REPLACEMENT)
        await world.sleep(5)
        await world.delete_pod(world.kubelet.created[0].metadata.name)
        await world.sleep(4)
        await world.switch(ON)
        await world.sleep(40)
        status = (await world.job()).status
        assert (status.active, status.terminating) == (0, 1)
        assert len(world.kubelet.created) == 1
        await world.sleep(40)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 1, 0)
        assert len(world.kubelet.created) == 2


@pytest.mark.parametrize("mode", MODES)
@virtual(seeds=3)
async def test_a_pod_that_is_waited_for_counts_when_the_gate_goes_off(sim: Sim, mode: str) -> None:
    async with job_world.world(sim, job_world.in_turn(SLOW)) as world:
        await world.submit(podReplacementPolicy="Failed", **MODES[mode])
        await world.sleep(5)
        await world.delete_pod(world.kubelet.created[0].metadata.name)
        await world.sleep(20)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (0, 0, 1)
        await world.switch(NO_REPLACEMENT)
        await world.sleep(20)
        status = (await world.job()).status
        assert (status.active, status.terminating) == (1, None)
        assert len(world.kubelet.created) == 2
        await world.switch(ON)
        await world.sleep(60)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 1, 0)
        assert len(world.kubelet.created) == 2


@virtual(seeds=3)
async def test_an_index_is_given_up_only_while_the_policy_may(sim: Sim) -> None:
    """FailIndex, off and on: the index that fails meanwhile is tried again."""

    def script(pod: Pod, number: int) -> Run:
        return OK if number else EXITS_42

    rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": 1,
        "backoffLimitPerIndex": 3,
        "podFailurePolicy": policy(rule),
    }
    async with job_world.world(sim, script) as world:
        for turn, want in enumerate(
            [("Complete", "CompletionsReached"), ("Failed", "FailedIndexes")] * 2
        ):
            await world.switch(ON if turn % 2 else NO_FAILURE, server=ON)
            await world.submit(f"job-{turn}", **spec)
            assert end_of(await world.finished(f"job-{turn}")) == want


@pytest.mark.parametrize("replacement", ["Failed", "TerminatingOrFailed"])
@virtual()
async def test_terminating_is_cleared_by_the_next_sync(sim: Sim, replacement: str) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit(podReplacementPolicy=replacement)
        for gate, want in ((ON, 0), (NO_REPLACEMENT, None), (ON, 0), (OFF, None)):
            await world.switch(gate)
            await world.sleep(5)
            status = (await world.job()).status
            assert (status.terminating, status.active) == (want, 1)


@virtual()
async def test_a_job_waits_for_its_last_pods_whatever_the_gate(sim: Sim) -> None:
    """No terminal condition before the pods have ended, though nobody reports them."""
    async with job_world.world(sim, job_world.in_turn(SLOW)) as world:
        await world.switch(OFF)
        await world.submit(activeDeadlineSeconds=10)
        await world.sleep(50)
        job = await world.job()
        assert [each.type for each in job.status.conditions or ()] == ["FailureTarget"]
        assert job.status.terminating is None
        assert end_of(await world.finished()) == ("Failed", "DeadlineExceeded")
        assert world.seconds > 70


# -- components that differ --------------------------------------------------------


@virtual(seeds=3)
async def test_a_server_that_is_ahead_stores_what_the_controller_does_not_heed(sim: Sim) -> None:
    async with job_world.world(sim, by_name) as world:
        await world.switch(OFF, server=ON)
        assert await exit_42(world, "exit-1") == ENDS["exit", False]
        assert (await world.job("exit-1")).spec.pod_failure_policy is not None
        await world.switch(ON)
        assert await exit_42(world, "exit-2") == ENDS["exit", True]


@virtual(seeds=3)
async def test_a_controller_that_is_ahead_heeds_what_is_stored(sim: Sim) -> None:
    async with job_world.world(sim, by_name) as world:
        await world.submit("exit-old", podFailurePolicy=policy(FAIL_ON_42))
        await world.switch(ON, server=OFF)
        assert end_of(await world.finished("exit-old")) == ("Failed", "PodFailurePolicy")
        assert await exit_42(world, "exit-new") == ENDS["exit", False]
        assert (await world.job("exit-new")).spec.pod_failure_policy is None


@pytest.mark.parametrize(
    ("server", "controller", "ignored"),
    [
        pytest.param(ON, ON, True, id="both on"),
        pytest.param(ON, NO_CONDITIONS, True, id="the server adds it, and that is enough"),
        pytest.param(NO_CONDITIONS, ON, False, id="the server does not add it"),
        pytest.param(NO_CONDITIONS, NO_CONDITIONS, False, id="both off"),
    ],
)
@virtual()
async def test_the_condition_is_up_to_whoever_evicts(
    sim: Sim, server: Gates, controller: Gates, ignored: bool
) -> None:
    async with job_world.world(sim, by_name) as world:
        await world.switch(controller, server=server)
        assert await drain(world, "drain-1") == ENDS["drain", ignored]


@virtual()
async def test_a_condition_that_is_there_counts_after_its_gate_is_off(sim: Sim) -> None:
    def script(_: Pod, number: int) -> Run:
        return OK if number else SLOW

    async with job_world.world(sim, script) as world:
        await world.submit(backoffLimit=0, podFailurePolicy=policy(IGNORE_DISRUPTIONS))
        await world.sleep(5)
        [pod] = world.kubelet.created
        await world.client.evict(pod.metadata.name, namespace=NAMESPACE)
        await world.switch(NO_CONDITIONS)
        assert end_of(await world.finished()) == ("Complete", "CompletionsReached")


@virtual(seeds=3)
async def test_a_server_without_replacement_policies_makes_a_controller_no_trouble(
    sim: Sim,
) -> None:
    """The field is not there; the controller takes its default for granted."""
    async with job_world.world(sim, job_world.in_turn(SLOW)) as world:
        await world.switch(ON, server=NO_REPLACEMENT)
        await world.submit(podReplacementPolicy="Failed")
        await world.sleep(5)
        [pod] = world.kubelet.created
        await world.delete_pod(pod.metadata.name)
        await world.sleep(30)
        status = (await world.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 1, 1)
