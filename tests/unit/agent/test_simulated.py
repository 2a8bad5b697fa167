# SPDX-License-Identifier: Apache-2.0
"""Simulated containers and their scripts."""

import json
from typing import Any

import pytest

from refloat.agent import simulated
from refloat.agent.runtime import StartError
from refloat.agent.simulated import ANNOTATION, PodHistory, Script, SimulatedRuntime, script
from refloat.api.core import Pod
from refloat.api.structs import ObjectMeta, OwnerReference
from refloat.sim.run import Sim
from tests.cases import cases
from tests.virtual import virtual

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


def pod(script: Any = None, **annotations: str) -> Pod:
    if script is not None:
        annotations[ANNOTATION] = script if isinstance(script, str) else json.dumps(script)
    return Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u", annotations=annotations))


@cases(
    "pod attempt want",
    {
        "none: a second, and well": (pod(), 0, Script()),
        "of another container": (pod({"other": {"exitCode": 1}}), 0, Script()),
        "one for all": (pod({"main": {"exitCode": 1}}), 5, Script(exit_code=1)),
        "first": (pod({"main": [{"exitCode": 1}, {"exitCode": 2}]}), 0, Script(exit_code=1)),
        "last": (pod({"main": [{"exitCode": 1}, {"exitCode": 2}]}), 9, Script(exit_code=2)),
        "an empty list": (pod({"main": []}), 0, Script()),
        "its index comes first": (
            pod({"main": {"exitCode": 1}, "main/2": {"exitCode": 4}}, **{INDEX: "2"}),
            0,
            Script(exit_code=4),
        ),
        "another index": (
            pod({"main": {"exitCode": 1}, "main/2": {"exitCode": 4}}, **{INDEX: "1"}),
            0,
            Script(exit_code=1),
        ),
        "for ever": (pod({"main": {"seconds": None}}), 0, Script(seconds=None)),
    },
)
def test_a_script_is_found(pod: Pod, attempt: int, want: Script) -> None:
    assert script(pod, "main", attempt) == want


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "[]",
        '{"main": 3}',
        '{"main": {"exitCode": 256}}',
        '{"main": {"seconds": -1}}',
        '{"main": {"exit": 1}}',
        '{"main": {"seconds": 1e400}}',
    ],
)
def test_nonsense_is_refused_with_the_annotations_name(annotation: str) -> None:
    with pytest.raises(StartError, match=ANNOTATION):
        script(pod(annotation), "main", 0)


@virtual()
async def test_the_newest_two_attempts_are_kept(sim: Sim) -> None:
    runtime = SimulatedRuntime(sim.clock)
    for attempt in range(3):
        await runtime.start(pod({"main": [{"exitCode": n} for n in range(3)]}), "main", attempt)
        await sim.clock.sleep(2)
    attempts = runtime.containers("u")["main"]
    assert attempts.previous is not None
    assert [(each.attempt, each.exit_code) for each in (attempts.previous, attempts.current)] == [
        (1, 1),
        (2, 2),
    ]
    assert attempts.current.container_id != attempts.previous.container_id
    runtime.remove("u")
    assert runtime.pods() == []
    assert runtime.containers("u") == {}


@virtual()
async def test_one_that_ends_by_itself_while_it_is_stopped_keeps_its_code(sim: Sim) -> None:
    runtime = SimulatedRuntime(sim.clock)
    await runtime.start(pod({"main": {"seconds": 2, "exitCode": 7, "stopSeconds": 5}}), "main", 0)
    assert runtime.stop("u", "main", 30)
    assert not runtime.stop("u", "main", 30)
    await sim.clock.sleep(10)
    record = runtime.containers("u")["main"].current
    assert record.exit_code == 7
    assert not runtime.stop("u", "main", 30)


@virtual()
async def test_a_crash_ends_nothing_and_tells_nobody(sim: Sim) -> None:
    uids: list[str] = []
    runtime = SimulatedRuntime(sim.clock)
    runtime.listen(uids.append)
    await runtime.start(pod(), "main", 0)
    await runtime.start(pod({"slow": {"startSeconds": 1}}), "slow", 0)
    runtime.crash()
    await sim.clock.sleep(10)
    assert uids == []
    assert runtime.pods() == []
    assert not runtime.stop("u", "main", 1)


@virtual()
async def test_one_given_up_while_it_is_made_leaves_the_attempt_before(sim: Sim) -> None:
    runtime = SimulatedRuntime(sim.clock)
    restarting = pod({"main": [{"exitCode": 1}, {"startSeconds": 5}]})
    await runtime.start(restarting, "main", 0)
    await sim.clock.sleep(2)
    await runtime.start(restarting, "main", 1)
    assert runtime.stop("u", "main", 1)
    assert runtime.containers("u")["main"].current.exit_code == 1


def owned(uid: str, owner: str = "job", **annotations: str) -> Pod:
    reference = OwnerReference(
        api_version="batch/v1", kind="Job", name="j", uid=owner, controller=True
    )
    meta = ObjectMeta(
        name=uid,
        namespace="default",
        uid=uid,
        annotations=annotations,
        owner_references=(reference,),
    )
    return Pod(metadata=meta)


@cases(
    "pods want",
    {
        "of one Job": ([owned("a"), owned("b")], [0, 1]),
        "of another Job": ([owned("a"), owned("b", "other")], [0, 0]),
        "each index for itself": (
            [owned("a", **{INDEX: "0"}), owned("b", **{INDEX: "1"}), owned("c", **{INDEX: "0"})],
            [0, 0, 1],
        ),
        "what the pod knows outlives the process": (
            [owned("a", **{INDEX: "0", FAILURES: "2"}), owned("b", **{INDEX: "0", FAILURES: "3"})],
            [2, 3],
        ),
        "of nobody": ([pod(), pod()], [0, 0]),
    },
)
def test_pods_of_a_job_are_counted(pods: list[Pod], want: list[int]) -> None:
    past = PodHistory()
    assert [past.enter(each) for each in pods] == want


def test_the_longest_unused_group_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_GROUPS", 2)
    past = PodHistory()
    order = ["one", "two", "one", "three"]
    assert [past.enter(owned("p", owner)) for owner in order] == [0, 0, 1, 0]
    assert [past.enter(owned("p", owner)) for owner in ("one", "two")] == [2, 0]


@virtual()
async def test_nodes_that_share_a_past_count_the_pods_of_a_job_together(sim: Sim) -> None:
    past = PodHistory()
    annotations = {
        ANNOTATION: json.dumps({"main": [{"exitCode": 1}, {"exitCode": 2}, {"exitCode": 3}]})
    }
    codes = []
    for uid in ("a", "b"):
        runtime = SimulatedRuntime(sim.clock, past)
        for attempt in range(2):
            await runtime.start(owned(uid, **annotations), "main", attempt)
            await sim.clock.sleep(2)
            codes.append(runtime.containers(uid)["main"].current.exit_code)
    assert codes == [1, 2, 2, 3]
