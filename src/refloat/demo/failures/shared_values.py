# SPDX-License-Identifier: Apache-2.0
"""The nodes, settings and parts of ends that several cases share."""

from collections.abc import Mapping
from typing import Any

from refloat.demo.demo_cluster import DemoSettings
from refloat.demo.failures.case import Difference
from refloat.demo.nodes import DemoNodeSettings

KILLED = {"container": "terminated 137 Error"}

ENDED = {
    "conditions": "ContainersReady=False (PodFailed), Initialized=True, "
    "PodReadyToStartContainers=False, PodScheduled=True, Ready=False (PodFailed)"
}

IGNORED = {"job": "goes on, failed 0", "replaced": "after its end"}

COUNTED = {"job": "goes on, failed 1", "replaced": "after its end"}

FAILED_BY_137 = {
    "job": "Failed: PodFailurePolicy: Container main for pod NAMESPACE/POD failed with exit code "
    "137 matching FailJob rule at index 1",
    "replaced": "no",
}

REJECTED = {"conditions": "PodScheduled=True"}

UNSTARTED = "terminated 137 ContainerStatusUnknown"

STATUS_OF_THE_CONTAINER = (
    "kubectl shows Terminating only while the phase is not terminal, and then the end of the "
    "containers; kubectl 1.24 showed Terminating until the object was gone"
)

NOW_FAILED = (
    "since the KEP, the garbage collector of pods marks a pod Failed before it deletes the pod"
)

NOT_DISRUPTED = {"disruption": "none"}

ORPHANED = {"disruption": "DeletionByPodGC"}
ORPHANED_BECAUSE = {"because": "PodGC: node no longer exists"}

PREEMPTED = {"disruption": "PreemptionByKubeScheduler"}
PREEMPTED_DIFFERS = {"disruption": Difference("PreemptionByScheduler", "the reason of today")}
PREEMPTED_BECAUSE = {
    "because": "default-scheduler: preempting to accommodate a higher priority pod"
}

MISSING = "non_existing_image_name:102"
HUGE = "sagemathinc/cocalc"

WORKER = DemoNodeSettings(
    "worker",
    images={"missing": ["non_existing_image_name:*"], "pullSeconds": {f"{HUGE}*": 3600}},
)
"""A node that cases share, because none of them changes the node."""


def case_node(name: str, *flags: str, images: Mapping[str, Any] | None = None) -> DemoNodeSettings:
    """A node for one case, which changes the node."""
    return DemoNodeSettings(name, flags, images or {})


def settings(*nodes: DemoNodeSettings) -> DemoSettings:
    return DemoSettings("*", nodes)


def settings_without(controller: str, *nodes: DemoNodeSettings) -> DemoSettings:
    return DemoSettings(f"-{controller}", nodes)
