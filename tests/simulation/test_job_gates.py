# SPDX-License-Identifier: Apache-2.0
"""Gates of Jobs, switched off and on again, in one place or in all (docs/gates.md)."""

from typing import Any

import pytest

from refloat.api import structs
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.policy.job import job_conditions
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation import gate_table, job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.gate_table import CONDITIONS, FAILURE, REPLACEMENT, GateRow
from tests.simulation.job_cluster import FOREVER, OK, JobCluster, Run
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


def pods_of(cluster: JobCluster, job: str) -> list[Pod]:
    """All that there ever were."""
    owners = [pod.metadata.controller for pod in cluster.kubelet.created]
    return [
        pod
        for pod, owner in zip(cluster.kubelet.created, owners, strict=True)
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
async def test_a_row_of_the_table(sim: Sim, row: GateRow) -> None:
    assert await gate_table.observe(sim, row.on, row.job) == row


def test_all_gates_are_documented() -> None:
    text = gate_table.DOCUMENT.read_text()
    for gate in gates.KNOWN:
        default = gate_table.SWITCH[gate.default]
        assert f"| `{gate.name}` | {default} | {gate.stage} | {gate.kep} |" in text


# -- KEP-3329: upgrade, downgrade, upgrade -----------------------------------------


async def exit_42(cluster: JobCluster, name: str) -> tuple[tuple[str, str] | None, int]:
    """Scenario 1: a container that fails with 42, and a rule FailJob on it."""
    await cluster.submit(name, backoffLimit=3, podFailurePolicy=policy(FAIL_ON_42))
    job = await cluster.finished(name)
    return end_of(job), len(pods_of(cluster, name))


async def drain(cluster: JobCluster, name: str) -> tuple[tuple[str, str] | None, int]:
    """Scenario 2: a node is drained, and the Job has no failure to spare."""
    await cluster.submit(name, backoffLimit=0, podFailurePolicy=policy(IGNORE_DISRUPTIONS))
    await cluster.sleep(5)
    [pod] = pods_of(cluster, name)
    await cluster.client.evict(pod.metadata.name, namespace=NAMESPACE)
    job = await cluster.finished(name)
    return end_of(job), len(pods_of(cluster, name))


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
@virtual(JobCluster, by_name, seeds=3)
async def test_kep_3329_upgrade_downgrade_upgrade(cluster: JobCluster, scenario: str) -> None:
    """Off, on, off and on again: each time as the first time."""
    for turn, on in enumerate([False, True, False, True]):
        await cluster.switch(ON if on else OFF)
        ending = await SCENARIOS[scenario](cluster, f"{scenario}-{turn}")
        assert ending == ENDS[scenario, on]


@pytest.mark.parametrize("restarts", [True, False], ids=["restarted", "taken up while it runs"])
@virtual(JobCluster, job_cluster.in_turn(*[Run(seconds=100, exit_code=42)] * 3), seeds=3)
async def test_kept_policy_counts_when_its_gate_is_on(cluster: JobCluster, restarts: bool) -> None:
    """One Job of three pods that fail alike; the gate says what each of them means."""
    await cluster.submit(backoffLimit=6, podFailurePolicy=policy(FAIL_ON_42))
    for gate in (NO_FAILURE, ON, NO_FAILURE):
        await switched(cluster, gate, restarts=restarts)
    await cluster.sleep(150)
    assert (await cluster.job()).status.failed == 1
    for gate in (ON, NO_FAILURE):
        await switched(cluster, gate, restarts=restarts)
    await cluster.sleep(120)
    assert (await cluster.job()).status.failed == 2
    await switched(cluster, ON, restarts=restarts)
    job = await cluster.finished()
    assert end_of(job) == ("Failed", "PodFailurePolicy")
    assert len(cluster.kubelet.created) == 3
    last = cluster.kubelet.created[-1].metadata.name
    failed = structs.find(job.status.conditions, "Failed")
    assert failed is not None
    assert failed.message == (
        f"Container main for pod default/{last} failed with exit code 42 "
        "matching FailJob rule at index 0"
    )


async def switched(cluster: JobCluster, gate: Gates, *, restarts: bool) -> None:
    if restarts:
        await cluster.switch(gate)
    else:
        cluster.process.env.update(gates=gate)
        await cluster.sleep(0.1)


@virtual(JobCluster, job_cluster.in_turn(EXITS_42, FOREVER), seeds=5)
async def test_a_pod_that_was_counted_is_not_judged_again(cluster: JobCluster) -> None:
    await cluster.switch(NO_FAILURE, server=ON)
    await cluster.submit(podFailurePolicy=policy(FAIL_ON_42))
    await cluster.sleep(30)
    await cluster.switch(ON)
    await cluster.sleep(60)
    job = await cluster.job()
    assert (end_of(job), job.status.failed, job.status.active) == (None, 1, 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 7))
@virtual(JobCluster, job_cluster.in_turn(EXITS_42, OK))
async def test_what_is_written_down_is_not_judged_again_after_a_crash(
    cluster: JobCluster, write: int, *, after: bool
) -> None:
    """A controller without the gate dies at one of its writes; its successor has the gate.

    Whether the failure was in the status then, counted or listed, says what
    becomes of the pod: the one decides as the other would have, and never twice.
    """
    await cluster.switch(NO_FAILURE, server=ON)
    cluster.faulty.dies_at, cluster.faulty.dies_after = write, after
    await cluster.submit(podFailurePolicy=policy(FAIL_ON_42))
    await cluster.faulty.died.wait()
    await cluster.sleep(30)
    status = (await cluster.job()).status
    uncounted = status.uncounted_terminated_pods
    is_counted = status.failed > 0 or (uncounted is not None and bool(uncounted.failed))
    await cluster.switch(ON)
    finished_job = await cluster.finished()
    want = ("Complete", "CompletionsReached") if is_counted else ("Failed", "PodFailurePolicy")
    assert (end_of(finished_job), finished_job.status.failed) == (want, 1)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_a_pod_that_was_counted_is_not_forgiven(cluster: JobCluster) -> None:
    """Evicted and counted while Ignore was not heeded: the count stays."""
    await cluster.submit(podFailurePolicy=policy(IGNORE_DISRUPTIONS))
    await cluster.switch(NO_FAILURE)
    await cluster.sleep(5)
    [pod] = cluster.kubelet.created
    await cluster.client.evict(pod.metadata.name, namespace=NAMESPACE)
    await cluster.sleep(30)
    assert (await cluster.job()).status.failed == 1
    await cluster.switch(ON)
    await cluster.sleep(60)
    job = await cluster.job()
    assert (job.status.failed, job.status.active) == (1, 1)


@virtual(seeds=5)
async def test_an_end_that_was_decided_is_not_taken_back(sim: Sim) -> None:
    """FailureTarget stands while the last pods end, whatever the gate says meanwhile."""

    def script(_: Pod, number: int) -> Run:
        return SLOW if number else EXITS_42

    async with JobCluster(sim, script) as cluster:
        await cluster.submit(parallelism=2, completions=2, podFailurePolicy=policy(FAIL_ON_42))
        await cluster.sleep(10)
        job = await cluster.job()
        conditions = [each.type for each in job.status.conditions or ()]
        assert conditions == [job_conditions.FAILURE_TARGET]
        await cluster.switch(OFF)
        job = await cluster.finished()
        assert end_of(job) == ("Failed", "PodFailurePolicy")
        assert len(cluster.kubelet.created) == 2


# -- KEP-3939: disable and enable again --------------------------------------------


@virtual(seeds=5)
async def test_kep_3939_disable_and_reenable(sim: Sim) -> None:
    """Its integration test, step by step."""

    def script(_: Pod, number: int) -> Run:
        # The first ends well when stopped, the others do not.
        return Run(seconds=1e9, stop_seconds=60, stop_code=143 if number else 0)

    async with JobCluster(sim, script) as cluster:
        await cluster.submit(parallelism=2, completions=9, podReplacementPolicy="Failed")
        await cluster.sleep(5)
        first, second = cluster.kubelet.created
        assert (await cluster.job()).status.terminating == 0

        await cluster.switch(NO_REPLACEMENT)
        await cluster.delete(first.metadata.name)
        await cluster.sleep(30)
        status = (await cluster.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 2, None)
        assert len(cluster.kubelet.created) == 3

        await cluster.switch(ON)
        await cluster.sleep(5)
        status = (await cluster.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 2, 1)
        await cluster.sleep(60)
        assert first.metadata.uid in cluster.kubelet.done  # the pod ended well
        status = (await cluster.job()).status
        assert (status.failed, status.succeeded, status.active, status.terminating) == (1, 0, 2, 0)

        await cluster.delete(second.metadata.name)
        await cluster.sleep(50)
        status = (await cluster.job()).status
        assert (status.failed, status.active, status.terminating) == (1, 1, 1)
        assert len(cluster.kubelet.created) == 3
        await cluster.sleep(40)
        status = (await cluster.job()).status
        assert (status.failed, status.active, status.terminating) == (2, 2, 0)
        assert len(cluster.kubelet.created) == 4


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
@virtual(JobCluster, job_cluster.in_turn(SLOW), seeds=3)
async def test_a_pod_that_counted_while_the_gate_was_off_is_waited_for_if_nobody_took_its_place(
    cluster: JobCluster, mode: str
) -> None:
    """The pod counts once; its replacement, which the delay put off, comes after its end."""
    await cluster.submit(podReplacementPolicy="Failed", **MODES[mode])
    await cluster.switch(NO_REPLACEMENT)
    await cluster.sleep(5)
    await cluster.delete(cluster.kubelet.created[0].metadata.name)
    await cluster.sleep(4)
    await cluster.switch(ON)
    await cluster.sleep(40)
    status = (await cluster.job()).status
    assert (status.active, status.terminating) == (0, 1)
    assert len(cluster.kubelet.created) == 1
    await cluster.sleep(40)
    status = (await cluster.job()).status
    assert (status.failed, status.active, status.terminating) == (1, 1, 0)
    assert len(cluster.kubelet.created) == 2


@pytest.mark.parametrize("mode", MODES)
@virtual(JobCluster, job_cluster.in_turn(SLOW), seeds=3)
async def test_pod_waited_for_counts_when_the_gate_goes_off(cluster: JobCluster, mode: str) -> None:
    await cluster.submit(podReplacementPolicy="Failed", **MODES[mode])
    await cluster.sleep(5)
    await cluster.delete(cluster.kubelet.created[0].metadata.name)
    await cluster.sleep(20)
    status = (await cluster.job()).status
    assert (status.failed, status.active, status.terminating) == (0, 0, 1)
    await cluster.switch(NO_REPLACEMENT)
    await cluster.sleep(20)
    status = (await cluster.job()).status
    assert (status.active, status.terminating) == (1, None)
    assert len(cluster.kubelet.created) == 2
    await cluster.switch(ON)
    await cluster.sleep(60)
    status = (await cluster.job()).status
    assert (status.failed, status.active, status.terminating) == (1, 1, 0)
    assert len(cluster.kubelet.created) == 2


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
    async with JobCluster(sim, script) as cluster:
        for turn, want in enumerate(
            [("Complete", "CompletionsReached"), ("Failed", "FailedIndexes")] * 2
        ):
            await cluster.switch(ON if turn % 2 else NO_FAILURE, server=ON)
            await cluster.submit(f"job-{turn}", **spec)
            assert end_of(await cluster.finished(f"job-{turn}")) == want


@pytest.mark.parametrize("replacement", ["Failed", "TerminatingOrFailed"])
@virtual(JobCluster, job_cluster.in_turn(FOREVER))
async def test_terminating_is_cleared_by_next_sync(cluster: JobCluster, replacement: str) -> None:
    await cluster.submit(podReplacementPolicy=replacement)
    for gate, want in ((ON, 0), (NO_REPLACEMENT, None), (ON, 0), (OFF, None)):
        await cluster.switch(gate)
        await cluster.sleep(5)
        status = (await cluster.job()).status
        assert (status.terminating, status.active) == (want, 1)


@virtual(JobCluster, job_cluster.in_turn(SLOW))
async def test_a_job_waits_for_its_last_pods_whatever_the_gate(cluster: JobCluster) -> None:
    """No terminal condition before the pods have ended, though no count reports them."""
    await cluster.switch(OFF)
    await cluster.submit(activeDeadlineSeconds=10)
    await cluster.sleep(50)
    job = await cluster.job()
    assert [each.type for each in job.status.conditions or ()] == ["FailureTarget"]
    assert job.status.terminating is None
    assert end_of(await cluster.finished()) == ("Failed", "DeadlineExceeded")
    assert cluster.seconds > 70


# -- components that differ --------------------------------------------------------


@virtual(JobCluster, by_name, seeds=3)
async def test_server_ahead_stores_what_the_controller_does_not_heed(cluster: JobCluster) -> None:
    await cluster.switch(OFF, server=ON)
    assert await exit_42(cluster, "exit-1") == ENDS["exit", False]
    assert (await cluster.job("exit-1")).spec.pod_failure_policy is not None
    await cluster.switch(ON)
    assert await exit_42(cluster, "exit-2") == ENDS["exit", True]


@virtual(JobCluster, by_name, seeds=3)
async def test_a_controller_that_is_ahead_heeds_what_is_stored(cluster: JobCluster) -> None:
    await cluster.submit("exit-old", podFailurePolicy=policy(FAIL_ON_42))
    await cluster.switch(ON, server=OFF)
    assert end_of(await cluster.finished("exit-old")) == ("Failed", "PodFailurePolicy")
    assert await exit_42(cluster, "exit-new") == ENDS["exit", False]
    assert (await cluster.job("exit-new")).spec.pod_failure_policy is None


@cases(
    "server controller ignored",
    {
        "both on": (ON, ON, True),
        "the server adds it, and that is enough": (ON, NO_CONDITIONS, True),
        "the server does not add it": (NO_CONDITIONS, ON, False),
        "both off": (NO_CONDITIONS, NO_CONDITIONS, False),
    },
)
@virtual(JobCluster, by_name)
async def test_the_condition_is_up_to_whoever_evicts(
    cluster: JobCluster, server: Gates, controller: Gates, ignored: bool
) -> None:
    await cluster.switch(controller, server=server)
    assert await drain(cluster, "drain-1") == ENDS["drain", ignored]


@virtual()
async def test_a_condition_that_is_there_counts_after_its_gate_is_off(sim: Sim) -> None:
    def script(_: Pod, number: int) -> Run:
        return OK if number else SLOW

    async with JobCluster(sim, script) as cluster:
        await cluster.submit(backoffLimit=0, podFailurePolicy=policy(IGNORE_DISRUPTIONS))
        await cluster.sleep(5)
        [pod] = cluster.kubelet.created
        await cluster.client.evict(pod.metadata.name, namespace=NAMESPACE)
        await cluster.switch(NO_CONDITIONS)
        assert end_of(await cluster.finished()) == ("Complete", "CompletionsReached")


@virtual(JobCluster, job_cluster.in_turn(SLOW), seeds=3)
async def test_a_server_without_replacement_policies_makes_a_controller_no_trouble(
    cluster: JobCluster,
) -> None:
    """The field is missing; the controller uses its default."""
    await cluster.switch(ON, server=NO_REPLACEMENT)
    await cluster.submit(podReplacementPolicy="Failed")
    await cluster.sleep(5)
    [pod] = cluster.kubelet.created
    await cluster.delete(pod.metadata.name)
    await cluster.sleep(30)
    status = (await cluster.job()).status
    assert (status.failed, status.active, status.terminating) == (1, 1, 1)
