# SPDX-License-Identifier: Apache-2.0
"""What simulated containers do, and what they are told by the annotation."""

import json
from typing import Any

import pytest

from refloat.agent import simulated
from refloat.agent.runtime import StartError
from refloat.agent.simulated import ANNOTATION, Past, Script, SimulatedRuntime, script
from refloat.api.core import Pod
from refloat.api.structs import ObjectMeta, OwnerReference
from refloat.sim.run import Sim
from tests.virtual import virtual

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


def pod(told: Any = None, **annotations: str) -> Pod:
    if told is not None:
        annotations[ANNOTATION] = told if isinstance(told, str) else json.dumps(told)
    return Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u", annotations=annotations))


@pytest.mark.parametrize(
    ("given", "attempt", "want"),
    [
        pytest.param(pod(), 0, Script(), id="none: a second, and well"),
        pytest.param(pod({"other": {"exitCode": 1}}), 0, Script(), id="of another container"),
        pytest.param(pod({"main": {"exitCode": 1}}), 5, Script(exit_code=1), id="one for all"),
        pytest.param(
            pod({"main": [{"exitCode": 1}, {"exitCode": 2}]}), 0, Script(exit_code=1), id="first"
        ),
        pytest.param(
            pod({"main": [{"exitCode": 1}, {"exitCode": 2}]}), 9, Script(exit_code=2), id="last"
        ),
        pytest.param(pod({"main": []}), 0, Script(), id="an empty list"),
        pytest.param(
            pod({"main": {"exitCode": 1}, "main/2": {"exitCode": 4}}, **{INDEX: "2"}),
            0,
            Script(exit_code=4),
            id="its index comes first",
        ),
        pytest.param(
            pod({"main": {"exitCode": 1}, "main/2": {"exitCode": 4}}, **{INDEX: "1"}),
            0,
            Script(exit_code=1),
            id="another index",
        ),
        pytest.param(pod({"main": {"seconds": None}}), 0, Script(seconds=None), id="for ever"),
    ],
)
def test_a_script_is_found(given: Pod, attempt: int, want: Script) -> None:
    assert script(given, "main", attempt) == want


@pytest.mark.parametrize(
    "told",
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
def test_nonsense_is_refused_with_the_annotations_name(told: str) -> None:
    with pytest.raises(StartError, match=ANNOTATION):
        script(pod(told), "main", 0)


@virtual()
async def test_the_newest_two_attempts_are_kept(sim: Sim) -> None:
    runtime = SimulatedRuntime(sim.clock)
    for attempt in range(3):
        await runtime.start(pod({"main": [{"exitCode": n} for n in range(3)]}), "main", attempt)
        await sim.clock.sleep(2)
    kept = runtime.containers("u")["main"]
    assert kept.previous is not None
    assert [(each.attempt, each.exit_code) for each in (kept.previous, kept.current)] == [
        (1, 1),
        (2, 2),
    ]
    assert kept.current.container_id != kept.previous.container_id
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
    ended = runtime.containers("u")["main"].current
    assert ended.exit_code == 7
    assert not runtime.stop("u", "main", 30)


@virtual()
async def test_a_crash_ends_nothing_and_tells_nobody(sim: Sim) -> None:
    told: list[str] = []
    runtime = SimulatedRuntime(sim.clock)
    runtime.listen(told.append)
    await runtime.start(pod(), "main", 0)
    await runtime.start(pod({"slow": {"startSeconds": 1}}), "slow", 0)
    runtime.crash()
    await sim.clock.sleep(10)
    assert told == []
    assert runtime.pods() == []
    assert not runtime.stop("u", "main", 1)


@virtual()
async def test_one_given_up_while_it_is_made_leaves_the_attempt_before(sim: Sim) -> None:
    runtime = SimulatedRuntime(sim.clock)
    told = pod({"main": [{"exitCode": 1}, {"startSeconds": 5}]})
    await runtime.start(told, "main", 0)
    await sim.clock.sleep(2)
    await runtime.start(told, "main", 1)
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


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param([owned("a"), owned("b")], [0, 1], id="of one Job"),
        pytest.param([owned("a"), owned("b", "other")], [0, 0], id="of another Job"),
        pytest.param(
            [owned("a", **{INDEX: "0"}), owned("b", **{INDEX: "1"}), owned("c", **{INDEX: "0"})],
            [0, 0, 1],
            id="each index for itself",
        ),
        pytest.param(
            [owned("a", **{INDEX: "0", FAILURES: "2"}), owned("b", **{INDEX: "0", FAILURES: "3"})],
            [2, 3],
            id="what the pod knows outlives the process",
        ),
        pytest.param([pod(), pod()], [0, 0], id="of nobody"),
    ],
)
def test_pods_of_a_job_are_counted(given: list[Pod], want: list[int]) -> None:
    past = Past()
    assert [past.enter(each) for each in given] == want


def test_the_longest_unused_group_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_GROUPS", 2)
    past = Past()
    order = ["one", "two", "one", "three"]
    assert [past.enter(owned("p", owner)) for owner in order] == [0, 0, 1, 0]
    assert [past.enter(owned("p", owner)) for owner in ("one", "two")] == [2, 0]


@virtual()
async def test_nodes_that_share_a_past_count_the_pods_of_a_job_together(sim: Sim) -> None:
    past = Past()
    told = {ANNOTATION: json.dumps({"main": [{"exitCode": 1}, {"exitCode": 2}, {"exitCode": 3}]})}
    codes = []
    for uid in ("a", "b"):
        runtime = SimulatedRuntime(sim.clock, past)
        for attempt in range(2):
            await runtime.start(owned(uid, **told), "main", attempt)
            await sim.clock.sleep(2)
            codes.append(runtime.containers(uid)["main"].current.exit_code)
    assert codes == [1, 2, 2, 3]
