# SPDX-License-Identifier: Apache-2.0
"""Pods that their node ends, on a whole cluster: what a Job and its policy make of it.

KEP-3329, "Termination initiated by Kubelet" and "Marking pods as Failed", in
virtual time.
"""

import asyncio
from typing import Any

from refloat.api.core import Pod
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.client import kinds
from refloat.sim.cluster import Cluster
from refloat.sim.journal import describe_node
from refloat.sim.run import Sim
from tests.cases import cases
from tests.virtual import virtual

IGNORE = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
}

# The first pod takes more than a node has; those after it take nothing.
GREEDY = {"main": [{"seconds": None, "memory": "32Gi"}, {"seconds": 5}]}

NO_CONDITIONS = Gates({gates.POD_DISRUPTION_CONDITIONS: False})
_NEITHER = {gates.POD_DISRUPTION_CONDITIONS: False, gates.JOB_POD_REPLACEMENT_POLICY: False}
NEITHER = Gates(_NEITHER)
NONE = Gates({**_NEITHER, gates.JOB_POD_FAILURE_POLICY: False})


def ended(pod: Pod) -> tuple[str, str]:
    return pod.status.phase, pod.status.reason


def is_disrupted(pod: Pod) -> bool:
    return any(each.type == "DisruptionTarget" for each in pod.status.conditions or ())


def outcome(here: Cluster) -> tuple[str, int]:
    """How the Job ended, and how many of its pods count as failed."""
    status = here.job().status
    true = [each.type for each in status.conditions or () if each.status == "True"]
    return true[-1] if true else "", status.failed


@cases(
    "spec off want",
    {
        "ignored by a policy": ({"podFailurePolicy": IGNORE}, None, ("Complete", 0)),
        "counted without a policy": ({}, None, ("Failed", 1)),
        "not known, gate off": ({"podFailurePolicy": IGNORE}, NO_CONDITIONS, ("Failed", 1)),
    },
)
@virtual(seeds=2)
async def test_an_eviction_for_memory(
    sim: Sim, spec: dict[str, Any], off: Gates | None, want: tuple[str, int]
) -> None:
    async with Cluster(sim, gates=off) as here:
        await here.submit(script=GREEDY, backoffLimit=0, **spec)
        await here.until(60)
        assert outcome(here) == want
        first, *others = here.pods()
        assert ended(first) == ("Failed", "Evicted")
        assert is_disrupted(first) == (off is None)
        assert "memory-pressure:NoSchedule" in describe_node(here.node(here.node_of(first)))
        # Pods without requests are not sent where memory is low.
        assert all(here.node_of(each) != here.node_of(first) for each in others)


@virtual(Cluster, seeds=2)
async def test_a_limit_is_the_pods_own_fault(here: Cluster) -> None:
    """KEP-3329, "Resource limits exceeded": no condition, so no rule ignores the failure."""
    script = {"main": {"seconds": None, "storage": "2Gi"}}
    limits = {"limits": {"ephemeral-storage": "1Gi"}}
    pod = {"containers": [{"name": "main", "image": "work", "resources": limits}]}
    await here.submit(script=script, pod=pod, backoffLimit=0, podFailurePolicy=IGNORE)
    await here.until(30)
    assert outcome(here) == ("Failed", 1)
    (only,) = here.pods()
    assert ended(only) == ("Failed", "Evicted")
    assert not is_disrupted(only)


@cases(
    "code want",
    {"it does not listen": (137, ("Failed", "Terminated")), "it ends well": (0, ("Succeeded", ""))},
)
@virtual(Cluster, seeds=2)
async def test_a_shutdown(here: Cluster, code: int, want: tuple[str, str]) -> None:
    """KEP-3329, "Graceful node shutdown": the Job goes on elsewhere, or is done."""
    first = {"seconds": None, "stopExitCode": code}
    script = {"main": [first, {"seconds": 5}]}
    await here.submit(script=script, backoffLimit=0, podFailurePolicy=IGNORE)
    await here.until(5)
    (pod,) = here.pods()
    node = here.node_of(pod)
    off = asyncio.ensure_future(here.fleet.shut_down(node))
    await here.until(60)
    await off
    pod, *others = here.pods()
    assert ended(pod) == want
    assert is_disrupted(pod)
    assert outcome(here) == ("Complete", 0)
    assert [here.node_of(each) == node for each in others] == ([] if code == 0 else [False])


@cases(
    "off phase failed",
    {
        "by default": (None, "Failed", 1),
        "with one of the gates": (NO_CONDITIONS, "Failed", 1),
        "with neither, for Jobs have failure policies": (NEITHER, "Failed", 1),
        "with none": (NONE, "Pending", 1),
    },
)
@virtual(seeds=2)
async def test_a_pod_deleted_while_its_image_is_slow(
    sim: Sim, off: Gates | None, phase: str, failed: int
) -> None:
    """KEP-3329, "Marking pods as Failed", 3; KEP-3939: without a gate the pod just goes."""
    script = {"main": [{"startSeconds": 1000}, {"seconds": 5}]}
    async with Cluster(sim, gates=off) as here:
        await here.submit(script=script)
        await here.until(5)
        (pod,) = here.pods()
        await here.client.delete(kinds.PODS, pod.metadata.name, namespace="default")
        await here.until(60)
        assert ended(here.pods()[0]) == (phase, "Deleted" if phase == "Failed" else "")
        assert await here.find_pod(pod.metadata.name) is None
        assert outcome(here) == ("Complete", failed)
