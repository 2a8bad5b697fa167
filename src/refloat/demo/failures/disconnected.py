# SPDX-License-Identifier: Apache-2.0
"""Pods whose node is cut off: nobody knows how they are."""

from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.end import End
from refloat.demo.failures.scene import FOREVER, Scene, pod_spec
from refloat.demo.failures.words import (
    IGNORED,
    NOT_DISRUPTED,
    NOW_FAILED,
    ORPHANED,
    ORPHANED_BECAUSE,
    STATUS_OF_THE_CONTAINER,
    own,
    setting,
    without,
)


async def node_deleted(scene: Scene) -> End:
    pod = await scene.running("work", pod_spec(FOREVER, node=DELETED.name))
    await scene.lose_node(DELETED.name, pod)
    return await scene.settled("work", pod)


async def node_lost(scene: Scene) -> End:
    pod = await scene.running("work", pod_spec(FOREVER, node=LOST.name))
    scene.cut_off(LOST.name)
    await scene.until(pod, lambda each: each["status"].get("reason"))
    return scene.now("work", pod)


DELETED, LOST = own("deleted"), own("lost")

CASES = (
    Case(
        "node-deleted",
        "A node is cut off, and deleted from the API",
        "Disconnected node",
        "A Job runs; its node is cut off, and then deleted. The container runs on until the node "
        "is back and finds that its pod is gone.",
        node_deleted,
        setting(DELETED),
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
        "A node is cut off, and nobody evicts for taints",
        "Disconnected node when taint-manager is disabled",
        "A cluster without the taint-eviction-controller; a Job runs, and its node is cut off.",
        node_lost,
        without("taint-eviction-controller", LOST),
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
                "in 1.24 the node lifecycle controller then deleted the pod, and one that is lost "
                "and deleted is Unknown; today it deletes none (C3.18)",
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
