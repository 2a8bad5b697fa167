# SPDX-License-Identifier: Apache-2.0
"""Pods that end before they ever ran: KEP-3329, "Marking pods as Failed"."""

from functools import partial

from refloat.demo.errors import StoryFailed
from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.end import End
from refloat.demo.failures.scene import FOREVER, Scene, pod_spec
from refloat.demo.failures.words import (
    COUNTED,
    ENDED,
    FAILED_BY_137,
    HUGE,
    IGNORED,
    MISSING,
    NOT_DISRUPTED,
    ORPHANED,
    ORPHANED_BECAUSE,
    PREEMPTED,
    PREEMPTED_BECAUSE,
    PREEMPTED_DIFFERS,
    UNSTARTED,
    WORKER,
    own,
    setting,
)
from refloat.demo.nodes import NODES


async def orphan(scene: Scene) -> End:
    missing = {"image": MISSING}
    pod = await scene.job("work", pod_spec(FOREVER, node=ORPHANING.name, container=missing))
    await scene.waiting(pod, "ImagePullBackOff")
    await scene.lose_node(ORPHANING.name, pod)
    return await scene.settled("work", pod)


async def unscheduled(scene: Scene) -> End:
    pod = await scene.job("work", pod_spec(FOREVER, node="there-is-no-such-node"))
    await scene.until(pod, lambda each: each["status"].get("conditions"))
    await scene.delete(pod)
    return await scene.settled("work", pod)


ORPHANING = own("orphaning", images={"missing": [MISSING]})

PULLING = ("ErrImagePull", "ImagePullBackOff")
CREATING = ("ContainerCreating",)


async def deleted(scene: Scene, *, reasons: tuple[str, ...], spec: dict[str, object]) -> End:
    """A user deletes a pod that waits."""
    pod = await scene.job("work", spec)
    await scene.waiting(pod, *reasons)
    await scene.delete(pod)
    found = await scene.settled("work", pod)
    if scene.phases(pod) != ["Pending", "Failed"]:
        raise StoryFailed(f"pod {pod} went through {scene.phases(pod)}")
    return found


async def preempted(scene: Scene) -> End:
    node = await scene.stage.client.get(f"{NODES}/{WORKER.name}")
    most = int(node["status"]["capacity"]["memory"].removesuffix("Ki")) * 6 // 10
    resources = {"resources": {"requests": {"memory": f"{most}Ki"}}}
    lower = pod_spec(FOREVER, node=WORKER.name, container=resources | {"image": MISSING})
    pod = await scene.job("work", lower)
    await scene.waiting(pod, *PULLING)
    higher = pod_spec(
        FOREVER,
        node=WORKER.name,
        container=resources,
        priorityClassName="system-node-critical",
    )
    scene.does("kubectl create --filename a-critical-pod.yaml")
    await scene.pod("critical", higher)
    return await scene.settled("work", pod)


_KEP = {"phase": "Failed", "reason": "Deleted", "message": "Deleted while pending"}
_MORE = {
    "status": "ContainerStatusUnknown",
    **ENDED,
}
_BY_USER = {**NOT_DISRUPTED, "because": "", **FAILED_BY_137}

_UNSTARTED = {
    "container": Difference(
        UNSTARTED, "the KEP's is of 1.26, where the pod stayed Pending for ever; today D5.1"
    )
}

CASES = (
    Case(
        "orphan",
        "A pod is Pending on a node that is deleted",
        "Marking pods as Failed: orphan pods",
        "A Job's pod waits for its image; its node is cut off, and then deleted.",
        orphan,
        setting(ORPHANING),
        kep={"phase": "Failed", **ORPHANED},
        more={
            "status": "ImagePullBackOff",
            "reason": "",
            "message": "",
            "container": "waiting ImagePullBackOff",
            **ORPHANED_BECAUSE,
            "conditions": "ContainersReady=False (ContainersNotReady), Initialized=True, "
            "PodReadyToStartContainers=False, PodScheduled=True, Ready=False (ContainersNotReady)",
            **IGNORED,
        },
    ),
    Case(
        "unscheduled",
        "A pod that no node can take is deleted",
        "Marking pods as Failed: Pending, terminating and unscheduled",
        "A Job's pod wants a node that is not there; a user deletes the pod.",
        unscheduled,
        setting(),
        kep={"phase": "Failed"},
        more={
            "status": "Failed",
            "reason": "",
            "message": "",
            "container": "none",
            **NOT_DISRUPTED,
            "because": "",
            "conditions": "PodScheduled=False (Unschedulable)",
            **COUNTED,
        },
    ),
    Case(
        "image-missing",
        "A pod whose image is missing is deleted by a user",
        "Marking pods as Failed: invalid image, deleted by a user",
        "A Job's pod waits for an image that nobody has; a user deletes the pod.",
        partial(
            deleted,
            reasons=PULLING,
            spec=pod_spec(FOREVER, node=WORKER.name, container={"image": MISSING}),
        ),
        setting(WORKER),
        kep=_KEP | {"container": "waiting ImagePullBackOff"},
        differs=_UNSTARTED,
        more=_MORE | _BY_USER,
    ),
    Case(
        "image-preempted",
        "A pod whose image is missing gives way to a critical pod",
        "Marking pods as Failed: invalid image, preempted",
        "A Job's pod waits for an image that nobody has; a pod of priority system-node-critical "
        "needs its place.",
        preempted,
        setting(WORKER),
        kep=_KEP | {"container": "waiting ImagePullBackOff", **PREEMPTED},
        differs=_UNSTARTED | PREEMPTED_DIFFERS,
        more={**_MORE, **PREEMPTED_BECAUSE, **IGNORED},
    ),
    Case(
        "config-missing",
        "A pod whose ConfigMap is missing is deleted by a user",
        "Marking pods as Failed: invalid ConfigMap",
        "A Job's pod waits for a volume of a ConfigMap that is not there; a user deletes the pod.",
        partial(
            deleted,
            reasons=CREATING,
            spec=pod_spec(
                FOREVER,
                node=WORKER.name,
                container={"volumeMounts": [{"name": "config", "mountPath": "/config"}]},
                volumes=[{"name": "config", "configMap": {"name": "there-is-none"}}],
            ),
        ),
        setting(WORKER),
        kep=_KEP | {"container": UNSTARTED},
        more=_MORE | _BY_USER,
    ),
    Case(
        "image-slow",
        "A pod whose image takes long is deleted by a user",
        "Marking pods as Failed: slow image",
        "A Job's pod waits for an image that takes an hour to pull; a user deletes the pod.",
        partial(
            deleted,
            reasons=CREATING,
            spec=pod_spec(FOREVER, node=WORKER.name, container={"image": HUGE}),
        ),
        setting(WORKER),
        kep=_KEP | {"container": "terminated 137 Error"},
        differs={
            "container": Difference(
                UNSTARTED,
                "the KEP's is of 1.26, where the pod ran first; as the KEP proposes, it never does",
            )
        },
        more=_MORE | _BY_USER,
    ),
)
