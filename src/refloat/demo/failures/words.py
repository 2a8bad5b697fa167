# SPDX-License-Identifier: Apache-2.0
"""What several scenarios have in common: their nodes, and parts of how they end."""

from collections.abc import Mapping
from typing import Any

from refloat.demo.failures.case import Difference
from refloat.demo.nodes import NodeSetting
from refloat.demo.stage import Setting

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
    "kubectl says Terminating only while the phase is not terminal, and then what the containers "
    "ended with; that of 1.24 said Terminating until the object was gone"
)

NOW_FAILED = (
    "the KEP itself changed that: the garbage collector of pods fails a pod before it deletes "
    "it (C1.2, C1.5)"
)

NOT_DISRUPTED = {"disruption": "none"}

ORPHANED = {"disruption": "DeletionByPodGC"}
ORPHANED_BECAUSE = {"because": "PodGC: node no longer exists"}

PREEMPTED = {"disruption": "PreemptionByKubeScheduler"}
PREEMPTED_DIFFERS = {
    "disruption": Difference("PreemptionByScheduler", "the name of today (part F of the facts)")
}
PREEMPTED_BECAUSE = {
    "because": "default-scheduler: preempting to accommodate a higher priority pod"
}

MISSING = "non_existing_image_name:102"
HUGE = "sagemathinc/cocalc"

WORKER = NodeSetting(
    "worker",
    images={"missing": ["non_existing_image_name:*"], "pullSeconds": {f"{HUGE}*": 3600}},
)
"""A node that scenarios share: none of them does anything to it."""


def own(name: str, *flags: str, images: Mapping[str, Any] | None = None) -> NodeSetting:
    """A node of one scenario, which does something to it."""
    return NodeSetting(name, flags, images or {})


def setting(*nodes: NodeSetting) -> Setting:
    return Setting("*", nodes)


def without(controller: str, *nodes: NodeSetting) -> Setting:
    return Setting(f"-{controller}", nodes)
