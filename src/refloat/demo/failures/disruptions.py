# SPDX-License-Identifier: Apache-2.0
"""Pods that the control plane ends: for preemption, a taint or a drain."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.case_namespace import FOREVER, CaseNamespace, pod_spec
from refloat.demo.failures.pod_end import End
from refloat.demo.failures.shared_values import (
    ENDED,
    IGNORED,
    KILLED,
    PREEMPTED,
    PREEMPTED_BECAUSE,
    PREEMPTED_DIFFERS,
    STATUS_OF_THE_CONTAINER,
    WORKER,
    case_node,
    settings,
)
from refloat.scenario.cluster import NODES, whole

Drain: TypeAlias = Callable[[CaseNamespace, str, str], Awaitable[None]]
"""Drains the named node of a pod."""


async def preemption(namespace: CaseNamespace) -> End:
    node = await namespace.client.get(NODES, WORKER.name)
    large = {"resources": {"requests": {"cpu": f"{int(node['status']['capacity']['cpu']) * 600}m"}}}
    pod = await namespace.started("low", pod_spec(FOREVER, node=WORKER.name, container=large))
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": namespace.name},
        "value": 1000,
    }
    await namespace.client.create(whole("priorityclasses", "scheduling.k8s.io"), body)
    higher = pod_spec(FOREVER, node=WORKER.name, container=large, priorityClassName=namespace.name)
    namespace.show_command("kubectl create --filename a-job-of-higher-priority.yaml")
    await namespace.started("high", higher)
    return await namespace.settled("low", pod)


async def taint(namespace: CaseNamespace) -> End:
    pod = await namespace.started("work", pod_spec(FOREVER, node=TAINTED.name))
    namespace.show_command(f"kubectl taint node {TAINTED.name} example.com/maintenance:NoExecute")
    taints = [{"key": "example.com/maintenance", "effect": "NoExecute"}]
    await namespace.client.patch(NODES, TAINTED.name, {"spec": {"taints": taints}})
    return await namespace.settled("work", pod)


async def cordon_and_evict(namespace: CaseNamespace, node: str, pod: str) -> None:
    """Cordon the node and evict the pod, as `kubectl drain` does."""
    await namespace.client.patch(NODES, node, {"spec": {"unschedulable": True}})
    await namespace.evict(namespace.named(pod))


async def drain(namespace: CaseNamespace, by: Drain = cordon_and_evict) -> End:
    pod = await namespace.started("work", pod_spec(FOREVER, node=DRAINED.name))
    namespace.show_command(f"kubectl drain {DRAINED.name}")
    await by(namespace, DRAINED.name, pod)
    return await namespace.settled("work", pod)


TAINTED, DRAINED = case_node("tainted"), case_node("drained")

_KILLED = {"status": "Terminating", "phase": "Failed", "reason": "", "message": "", **KILLED}
_STATUS = {"status": Difference("Error", STATUS_OF_THE_CONTAINER)}

CASES = (
    Case(
        "preemption",
        "A pod of higher priority takes the place of a Job's pod",
        "Preemption",
        "The pods of two Jobs do not fit on the node together. The second Job has the higher "
        "priority, so the scheduler preempts the pod of the first.",
        preemption,
        settings(WORKER),
        kep=_KILLED | PREEMPTED,
        differs=_STATUS | PREEMPTED_DIFFERS,
        more={**PREEMPTED_BECAUSE, **ENDED, **IGNORED},
    ),
    Case(
        "taint",
        "A node is tainted NoExecute under a Job's pod",
        "Taint-based eviction",
        "A Job runs, and a user adds a NoExecute taint to its node that the pod does not tolerate.",
        taint,
        settings(TAINTED),
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
        "A Job runs, and a user drains its node: `kubectl drain` cordons the node and evicts each "
        "pod.",
        drain,
        settings(DRAINED),
        kep=_KILLED | {"disruption": "EvictionByEvictionAPI"},
        differs=_STATUS,
        more={"because": "Eviction API: evicting", **ENDED, **IGNORED},
    ),
)
