# SPDX-License-Identifier: Apache-2.0
"""The objects of the demos, as users write them.

Also the statuses that a kubelet, the disruption controller and the Job controller
write, for the demo that plays these parts.
"""

from datetime import datetime
from typing import Any, TypeAlias

from refloat.api import times

Object: TypeAlias = dict[str, Any]

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer that keeps a Job's pod until the Job has counted it."""


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def job(name: str, *, completions: int) -> Object:
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example.com/train:1"}],
        }
    }
    conditions = [{"type": "DisruptionTarget"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": completions,
            "parallelism": completions,
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": conditions}]},
            "template": template,
        },
    }


def pod_of(owner: Object) -> Object:
    """A pod as the Job controller creates it."""
    template, metadata = owner["spec"]["template"], owner["metadata"]
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "labels": template["metadata"]["labels"],
            "finalizers": [TRACKING],
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }


def binding(pod: Object, node_name: str) -> Object:
    """The binding that a scheduler posts."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }


def eviction(pod: Object) -> Object:
    metadata = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}


def budget(name: str, owner: Object, *, min_available: int) -> Object:
    labels = owner["spec"]["selector"]["matchLabels"]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
    }


def budget_status(*, healthy: int, desired: int) -> Object:
    """The status of a budget from the disruption controller."""
    return {
        "status": {
            "observedGeneration": 1,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": healthy,
            "disruptionsAllowed": healthy - desired,
        }
    }


def running(now: datetime) -> Object:
    """The status of a kubelet for a running container."""
    stamp = times.format_time(now)
    body = _pod_status("Running", {"running": {"startedAt": stamp}}, now, ready=True)
    body["status"]["startTime"] = stamp
    return body


def ended(now: datetime, *, exit_code: int) -> Object:
    """The status of a kubelet for a terminated container."""
    stamp, reason = times.format_time(now), "Error" if exit_code else "Completed"
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": stamp}}
    return _pod_status("Failed" if exit_code else "Succeeded", state, now, ready=False)


def _pod_status(phase: str, state: Object, now: datetime, *, ready: bool) -> Object:
    container = {
        "name": "main",
        "image": "example.com/train:1",
        "imageID": "",
        "restartCount": 0,
        "ready": ready,
        "state": state,
    }
    condition = {
        "type": "Ready",
        "status": str(ready),
        "lastProbeTime": None,
        "lastTransitionTime": times.format_time(now),
    }
    return {"status": {"phase": phase, "conditions": [condition], "containerStatuses": [container]}}


def job_started(now: datetime) -> Object:
    """The first status of the Job controller; the start time never changes."""
    return {"status": {"startTime": times.format_time(now)}}


def job_counts(*, active: int, succeeded: int = 0) -> Object:
    """The status of a running Job."""
    return {"status": {"active": active, "ready": active, "succeeded": succeeded}}


def job_complete(now: datetime, *, succeeded: int) -> Object:
    """The status of a Job with all completions."""
    stamp = times.format_time(now)
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
            "lastProbeTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    return {
        "status": {
            "active": 0,
            "ready": 0,
            "succeeded": succeeded,
            "completionTime": stamp,
            "conditions": conditions,
        }
    }
