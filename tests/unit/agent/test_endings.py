# SPDX-License-Identifier: Apache-2.0
"""How pods end that are deleted early, or ended slowly (behaviour D4.3, D5.1, D6.6)."""

from dataclasses import replace
from typing import Any

from refloat.agent.pod_status import Ending
from refloat.policy.job.job_gates import JobGates
from refloat.sim.run import Sim
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.virtual import virtual

DEAF = {"seconds": None, "ignoreTerm": True}


def outcome(status: dict[str, Any]) -> tuple[str, str | None, str | None]:
    return status["phase"], status.get("reason"), status.get("message")


def disruption(status: dict[str, Any]) -> dict[str, Any] | None:
    conditions = [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    return conditions[0] if conditions else None


UNSTARTED = {"main": {"startSeconds": 1000}}
INVALID = {"main": {"exitCode": "none"}}


@cases(
    "script spec",
    {
        "a slow image": (UNSTARTED, {}),
        "a container that cannot be made": (INVALID, {}),
        "one of two cannot be made": (
            {"main": DEAF, "b": {"exitCode": "none"}},
            {"containers": [nodes.container("main"), nodes.container("b")]},
        ),
        "an init container runs": (
            {"a": {"seconds": None}},
            {"initContainers": [nodes.container("a")]},
        ),
    },
)
@on_nodes()
async def test_one_deleted_while_pending_fails_and_says_so(
    here: Nodes, script: dict[str, Any], spec: dict[str, Any]
) -> None:
    """KEP-3329, "Marking pods as Failed", 3; the states are those of behaviour D5.1."""
    await here.create(nodes.pod(script=script, spec=spec))
    await here.after(5)
    await here.delete(gracePeriodSeconds=3)
    await here.after(6)
    assert await here.names() == []
    assert here.phases() == ["Pending", "Failed"]
    last = here.history[-1]["status"]
    assert outcome(last) == ("Failed", "Deleted", "Deleted while pending")
    assert disruption(last) is None
    writes = [each["event"] for each in here.history if each["status"].get("reason")]
    assert writes.count("MODIFIED") <= 2  # the deletion, and the grace of 0


@on_nodes()
async def test_a_reason_that_the_deleter_gave_is_kept(here: Nodes) -> None:
    """KEP-3329, first design: DeleteOptions.reason lies in status.reason."""
    await here.create(nodes.pod(script=UNSTARTED))
    await here.after(1)
    await here.patch_status({"reason": "Quota"})
    await here.delete()
    await here.after(3)
    last = here.history[-1]["status"]
    assert outcome(last)[:2] == ("Failed", "Quota")


@on_nodes()
async def test_one_that_ran_is_not_said_to_be_deleted_while_pending(here: Nodes) -> None:
    await here.create(nodes.pod(script={"main": {"seconds": None}}))
    await here.after(1)
    await here.delete()
    await here.after(3)
    assert outcome(here.history[-1]["status"]) == ("Failed", None, None)


NONE = JobGates(
    job_pod_failure_policy=False, job_pod_replacement_policy=False, pod_disruption_conditions=False
)


@cases(
    "job_gates phase",
    {
        "replacements": (replace(NONE, job_pod_replacement_policy=True), "Failed"),
        "disruptions": (replace(NONE, pod_disruption_conditions=True), "Failed"),
        "failure policies": (replace(NONE, job_pod_failure_policy=True), "Failed"),
        "their first form": (replace(NONE, retriable_and_non_retriable_failures=True), "Failed"),
        "by none": (NONE, "Pending"),
    },
)
@virtual()
async def test_gates_say_whether_a_pending_pod_fails(
    sim: Sim, job_gates: JobGates, phase: str
) -> None:
    """KEP-3939, "Pods are not guaranteed to transition to a terminal phase"; docs/gates.md."""
    async with nodes.running(sim, ways=nodes.Ways(job_gates=job_gates)) as here:
        await here.create(nodes.pod(script=UNSTARTED))
        await here.create(nodes.pod("ran", script={"main": {"seconds": None}}))
        await here.after(1)
        await here.delete()
        await here.delete("ran")
        await here.after(3)
        assert await here.names() == []
        assert here.phases()[-1] == phase
        assert here.phases("ran")[-1] == "Failed"


EVICTED = Ending("Evicted", "low. ", insists=False, disruption="low. ", grace_seconds=1)


async def _kill(here: nodes.Nodes, ending: Ending = EVICTED) -> None:
    (uid,) = here.runtimes["n0"].pods()
    assert here.fleet.worker("n0").kill(uid, ending)


@on_nodes(seeds=5)
async def test_the_disruption_is_said_together_with_the_end(here: Nodes) -> None:
    """behaviour D4.5, F: not before, and with the time of the end; D6.3: nothing is deleted."""
    await here.create(nodes.pod(script={"main": DEAF}))
    await here.after(5)
    await _kill(here)
    await here.after(1.5)
    assert outcome(await here.status()) == ("Running", None, None)
    assert disruption(await here.status()) is None
    await here.after(1)
    status = await here.status()
    assert outcome(status) == ("Failed", "Evicted", "low. ")
    assert disruption(status) == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": "low. ",
        "observedGeneration": 1,
        "lastProbeTime": None,
        "lastTransitionTime": "2026-01-01T00:00:07Z",
    }
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    await here.after(60)
    assert await here.names() == ["p"]
    ends = [each for each in here.history if each["status"].get("phase") == "Failed"]
    assert len(ends) == 1


@on_nodes(ways=nodes.Ways(job_gates=JobGates(pod_disruption_conditions=False)))
async def test_without_its_gate_a_node_disrupts_in_silence(here: Nodes) -> None:
    """KEP-3329: `PodDisruptionConditions` off."""
    await here.create(nodes.pod(script={"main": DEAF}))
    await here.after(1)
    await _kill(here)
    await here.after(3)
    status = await here.status()
    assert outcome(status) == ("Failed", "Evicted", "low. ")
    assert disruption(status) is None


@on_nodes()
async def test_one_whose_containers_end_well_succeeds_all_the_same(here: Nodes) -> None:
    """KEP-3329, graceful node shutdown, second variant; the condition stays (D4.5)."""
    await here.create(nodes.pod(script={"main": {"seconds": None, "stopExitCode": 0}}))
    await here.after(1)
    await _kill(here)
    await here.after(1)
    status = await here.status()
    assert outcome(status) == ("Succeeded", None, None)
    assert disruption(status) is not None


@on_nodes()
async def test_an_earlier_disruption_keeps_its_time_and_gets_the_new_reason(here: Nodes) -> None:
    """behaviour F.2."""
    await here.create(nodes.pod(script={"main": DEAF}))
    await here.after(1)
    first = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await here.patch_status({"conditions": [first]})
    await _kill(here)
    await here.after(3)
    condition = disruption(await here.status())
    assert condition is not None
    assert condition["reason"] == "TerminationByKubelet"
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"


@on_nodes()
async def test_nobody_is_killed_twice_nor_after_its_end(here: Nodes) -> None:
    await here.create(nodes.pod(script={"main": DEAF}))
    await here.after(1)
    await _kill(here)
    (uid,) = here.runtimes["n0"].pods()
    assert not here.fleet.worker("n0").kill(uid, EVICTED)
    await here.after(3)
    assert not here.fleet.worker("n0").kill(uid, EVICTED)
    assert not here.fleet.worker("n0").kill("unknown", EVICTED)


@cases(
    "grace patience",
    {"at least ten seconds": (1, 10), "half as long again as it may take": (20, 30)},
)
@on_nodes()
async def test_a_kill_that_takes_too_long_is_told_and_goes_on(
    here: Nodes, grace: int, patience: int
) -> None:
    """behaviour D6.6."""
    await here.create(nodes.pod(script={"main": {**DEAF, "killSeconds": 60}}))
    await here.after(1)
    await _kill(here, Ending("Evicted", "low. ", grace_seconds=grace))
    await here.after(patience - 0.5)
    assert "ExceededGracePeriod" not in [reason for _, reason, _ in here.events]
    await here.after(1)
    note = "Container runtime did not kill the pod within specified grace period."
    assert here.events[-1] == ("Warning", "ExceededGracePeriod", note)
    assert (await here.status())["phase"] == "Running"
    await here.after(90)
    assert (await here.status())["phase"] == "Failed"
    assert [reason for _, reason, _ in here.events].count("ExceededGracePeriod") == 1


@on_nodes()
async def test_a_deletion_may_take_as_long_as_it_takes(here: Nodes) -> None:
    """behaviour D6.6 is for what the node itself ends."""
    await here.create(nodes.pod(script={"main": {**DEAF, "killSeconds": 60}}))
    await here.after(1)
    await here.delete(gracePeriodSeconds=1)
    await here.after(90)
    assert [reason for _, reason, _ in here.events] == ["Killing"]


@cases(
    "script seconds code",
    {
        "the request comes after the hook": ({"preStopSeconds": 4}, 4, 143),
        "there is time left after it": ({"preStopSeconds": 4, "stopSeconds": 3}, 7, 143),
        "it consumes the grace": ({"preStopSeconds": 4, "ignoreTerm": True}, 10, 137),
        "two seconds are left at least": ({"preStopSeconds": 60, "ignoreTerm": True}, 12, 137),
    },
)
@on_nodes()
async def test_a_hook_comes_first_and_consumes_the_grace(
    here: Nodes, script: dict[str, Any], seconds: int, code: int
) -> None:
    """behaviour D4.3, D4.2."""
    await here.create(nodes.pod(script={"main": {"seconds": None, **script}}))
    await here.after(1)
    await here.delete(gracePeriodSeconds=10)
    await here.after(seconds - 0.1)
    assert await here.names() == ["p"]
    await here.after(0.2)
    assert await here.names() == []
    (status,) = here.history[-1]["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == code


@on_nodes()
async def test_the_hook_of_a_sidecar_does_not_wait_for_its_turn(here: Nodes) -> None:
    """behaviour D4.3: hooks run first; 4 s of main and 5 s of hook are not 9 s."""
    sidecar = nodes.container("side", restartPolicy="Always")
    script = {
        "main": {"seconds": None, "stopSeconds": 4},
        "side": {"seconds": None, "preStopSeconds": 5},
    }
    await here.create(nodes.pod(script=script, spec={"initContainers": [sidecar]}))
    await here.after(1)
    await here.delete()
    await here.after(4.9)
    assert await here.names() == ["p"]
    await here.after(0.2)
    assert await here.names() == []
