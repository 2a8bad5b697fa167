# SPDX-License-Identifier: Apache-2.0
"""Pods of a node that is cut off: the cluster does not know their state."""

from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.case_namespace import FOREVER, CaseNamespace, pod_spec
from refloat.demo.failures.pod_end import End
from refloat.demo.failures.shared_values import (
    IGNORED,
    NOT_DISRUPTED,
    NOW_FAILED,
    ORPHANED,
    ORPHANED_BECAUSE,
    STATUS_OF_THE_CONTAINER,
    case_node,
    settings,
    settings_without,
)


async def node_deleted(namespace: CaseNamespace) -> End:
    pod = await namespace.started("work", pod_spec(FOREVER, node=DELETED.name))
    await namespace.lose_node(DELETED.name, pod)
    return await namespace.settled("work", pod)


async def node_lost(namespace: CaseNamespace) -> End:
    pod = await namespace.started("work", pod_spec(FOREVER, node=LOST.name))
    namespace.cut_off(LOST.name)
    await namespace.until(pod, lambda pod: pod["status"].get("reason"))
    return namespace.now("work", pod)


DELETED, LOST = case_node("deleted"), case_node("lost")

CASES = (
    Case(
        "node-deleted",
        "A node is cut off, and deleted from the API",
        "Disconnected node",
        "A Job runs; its node is cut off, and then deleted. The container runs on until the "
        "node is back and sees that the pod is gone.",
        node_deleted,
        settings(DELETED),
        kep={
            "status": "Terminating",
            "phase": "Running",
            "reason": "",
            "message": "",
            "container": "running",
            **ORPHANED,
        },
        differs={
            "status": Difference("Failed", STATUS_OF_THE_CONTAINER),
            "phase": Difference("Failed", NOW_FAILED),
        },
        more={
            **ORPHANED_BECAUSE,
            "conditions": "ContainersReady=True, Initialized=True, "
            "PodReadyToStartContainers=True, PodScheduled=True, Ready=False",
            **IGNORED,
        },
    ),
    Case(
        "node-lost",
        "A node is cut off, without the taint-eviction-controller",
        "Disconnected node when taint-manager is disabled",
        "A cluster without the taint-eviction-controller; a Job runs, and its node is cut off.",
        node_lost,
        settings_without("taint-eviction-controller", LOST),
        kep={
            "status": "Unknown",
            "phase": "Running",
            "reason": "NodeLost",
            "message": "Node NODE which was running pod POD is unresponsive",
            "container": "running",
        },
        differs={
            "status": Difference(
                "NodeLost",
                "in 1.24 the node lifecycle controller also deleted the pod, and kubectl showed a "
                "deleted pod of a lost node as Unknown; today the controller deletes no pod",
            )
        },
        more={
            **NOT_DISRUPTED,
            "because": "",
            "conditions": "ContainersReady=True, Initialized=True, "
            "PodReadyToStartContainers=True, PodScheduled=True, Ready=False",
            "job": "goes on, failed 0",
            "replaced": "no",
        },
    ),
)
