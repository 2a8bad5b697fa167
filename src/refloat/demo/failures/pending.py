# SPDX-License-Identifier: Apache-2.0
"""Pods that end before their containers ran: KEP-3329, "Marking pods as Failed"."""

from functools import partial

from refloat.demo.errors import DemoFailed
from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.case_namespace import FOREVER, CaseNamespace, pod_spec
from refloat.demo.failures.pod_end import End
from refloat.demo.failures.shared_values import (
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
    case_node,
    settings,
)
from refloat.scenario.cluster import NODES, PODS


async def orphan(namespace: CaseNamespace) -> End:
    missing = {"image": MISSING}
    pod = await namespace.job("work", pod_spec(FOREVER, node=ORPHANING.name, container=missing))
    await namespace.waiting(pod, "ImagePullBackOff")
    await namespace.lose_node(ORPHANING.name, pod)
    return await namespace.settled("work", pod)


async def unscheduled(namespace: CaseNamespace) -> End:
    pod = await namespace.job("work", pod_spec(FOREVER, node="there-is-no-such-node"))
    await namespace.until(pod, lambda pod: pod["status"].get("conditions"))
    await namespace.delete(pod)
    return await namespace.settled("work", pod)


ORPHANING = case_node("orphaning", images={"missing": [MISSING]})

PULLING = ("ErrImagePull", "ImagePullBackOff")
CREATING = ("ContainerCreating",)


async def deleted(
    namespace: CaseNamespace, *, reasons: tuple[str, ...], spec: dict[str, object]
) -> End:
    """A user deletes a waiting pod."""
    pod = await namespace.job("work", spec)
    await namespace.waiting(pod, *reasons)
    await namespace.delete(pod)
    end = await namespace.settled("work", pod)
    if namespace.phases(pod) != ["Pending", "Failed"]:
        raise DemoFailed(f"pod {pod} went through {namespace.phases(pod)}")
    return end


async def preempted(namespace: CaseNamespace) -> End:
    node = await namespace.client.get(NODES, WORKER.name)
    kib = int(node["status"]["capacity"]["memory"].removesuffix("Ki")) * 6 // 10
    resources = {"resources": {"requests": {"memory": f"{kib}Ki"}}}
    lower = pod_spec(FOREVER, node=WORKER.name, container=resources | {"image": MISSING})
    pod = await namespace.job("work", lower)
    await namespace.waiting(pod, *PULLING)
    higher = pod_spec(
        FOREVER,
        node=WORKER.name,
        container=resources,
        priorityClassName="system-node-critical",
    )
    namespace.show_command("kubectl create --filename a-critical-pod.yaml")
    body = {"metadata": {"name": "critical"}, "spec": higher}
    await namespace.client.create(PODS, body, namespace=namespace.name)
    return await namespace.settled("work", pod)


_KEP = {"phase": "Failed", "reason": "Deleted", "message": "Deleted while pending"}
_MORE = {
    "status": "ContainerStatusUnknown",
    **ENDED,
}
_BY_USER = {**NOT_DISRUPTED, "because": "", **FAILED_BY_137}

_UNSTARTED = {
    "container": Difference(
        UNSTARTED,
        "the KEP describes 1.26, where the pod stayed Pending for ever; today the kubelet writes "
        "exit code 137 for a container that never started",
    )
}

CASES = (
    Case(
        "orphan",
        "A pod is Pending on a node that is deleted",
        "Marking pods as Failed: orphan pods",
        "A Job's pod waits for its image; its node is cut off, and then deleted.",
        orphan,
        settings(ORPHANING),
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
        "A Job's pod selects a node that does not exist; a user deletes the pod.",
        unscheduled,
        settings(),
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
        "A Job's pod waits for an image that does not exist; a user deletes the pod.",
        partial(
            deleted,
            reasons=PULLING,
            spec=pod_spec(FOREVER, node=WORKER.name, container={"image": MISSING}),
        ),
        settings(WORKER),
        kep=_KEP | {"container": "waiting ImagePullBackOff"},
        differs=_UNSTARTED,
        more=_MORE | _BY_USER,
    ),
    Case(
        "image-preempted",
        "A pod whose image is missing gives way to a critical pod",
        "Marking pods as Failed: invalid image, preempted",
        "A Job's pod waits for an image that does not exist; a pod of priority "
        "system-node-critical preempts it.",
        preempted,
        settings(WORKER),
        kep=_KEP | {"container": "waiting ImagePullBackOff", **PREEMPTED},
        differs=_UNSTARTED | PREEMPTED_DIFFERS,
        more={**_MORE, **PREEMPTED_BECAUSE, **IGNORED},
    ),
    Case(
        "config-missing",
        "A pod whose ConfigMap is missing is deleted by a user",
        "Marking pods as Failed: invalid ConfigMap",
        "A Job's pod waits for the volume of a missing ConfigMap; a user deletes the pod.",
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
        settings(WORKER),
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
        settings(WORKER),
        kep=_KEP | {"container": "terminated 137 Error"},
        differs={
            "container": Difference(
                UNSTARTED,
                "the KEP describes 1.26, where the pod ran first; today the pod never runs, as the "
                "KEP proposes",
            )
        },
        more=_MORE | _BY_USER,
    ),
)
