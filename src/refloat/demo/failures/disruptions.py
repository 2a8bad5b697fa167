# SPDX-License-Identifier: Apache-2.0
"""Pods that the control plane ends: for a better one, for a taint, for a drain."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.end import End
from refloat.demo.failures.scene import FOREVER, Scene, pod_spec
from refloat.demo.failures.words import (
    ENDED,
    IGNORED,
    KILLED,
    PREEMPTED,
    PREEMPTED_BECAUSE,
    PREEMPTED_DIFFERS,
    STATUS_OF_THE_CONTAINER,
    WORKER,
    own,
    setting,
)
from refloat.demo.nodes import NODES

Drain: TypeAlias = Callable[[Scene, str, str], Awaitable[None]]
"""Empties a node, by name, of a pod."""


async def preemption(scene: Scene) -> End:
    node = await scene.stage.client.get(f"{NODES}/{WORKER.name}")
    most = {"resources": {"requests": {"cpu": f"{int(node['status']['capacity']['cpu']) * 600}m"}}}
    pod = await scene.running("low", pod_spec(FOREVER, node=WORKER.name, container=most))
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": scene.space},
        "value": 1000,
    }
    await scene.stage.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    higher = pod_spec(FOREVER, node=WORKER.name, container=most, priorityClassName=scene.space)
    scene.does("kubectl create --filename a-job-of-higher-priority.yaml")
    await scene.running("high", higher)
    return await scene.settled("low", pod)


async def taint(scene: Scene) -> End:
    pod = await scene.running("work", pod_spec(FOREVER, node=TAINTED.name))
    scene.does(f"kubectl taint node {TAINTED.name} example.com/maintenance:NoExecute")
    taints = [{"key": "example.com/maintenance", "effect": "NoExecute"}]
    await scene.stage.client.patch(f"{NODES}/{TAINTED.name}", {"spec": {"taints": taints}})
    return await scene.settled("work", pod)


async def cordon_and_evict(scene: Scene, node: str, pod: str) -> None:
    """What `kubectl drain` does."""
    await scene.stage.client.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})
    await scene.evict(pod)


async def drain(scene: Scene, by: Drain = cordon_and_evict) -> End:
    pod = await scene.running("work", pod_spec(FOREVER, node=DRAINED.name))
    scene.does(f"kubectl drain {DRAINED.name}")
    await by(scene, DRAINED.name, pod)
    return await scene.settled("work", pod)


TAINTED, DRAINED = own("tainted"), own("drained")

_KILLED = {"status": "Terminating", "phase": "Failed", "reason": "", "message": "", **KILLED}
_STATUS = {"status": Difference("Error", STATUS_OF_THE_CONTAINER)}

CASES = (
    Case(
        "preemption",
        "A pod of higher priority takes the place of a Job's pod",
        "Preemption",
        "Two Jobs whose pods do not fit on the node together; the second has the higher "
        "priority, and the scheduler takes the first one's pod away for it.",
        preemption,
        setting(WORKER),
        kep=_KILLED | PREEMPTED,
        differs=_STATUS | PREEMPTED_DIFFERS,
        more={**PREEMPTED_BECAUSE, **ENDED, **IGNORED},
    ),
    Case(
        "taint",
        "A node is tainted NoExecute under a Job's pod",
        "Taint-based eviction",
        "A Job runs, and its node gets a NoExecute taint that the pod does not tolerate.",
        taint,
        setting(TAINTED),
        kep=_KILLED | {"disruption": "DeletionByTaintManager"},
        differs=_STATUS,
        more={
            "because": "Taint manager: deleting due to NoExecute taint",
            **ENDED,
            **IGNORED,
        },
    ),
    Case(
        "drain",
        "A node is drained of a Job's pod",
        "Node drain",
        "A Job runs, and its node is drained: cordoned, and each pod evicted, as `kubectl drain` "
        "does.",
        drain,
        setting(DRAINED),
        kep=_KILLED | {"disruption": "EvictionByEvictionAPI"},
        differs=_STATUS,
        more={"because": "Eviction API: evicting", **ENDED, **IGNORED},
    ),
)
