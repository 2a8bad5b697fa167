# SPDX-License-Identifier: Apache-2.0
"""The lives of pods on a node (behaviour D2-D5, D8), on the simulated runtime."""

from collections import Counter
from typing import Any

import pytest

from refloat.agent import backoff, pod_worker
from refloat.api.core import Pod, PodSpec
from refloat.api.structs import ObjectMeta
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.virtual import virtual


def states(status: dict[str, Any], key: str = "containerStatuses") -> dict[str, Any]:
    return {each["name"]: each["state"] for each in status.get(key) or ()}


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each.get("reason", "")) for each in status["conditions"]}


@on_nodes(seeds=10)
async def test_a_pod_without_a_script_runs_a_second_and_succeeds(here: Nodes) -> None:
    await here.create(nodes.pod())
    await here.after(0.5)
    status = await here.status()
    assert status["phase"] == "Running"
    assert status["startTime"] == "2026-01-01T00:00:00Z"
    assert "podIP" not in status
    assert conditions(status) == {
        "PodReadyToStartContainers": ("True", ""),
        "Initialized": ("True", ""),
        "Ready": ("True", ""),
        "ContainersReady": ("True", ""),
        "PodScheduled": ("True", ""),
    }
    assert {each["observedGeneration"] for each in status["conditions"]} == {1}
    await here.after(1)
    status = await here.status()
    assert here.phases() == ["Pending", "Running", "Succeeded"]
    assert conditions(status) == {
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),  # behaviour D4.6
        "ContainersReady": ("False", "PodCompleted"),
        "PodScheduled": ("True", ""),
    }
    (container,) = status["containerStatuses"]
    terminated = container["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], container["restartCount"]) == (
        0,
        "Completed",
        0,
    )


@on_nodes()
async def test_an_exit_code_fails_the_pod(here: Nodes) -> None:
    """behaviour D5.4, D4.6."""
    await here.create(nodes.pod(script={"main": {"exitCode": 3}}))
    await here.create(nodes.pod("q", script={"main": {"exitCode": 137, "reason": "OOMKilled"}}))
    await here.after(2)
    status = await here.status()
    assert (status["phase"], status.get("reason")) == ("Failed", None)
    assert states(status)["main"]["terminated"]["reason"] == "Error"
    assert conditions(status)["Ready"] == ("False", "PodFailed")
    assert states(await here.status("q"))["main"]["terminated"]["reason"] == "OOMKilled"


@on_nodes(seeds=5)
async def test_one_failed_container_does_not_end_the_pod(here: Nodes) -> None:
    """behaviour D2.10."""
    two = [nodes.container("main"), nodes.container("other")]
    script = {"main": {"exitCode": 1}, "other": {"seconds": 10}}
    await here.create(nodes.pod(script=script, spec={"containers": two}))
    await here.after(5)
    status = await here.status()
    assert status["phase"] == "Running"
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert ready["message"] == "containers with unready status: [main]"
    await here.after(6)
    assert (await here.status())["phase"] == "Failed"


@on_nodes(seeds=5)
async def test_init_containers_run_one_after_the_other_before_the_rest(here: Nodes) -> None:
    """behaviour D2.2, D5.3."""
    inits = [nodes.container("a"), nodes.container("b")]
    await here.create(nodes.pod(spec={"initContainers": inits}))
    await here.after(0.5)
    status = await here.status()
    assert status["phase"] == "Pending"
    assert list(states(status, "initContainerStatuses")["a"]) == ["running"]
    assert states(status)["main"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = next(c for c in status["conditions"] if c["type"] == "Initialized")
    assert initialized["message"] == "containers with incomplete status: [a b]"
    await here.after(4)
    assert here.phases() == ["Pending", "Running", "Succeeded"]


@on_nodes()
async def test_an_init_container_that_fails_for_good_fails_the_pod(here: Nodes) -> None:
    """behaviour D2.2: later containers never start."""
    spec = {"initContainers": [nodes.container("a")]}
    await here.create(nodes.pod(script={"a": {"exitCode": 2}}, spec=spec))
    await here.after(3)
    status = await here.status()
    assert status["phase"] == "Failed"
    assert "waiting" in states(status)["main"]


@on_nodes(seeds=5)
async def test_a_sidecar_is_stopped_before_the_end_is_told(here: Nodes) -> None:
    """behaviour D2.11, D2.12: with any exit code."""
    sidecar = nodes.container("side", restartPolicy="Always")
    script = {"side": {"seconds": None, "stopSeconds": 5, "stopExitCode": 9}}
    await here.create(nodes.pod(script=script, spec={"initContainers": [sidecar]}))
    await here.after(4)
    assert (await here.status())["phase"] == "Running"
    await here.after(3)
    status = await here.status()
    assert status["phase"] == "Succeeded"
    assert states(status, "initContainerStatuses")["side"]["terminated"]["exitCode"] == 9


@on_nodes()
async def test_failing_container_is_restarted_at_once_then_with_growing_waits(here: Nodes) -> None:
    """behaviour D3.1."""
    pod = await here.create(nodes.pod(policy="OnFailure", script={"main": {"exitCode": 1}}))
    await here.after(3)
    status = await here.status()
    (one,) = status["containerStatuses"]
    uid = pod["metadata"]["uid"]
    assert status["phase"] == "Running"
    assert one["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": f"back-off 10s restarting failed container=main pod=p_default({uid})",
    }
    assert one["lastState"]["terminated"]["exitCode"] == 1
    assert one["restartCount"] == 1
    text = f"Back-off restarting failed container main in pod p_default({uid})"
    assert here.events == [("Warning", "BackOff", text)]
    await here.after(200)
    starts = dict.fromkeys(
        each["status"]["containerStatuses"][0]["state"]["running"]["startedAt"][14:19]
        for each in here.history
        if "running" in (each["status"].get("containerStatuses") or [{"state": {}}])[0]["state"]
    )
    assert list(starts) == ["00:00", "00:01", "00:12", "00:33", "01:14", "02:35"]


@on_nodes()
async def test_on_failure_ends_with_the_first_success(here: Nodes) -> None:
    script = {"main": [{"exitCode": 1}, {"seconds": 2}]}
    await here.create(nodes.pod(policy="OnFailure", script=script))
    await here.after(5)
    assert here.phases() == ["Pending", "Running", "Succeeded"]
    assert (await here.status())["containerStatuses"][0]["restartCount"] == 1


@on_nodes(seeds=10)
async def test_a_deleted_pod_ends_before_its_object_goes(here: Nodes) -> None:
    """behaviour D4.7, D2.7."""
    await here.create(nodes.pod(script={"main": {"seconds": None, "stopSeconds": 3}}, grace=30))
    await here.after(5)
    await here.delete()
    await here.after(2)
    assert (await here.status())["phase"] == "Running"
    await here.after(2)
    assert await here.names() == []
    assert here.phases() == ["Pending", "Running", "Failed"]
    last = here.history[-1]
    assert last["event"] == "DELETED"
    assert states(last["status"])["main"]["terminated"]["exitCode"] == 143
    assert last["status"].get("reason") is None
    assert here.events == [("Normal", "Killing", "Stopping container main")]
    assert here.runtimes["n0"].pods() == []


@on_nodes()
async def test_a_deleted_pod_whose_containers_end_well_succeeds(here: Nodes) -> None:
    """behaviour D2.7."""
    script = {"main": {"seconds": None, "stopExitCode": 0}}
    await here.create(nodes.pod(policy="OnFailure", script=script))
    await here.after(1)
    await here.delete()
    await here.after(1)
    assert here.phases() == ["Pending", "Running", "Succeeded"]


@pytest.mark.parametrize(("grace", "seconds"), [(7, 7), (1, 2), (0, None)])
@on_nodes()
async def test_one_that_ignores_the_request_is_killed_after_its_grace(
    here: Nodes, grace: int, seconds: int | None
) -> None:
    """behaviour D4.2: at least two seconds; with 0 the object goes at once (D4.8)."""
    await here.create(nodes.pod(script={"main": {"seconds": None, "ignoreTerm": True}}))
    await here.after(0.9)
    await here.delete(gracePeriodSeconds=grace)
    if seconds is None:
        assert await here.names() == []
        assert here.phases() == ["Pending", "Running"]
        await here.after(2.1)
    else:
        await here.after(seconds - 0.1)
        assert await here.names() == ["p"]
        await here.after(0.2)
        assert states(here.history[-1]["status"])["main"]["terminated"]["exitCode"] == 137
    assert await here.names() == []
    assert here.runtimes["n0"].pods() == []


@on_nodes()
async def test_a_grace_only_shrinks(here: Nodes) -> None:
    """behaviour D4.2."""
    await here.create(nodes.pod(script={"main": {"seconds": None, "ignoreTerm": True}}))
    await here.after(1)
    await here.delete(gracePeriodSeconds=100)
    await here.after(1)
    await here.delete(gracePeriodSeconds=5)
    await here.after(4.5)
    assert await here.names() == ["p"]
    await here.after(1)
    assert await here.names() == []


@on_nodes(seeds=5)
async def test_sidecars_are_stopped_after_the_rest_from_the_last_to_the_first(here: Nodes) -> None:
    """behaviour D4.3."""
    sidecars = [nodes.container(name, restartPolicy="Always") for name in ("a", "b")]
    slow = {"seconds": None, "stopSeconds": 3}
    script = {"main": slow, "a": slow, "b": slow}
    await here.create(nodes.pod(script=script, spec={"initContainers": sidecars}))
    await here.after(1)
    await here.delete()
    await here.after(12)
    killed = sorted(note for _, reason, note in here.events if reason == "Killing")
    assert killed == [f"Stopping container {name}" for name in ("a", "b", "main")]
    status = here.history[-1]["status"]
    seconds = {
        name: state["terminated"]["finishedAt"][17:19]
        for key in ("containerStatuses", "initContainerStatuses")
        for name, state in states(status, key).items()
    }
    assert seconds == {"main": "04", "b": "07", "a": "10"}
    assert await here.names() == []


@on_nodes()
async def test_when_the_grace_is_over_sidecars_are_killed_too(here: Nodes) -> None:
    """behaviour D4.3."""
    sidecar = nodes.container("a", restartPolicy="Always")
    deaf = {"seconds": None, "ignoreTerm": True}
    spec = {"initContainers": [sidecar]}
    await here.create(nodes.pod(script={"main": deaf, "a": deaf}, spec=spec))
    await here.after(1)
    await here.delete(gracePeriodSeconds=10)
    await here.after(12.1)
    assert await here.names() == []


@on_nodes()
async def test_one_deleted_before_it_started_fails_with_an_unknown_status(here: Nodes) -> None:
    """behaviour D5.1."""
    await here.create(nodes.pod(script={"main": {"startSeconds": 100}}))
    await here.after(5)
    status = await here.status()
    assert status["phase"] == "Pending"
    assert states(status)["main"] == {"waiting": {"reason": "ContainerCreating"}}
    await here.delete()
    await here.after(1)
    assert here.phases() == ["Pending", "Failed"]
    terminated = states(here.history[-1]["status"])["main"]["terminated"]
    assert {key: value for key, value in terminated.items() if value is not None} == {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    }


@on_nodes()
async def test_a_terminal_phase_in_the_api_is_never_left(here: Nodes) -> None:
    """behaviour D2.9, D8.2: the containers end, and what others wrote stays."""
    await here.create(nodes.pod(script={"main": {"seconds": None, "stopExitCode": 0}}))
    await here.after(1)
    failure = {"phase": "Failed", "reason": "NodeLost", "message": "by somebody"}
    await here.patch_status(failure)
    await here.after(1)
    status = await here.status()
    assert {key: status[key] for key in failure} == failure
    assert states(status)["main"]["terminated"]["exitCode"] == 0
    assert conditions(status)["Ready"] == ("False", "PodFailed")


@on_nodes()
async def test_conditions_of_others_are_left_alone_and_its_own_are_restored(here: Nodes) -> None:
    """behaviour D7.1."""
    await here.create(nodes.pod(script={"main": {"seconds": 10}}))
    await here.after(1)
    others = [
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        {"type": "Ready", "status": "False"},
    ]
    await here.patch_status({"conditions": others})
    await here.after(1)
    before = conditions(await here.status())
    assert before["Ready"] == ("True", "")
    assert before["DisruptionTarget"] == ("True", "EvictionByEvictionAPI")
    await here.after(10)
    assert "DisruptionTarget" in conditions(await here.status())


@on_nodes()
async def test_a_deadline_fails_a_pod(here: Nodes) -> None:
    """behaviour D6, the row of activeDeadlineSeconds."""
    script = {"main": {"seconds": None, "stopExitCode": 0}}
    await here.create(nodes.pod(script=script, spec={"activeDeadlineSeconds": 5}))
    await here.after(6)
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert await here.names() == ["p"]


@cases(
    "stop_seconds want",
    {
        "it ends after its deadline": (15, ("Failed", "DeadlineExceeded")),
        "it ends before": (5, ("Succeeded", None)),
    },
)
@on_nodes(seeds=3)
async def test_a_deadline_holds_for_one_that_is_being_deleted(
    here: Nodes, stop_seconds: int, want: tuple[str, str | None]
) -> None:
    """behaviour D6: a kubelet checks the deadline with each status."""
    script = {"main": {"seconds": None, "stopSeconds": stop_seconds, "stopExitCode": 0}}
    spec = {"activeDeadlineSeconds": 60}
    await here.create(nodes.pod(script=script, spec=spec, grace=30))
    await here.after(50)
    await here.delete()
    await here.after(20)
    assert await here.names() == []
    status = here.history[-1]["status"]
    assert (status["phase"], status.get("reason")) == want
    if want[0] == "Failed":
        text = "Pod was active on the node longer than the specified deadline"
        assert status["message"] == text


@on_nodes()
async def test_a_deadline_says_nothing_of_one_that_never_ran_and_is_deleted(here: Nodes) -> None:
    script = {"a": {"seconds": None, "stopSeconds": 15}}
    spec = {"activeDeadlineSeconds": 60, "initContainers": [nodes.container("a")]}
    await here.create(nodes.pod(script=script, spec=spec, grace=30))
    await here.after(50)
    await here.delete()
    await here.after(20)
    status = here.history[-1]["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Deleted")


@on_nodes(pods="1")
async def test_a_node_that_is_full_rejects(here: Nodes) -> None:
    """behaviour D6, the row of admission."""
    await here.create(nodes.pod(script={"main": {"seconds": 10}}))
    await here.after(1)
    await here.create(nodes.pod("q"))
    await here.after(1)
    status = await here.status("q")
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfpods")
    assert status["message"] == (
        "Pod was rejected: Node didn't have enough resource: pods, "
        "requested: 1, used: 1, capacity: 1"
    )
    assert "containerStatuses" not in status
    await here.after(10)
    await here.create(nodes.pod("r"))
    await here.after(2)
    assert (await here.status("r"))["phase"] == "Succeeded"


@on_nodes()
async def test_a_script_that_makes_no_sense_is_told_and_starts_nothing(here: Nodes) -> None:
    await here.create(nodes.pod(script={"main": {"exitCode": "three"}}))
    await here.after(25)
    status = await here.status()
    waiting = states(status)["main"]["waiting"]
    assert (status["phase"], waiting["reason"]) == ("Pending", "CreateContainerError")
    assert waiting["message"].startswith("annotation refloat.dev/simulate: Expected `int`")
    await here.delete()
    await here.after(1)
    assert await here.names() == []


@on_nodes(seeds=10)
async def test_a_restarted_agent_finds_its_containers_again(here: Nodes) -> None:
    for number in range(5):
        script = {"main": {"seconds": 3 + number, "exitCode": number % 2}}
        await here.create(nodes.pod(f"p{number}", script=script))
    await here.after(2)
    await here.crash_agent()
    await here.after(3)  # some end while no agent runs
    await here.delete("p4")
    await here.boot()
    await here.after(5)
    assert await here.names() == ["p0", "p1", "p2", "p3"]
    for number in range(4):
        status = await here.status(f"p{number}")
        assert status["phase"] == ("Failed" if number % 2 else "Succeeded")
        assert status["containerStatuses"][0]["restartCount"] == 0


@on_nodes()
async def test_a_restarted_agent_writes_nothing_about_what_had_ended(here: Nodes) -> None:
    await here.create(nodes.pod())
    await here.after(2)
    count = len(here.history)
    here.runtimes["n0"].crash()
    await here.restart()
    await here.after(5)
    assert len(here.history) == count


@on_nodes()
async def test_an_orphan_is_killed_by_an_agent_that_comes_back(here: Nodes) -> None:
    """behaviour D4.8, D8.3: a new pod of the same name is unaffected."""
    await here.create(nodes.pod(script={"main": {"seconds": None}}))
    await here.after(1)
    await here.crash_agent()
    await here.delete(gracePeriodSeconds=0)
    again = await here.create(nodes.pod(script={"main": {"seconds": 20}}))
    await here.boot()
    await here.after(5)
    assert here.runtimes["n0"].pods() == [again["metadata"]["uid"]]
    assert (await here.status())["phase"] == "Running"


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Running")])
@virtual(nodes.running)
async def test_a_container_that_vanished_counts_as_killed(
    here: Nodes, policy: str, phase: str
) -> None:
    """behaviour D5.2."""
    await here.create(nodes.pod(policy=policy, script={"main": {"seconds": None}}))
    await here.after(1)
    here.runtimes["n0"].crash()
    await here.restart()
    await here.after(1)
    status = await here.status()
    (one,) = status["containerStatuses"]
    terminated = one["state" if policy == "Never" else "lastState"]["terminated"]
    assert (status["phase"], terminated["exitCode"]) == (phase, 137)
    assert terminated["message"] == (
        "The container could not be located when the pod was deleted."
        "  The container used to be Running"
    )
    assert one["restartCount"] == (0 if policy == "Never" else 1)


@cases(
    "deletion override spec want",
    {
        "the spec's when nobody asked": (None, None, 30, 30),
        "the deleter's": (5, None, 30, 5),
        "the deleter's, longer than the spec's": (60, None, 30, 60),
        "the smaller of both": (20, 10, 30, 10),
        "at least a second": (0, None, 30, 1),
        "at least a second, of the spec too": (None, None, 0, 1),
    },
)
def test_effective_grace(deletion: int | None, override: int | None, spec: int, want: int) -> None:
    """behaviour D4.2."""
    pod = Pod(
        metadata=ObjectMeta(deletion_grace_period_seconds=deletion),
        spec=PodSpec(termination_grace_period_seconds=spec),
    )
    assert pod_worker.effective_grace(pod, override) == want


def test_starts_that_failed_together_are_not_tried_again_together() -> None:
    waits = [backoff.start_retry_seconds(f"uid-{number}", "main") for number in range(1000)]
    assert all(10 <= wait < 15 for wait in waits)
    seconds = Counter(map(int, waits))
    assert all(150 < seconds[second] < 250 for second in range(10, 15))


def test_a_pod_keeps_its_rhythm() -> None:
    assert backoff.start_retry_seconds("u", "a") == backoff.start_retry_seconds("u", "a")
    assert backoff.start_retry_seconds("u", "a") != backoff.start_retry_seconds("u", "b")
