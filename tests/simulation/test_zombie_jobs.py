# SPDX-License-Identifier: Apache-2.0
"""Jobs whose node falls silent, on the whole cluster at Kubernetes' own waits (behaviour E2, G).

The KEP's Job, as printed but for its image: three pods, `podReplacementPolicy:
Failed`, the annotation. Each runs for a minute; the node of one is lost before.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from refloat.api import structs
from refloat.api.core import Pod
from refloat.app import controllers
from refloat.app.controllers import Chosen
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import kinds
from refloat.policy import zombie
from refloat.policy.failure_recovery import Annotated, FailureRecoveryPolicy, TaintNodeOutOfService
from refloat.sim.run import Sim, run
from tests.simulation.cluster_world import EVERYTHING, GONE, NAMESPACE, Cluster, cluster
from tests.virtual import virtual

ON = Gates({FAILURE_RECOVERY_POLICY: True})
SAFE = {zombie.ANNOTATIONS[0]: "true"}
FAST = replace(EVERYTHING, fast=True)

# Kubelet silent at t0: up to 10 s since its last lease, 50 s and a pass until it
# is lost, 300 s of toleration, 30 s of grace, a minute (behaviour E2.1).
SOONEST, LATEST = 430, 450


async def submit(c: Cluster, **spec: Any) -> None:
    """The KEP's Job."""
    how = {
        "parallelism": 3,
        "completions": 3,
        "podReplacementPolicy": "Failed",
        "annotations": SAFE,
        "script": {"main": {"seconds": 60}},
        **spec,
    }
    await c.submit(**how)


async def freeze_first(c: Cluster) -> Pod:
    """The node of the Job's first pod falls silent at second 20; the other pods end well."""
    await c.until(20)
    pod = c.pods()[0]
    c.fleet.fail(c.node_of(pod), "freeze")
    return pod


def freed_at(c: Cluster, pod: Pod) -> float:
    return next(when for when, text in c.story(pod) if text.startswith("Failed"))


async def found(c: Cluster, pod: Pod) -> Pod:
    seen = await c.found(pod)
    assert seen is not None
    return seen


def is_complete(c: Cluster) -> bool:
    return structs.is_true(c.job().status.conditions, "Complete")


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_the_keps_job_goes_on_after_its_node_is_lost(mode: str) -> None:
    async def program(sim: Sim) -> None:
        async with cluster(sim, gates=ON) as c:
            await submit(c, completionMode=mode)
            stuck = await freeze_first(c)
            await c.until(1000)
            when = freed_at(c, stuck)
            assert 20 + SOONEST <= when <= 20 + LATEST
            replaced = [pod for pod in c.pods() if c.story(pod)[0][0] >= when]
            assert len(replaced) == 1
            assert c.story(replaced[0])[0][0] <= when + 2
            assert c.node_of(replaced[0]) != c.node_of(stuck)
            assert is_complete(c)
            assert c.job().status.failed == 1
            held = structs.find((await found(c, stuck)).status.conditions, zombie.CONDITION)
            assert held is not None
            assert held.message.startswith("Pod forcefully terminated after 90s grace period")

    run(program, seed=0)


@virtual()
async def test_the_sequence_that_can_be_seen(sim: Sim) -> None:
    """behaviour G7"""
    async with cluster(sim, gates=ON) as c:
        await submit(c, parallelism=1, completions=1)
        stuck = await freeze_first(c)
        await c.until(1000)
        lost = c.lost_at(c.node_of(stuck))
        assert c.story(stuck, since=20) == [
            (lost, "Running"),
            (lost + 300, "Running DeletionByTaintManager"),
            (lost + 300, "Running terminating(30) DeletionByTaintManager"),
            (lost + 390, "Failed terminating(30) DeletionByTaintManager"),
        ]
        job = [text for _, text in c.story(c.job(), since=20)]
        assert job[0] == "active 0 terminating 1 failed 0 succeeded 0"
        assert job[-1].startswith("active 0 terminating 0 failed 1 succeeded 1")


@pytest.mark.parametrize(
    ("gates", "spec", "policy"),
    [
        pytest.param(ON, {"annotations": {}}, None, id="it did not opt in"),
        pytest.param(Gates(), {}, None, id="the gate is off"),
        pytest.param(ON, {}, FailureRecoveryPolicy(mode="Report"), id="only a report is wanted"),
    ],
)
def test_nothing_is_forced(gates: Gates, spec: Any, policy: FailureRecoveryPolicy | None) -> None:
    """behaviour G5, A16.4: it hangs until the node is back, and then ends as it should."""

    async def program(sim: Sim) -> None:
        async with cluster(sim, gates=gates, recovery=policy) as c:
            await submit(c, **spec)
            stuck = await freeze_first(c)
            await c.until(3000)
            assert (await found(c, stuck)).status.phase == "Running"
            assert len(c.pods()) == 3
            assert not is_complete(c)
            c.fleet.heal(c.node_of(stuck))
            await c.until(3200)
            assert is_complete(c)
            assert c.story(stuck)[-1][1] == GONE

    run(program, seed=0)


@virtual()
async def test_a_node_that_is_healed_in_time_ends_its_pod_itself(sim: Sim) -> None:
    async with cluster(sim, gates=ON) as c:
        await submit(c)
        stuck = await freeze_first(c)
        lost = 20 + 60
        await c.until(lost + 340)  # terminating, its grace over, not yet forced
        assert (await found(c, stuck)).is_terminating
        c.fleet.heal(c.node_of(stuck))
        await c.until(1000)
        assert is_complete(c)
        conditions = (await c.raw("jobs", "j"))["status"]["conditions"]
        assert [each["type"] for each in conditions][-1] == "Complete"
        assert await c.found(stuck) is None
        last = c.journal.objects[stuck.metadata.uid]
        assert isinstance(last, Pod)
        assert structs.find(last.status.conditions, zombie.CONDITION) is None


@virtual()
async def test_a_node_that_comes_back_later_keeps_failed_and_removes_its_pod(sim: Sim) -> None:
    """behaviour D8.2"""
    async with cluster(sim, gates=ON) as c:
        await submit(c)
        stuck = await freeze_first(c)
        await c.until(600)
        assert is_complete(c)
        assert (await found(c, stuck)).status.phase == "Failed"
        c.fleet.heal(c.node_of(stuck))
        await c.until(700)
        assert await c.found(stuck) is None
        phases = [text.split()[0] for _, text in c.story(stuck)]
        assert phases[phases.index("Failed") :] in (["Failed", GONE], ["Failed", "Failed", GONE])
        assert c.job().status.failed == 1


@virtual()
async def test_the_object_of_a_freed_pod_goes_too_if_that_is_wanted(sim: Sim) -> None:
    """kueue#9651; the finalizer of its Job is gone by then."""
    annotated = Annotated(delete_after=timedelta(minutes=10))
    policy = FailureRecoveryPolicy(annotated=annotated)
    async with cluster(sim, gates=ON, recovery=policy) as c:
        await submit(c)
        stuck = await freeze_first(c)
        await c.until(1200)
        freed = freed_at(c, stuck)
        assert c.story(stuck)[-1] == (freed + 600, GONE)


@virtual()
async def test_a_job_that_replaces_early_can_finish_only_when_the_zombie_is_freed(
    sim: Sim,
) -> None:
    """behaviour E2.2, H13"""
    async with cluster(sim, gates=ON) as c:
        await submit(c, podReplacementPolicy="TerminatingOrFailed")
        stuck = await freeze_first(c)
        await c.until(1000)
        when = freed_at(c, stuck)
        finished = next(at for at, text in c.story(c.job()) if "Complete=" in text)
        assert when <= finished <= when + 2


@virtual()
async def test_with_short_waits_it_is_a_tenth(sim: Sim) -> None:
    """10 s + 50 s + 300 s + 60 s become a tenth; the pod's own grace stays what it is."""
    async with cluster(sim, FAST, gates=ON) as c:
        toleration = {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 30,
        }
        pod = {"terminationGracePeriodSeconds": 3, "tolerations": [toleration]}
        await submit(c, pod=pod)
        stuck = await freeze_first(c)
        await c.until(200)
        assert 20 + 4 + 30 + 3 + 6 <= freed_at(c, stuck) <= 20 + 6 + 30 + 3 + 6 + 2
        held = structs.find((await found(c, stuck)).status.conditions, zombie.CONDITION)
        assert held is not None
        assert " after 9s grace period " in held.message
        assert is_complete(c)


@virtual()
async def test_a_node_out_of_service_lets_its_job_go_on_and_comes_back(sim: Sim) -> None:
    """The KEP's second strategy, with Kubernetes' own collector (behaviour C9.1, G6)."""
    rule = TaintNodeOutOfService("rules[0]", timedelta(minutes=5))
    policy = FailureRecoveryPolicy(taint=(rule,))
    async with cluster(sim, gates=ON, recovery=policy) as c:
        await submit(c)
        stuck = await freeze_first(c)
        node = c.node_of(stuck)
        await c.until(1000)
        lost = c.lost_at(node)
        tainted = next(at for at, text in c.story(c.node(node)) if "out-of-service" in text)
        assert tainted == lost + 300
        gone = next(at for at, text in c.story(stuck) if text == GONE)
        assert tainted <= gone <= tainted + 22
        assert is_complete(c)
        c.fleet.heal(node)
        await c.until(1100)
        assert (await c.raw("nodes", node))["spec"].get("taints") is None


@virtual()
async def test_all_nodes_lost_force_nothing(sim: Sim) -> None:
    """behaviour C3.15, E4.9: Kueue forces here what was terminating already."""
    async with cluster(sim, gates=ON) as c:
        await submit(c)
        await c.until(20)
        for number in range(3):
            c.fleet.fail(f"node-{number}", "freeze")
        for pod in c.pods():
            await c.client.delete(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
        await c.until(3000)
        assert {(await found(c, pod)).status.phase for pod in c.pods()} == {"Running"}


@virtual()
async def test_recovery_alone_beside_other_controllers_of_kubernetes(sim: Sim) -> None:
    """As `refloat manager` runs it: one of several processes, which is killed and replaced."""
    without = tuple(each for each in controllers.KNOWN if each != controllers.FAILURE_RECOVERY)
    alone = Chosen((controllers.FAILURE_RECOVERY,))
    async with cluster(sim, Chosen(without, simulated_nodes=3), gates=ON) as c:
        await c.start(alone, ON)
        await submit(c)
        stuck = await freeze_first(c)
        await c.until(450)
        await c.stop_last()
        await c.until(600)
        assert (await found(c, stuck)).status.phase == "Running"
        await c.start(alone, ON)
        await c.until(652)  # when its node's lease has been watched for a while
        assert (await found(c, stuck)).status.phase == "Failed"
        await c.until(760)
        assert is_complete(c)
