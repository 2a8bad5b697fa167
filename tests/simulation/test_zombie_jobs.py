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
from refloat.app import controller_names
from refloat.app.controller_names import ControllerSelection
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import kinds
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.sim.cluster import ALL_CONTROLLERS, NAMESPACE, Cluster
from refloat.sim.journal import GONE
from refloat.sim.run import Sim
from tests.cases import cases
from tests.virtual import virtual

ON = Gates({FAILURE_RECOVERY_POLICY: True})
SAFE = {zombie.ANNOTATIONS[0]: "true"}
FAST = replace(ALL_CONTROLLERS, fast=True)

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
    return next(when for when, text in c.history(pod) if text.startswith("Failed"))


async def found(c: Cluster, pod: Pod) -> Pod:
    newest = await c.find_pod(pod.metadata.name)
    assert newest is not None
    return newest


def is_complete(c: Cluster) -> bool:
    return structs.is_true(c.job().status.conditions, "Complete")


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@virtual(Cluster, gates=ON)
async def test_the_keps_job_goes_on_after_its_node_is_lost(c: Cluster, mode: str) -> None:
    await submit(c, completionMode=mode)
    first = await freeze_first(c)
    await c.until(1000)
    when = freed_at(c, first)
    assert 20 + SOONEST <= when <= 20 + LATEST
    replaced = [pod for pod in c.pods() if c.history(pod)[0][0] >= when]
    assert len(replaced) == 1
    assert c.history(replaced[0])[0][0] <= when + 2
    assert c.node_of(replaced[0]) != c.node_of(first)
    assert is_complete(c)
    assert c.job().status.failed == 1
    condition = structs.find((await found(c, first)).status.conditions, zombie.CONDITION)
    assert condition is not None
    assert condition.message.startswith("Pod forcefully terminated after 90s grace period")


@virtual(Cluster, gates=ON)
async def test_the_sequence_that_can_be_seen(c: Cluster) -> None:
    """behaviour G7"""
    await submit(c, parallelism=1, completions=1)
    pod = await freeze_first(c)
    await c.until(1000)
    lost_at = c.lost_at(c.node_of(pod))
    assert c.history(pod, since=20) == [
        (lost_at, "Running"),
        (lost_at + 300, "Running DeletionByTaintManager"),
        (lost_at + 300, "Running terminating(30) DeletionByTaintManager"),
        (lost_at + 390, "Failed terminating(30) DeletionByTaintManager"),
    ]
    job = [text for _, text in c.history(c.job(), since=20)]
    assert job[0] == "active 0 terminating 1 failed 0 succeeded 0"
    assert job[-1].startswith("active 0 terminating 0 failed 1 succeeded 1")


@cases(
    "gates spec policy",
    {
        "it did not opt in": (ON, {"annotations": {}}, None),
        "the gate is off": (Gates(), {}, None),
        "only a report is wanted": (ON, {}, FailureRecoveryPolicy(mode="Report")),
    },
)
@virtual()
async def test_nothing_is_forced(
    sim: Sim, gates: Gates, spec: Any, policy: FailureRecoveryPolicy | None
) -> None:
    """behaviour G5, A16.4: the pod hangs until the node is back, and then ends as it should."""
    async with Cluster(sim, gates=gates, recovery=policy) as c:
        await submit(c, **spec)
        pod = await freeze_first(c)
        await c.until(3000)
        assert (await found(c, pod)).status.phase == "Running"
        assert len(c.pods()) == 3
        assert not is_complete(c)
        c.fleet.heal(c.node_of(pod))
        await c.until(3200)
        assert is_complete(c)
        assert c.history(pod)[-1][1] == GONE


@virtual(Cluster, gates=ON)
async def test_a_node_that_is_healed_in_time_ends_its_pod_itself(c: Cluster) -> None:
    await submit(c)
    pod = await freeze_first(c)
    lost_at = 20 + 60
    await c.until(lost_at + 340)  # terminating, its grace over, not yet forced
    assert (await found(c, pod)).is_terminating
    c.fleet.heal(c.node_of(pod))
    await c.until(1000)
    assert is_complete(c)
    conditions = (await c.raw("jobs", "j"))["status"]["conditions"]
    assert [each["type"] for each in conditions][-1] == "Complete"
    assert await c.find_pod(pod.metadata.name) is None
    last = c.journal.objects[pod.metadata.uid]
    assert isinstance(last, Pod)
    assert structs.find(last.status.conditions, zombie.CONDITION) is None


@virtual(Cluster, gates=ON)
async def test_a_node_that_comes_back_later_keeps_failed_and_removes_its_pod(c: Cluster) -> None:
    """behaviour D8.2"""
    await submit(c)
    pod = await freeze_first(c)
    await c.until(600)
    assert is_complete(c)
    assert (await found(c, pod)).status.phase == "Failed"
    c.fleet.heal(c.node_of(pod))
    await c.until(700)
    assert await c.find_pod(pod.metadata.name) is None
    phases = [text.split()[0] for _, text in c.history(pod)]
    assert phases[phases.index("Failed") :] in (["Failed", GONE], ["Failed", "Failed", GONE])
    assert c.job().status.failed == 1


@virtual()
async def test_the_object_of_a_freed_pod_goes_too_if_that_is_wanted(sim: Sim) -> None:
    """kueue#9651; the finalizer of its Job is gone by then."""
    annotated = AnnotationRule(delete_after=timedelta(minutes=10))
    policy = FailureRecoveryPolicy(annotated=annotated)
    async with Cluster(sim, gates=ON, recovery=policy) as c:
        await submit(c)
        pod = await freeze_first(c)
        await c.until(1200)
        freed = freed_at(c, pod)
        assert c.history(pod)[-1] == (freed + 600, GONE)


@virtual(Cluster, gates=ON)
async def test_job_that_replaces_early_can_finish_only_when_the_zombie_is_freed(c: Cluster) -> None:
    """behaviour E2.2, H13"""
    await submit(c, podReplacementPolicy="TerminatingOrFailed")
    pod = await freeze_first(c)
    await c.until(1000)
    when = freed_at(c, pod)
    finished = next(at for at, text in c.history(c.job()) if "Complete=" in text)
    assert when <= finished <= when + 2


@virtual(Cluster, FAST, gates=ON)
async def test_with_short_waits_it_is_a_tenth(c: Cluster) -> None:
    """10 s + 50 s + 300 s + 60 s become a tenth; the pod's own grace stays."""
    toleration = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    }
    pod = {"terminationGracePeriodSeconds": 3, "tolerations": [toleration]}
    await submit(c, pod=pod)
    first = await freeze_first(c)
    await c.until(200)
    assert 20 + 4 + 30 + 3 + 6 <= freed_at(c, first) <= 20 + 6 + 30 + 3 + 6 + 2
    condition = structs.find((await found(c, first)).status.conditions, zombie.CONDITION)
    assert condition is not None
    assert " after 9s grace period " in condition.message
    assert is_complete(c)


@virtual()
async def test_a_node_out_of_service_lets_its_job_go_on_and_comes_back(sim: Sim) -> None:
    """The KEP's second strategy, with Kubernetes' own collector (behaviour C9.1, G6)."""
    rule = TaintNodeOutOfService("rules[0]", timedelta(minutes=5))
    policy = FailureRecoveryPolicy(taint=(rule,))
    async with Cluster(sim, gates=ON, recovery=policy) as c:
        await submit(c)
        pod = await freeze_first(c)
        node = c.node_of(pod)
        await c.until(1000)
        lost_at = c.lost_at(node)
        tainted = next(at for at, text in c.history(c.node(node)) if "out-of-service" in text)
        assert tainted == lost_at + 300
        gone_at = next(at for at, text in c.history(pod) if text == GONE)
        assert tainted <= gone_at <= tainted + 22
        assert is_complete(c)
        c.fleet.heal(node)
        await c.until(1100)
        assert (await c.raw("nodes", node))["spec"].get("taints") is None


@virtual(Cluster, gates=ON)
async def test_all_nodes_lost_force_nothing(c: Cluster) -> None:
    """behaviour C3.15, E4.9: Kueue forces here what was terminating already."""
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
    """As in `refloat manager`: one of several processes, which is killed and replaced."""
    without = tuple(
        each for each in controller_names.KNOWN if each != controller_names.FAILURE_RECOVERY
    )
    alone = ControllerSelection((controller_names.FAILURE_RECOVERY,))
    async with Cluster(sim, ControllerSelection(without, simulated_nodes=3), gates=ON) as c:
        c.start(alone, ON)
        await submit(c)
        pod = await freeze_first(c)
        await c.until(450)
        await c.stop_last()
        await c.until(600)
        assert (await found(c, pod)).status.phase == "Running"
        c.start(alone, ON)
        await c.until(652)  # when its node's lease has been watched for a while
        assert (await found(c, pod)).status.phase == "Failed"
        await c.until(760)
        assert is_complete(c)
