# SPDX-License-Identifier: Apache-2.0
"""The objects of the demos, as users write them.

Also the statuses that a kubelet, the disruption controller and the Job controller
write, for the demo that plays these parts.
"""

from datetime import datetime

from refloat.api import times
from refloat.api.meta import Object
from refloat.scenario import manifests

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer that keeps a Job's pod until the Job has counted it."""


def job_spec(completions: int) -> Object:
    conditions = [{"type": "DisruptionTarget"}]
    return {
        "completions": completions,
        "parallelism": completions,
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": conditions}]},
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
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "labels": template["metadata"]["labels"],
            "finalizers": [TRACKING],
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }


def budget(name: str, owner: Object, *, min_available: int) -> Object:
    labels = owner["spec"]["selector"]["matchLabels"]
    return {
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
        "image": manifests.CONTAINER["image"],
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
