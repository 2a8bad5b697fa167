# SPDX-License-Identifier: Apache-2.0
"""The body of a new pod of a Job (behaviour A8.4-A8.9).

A pure function of the Job and of the plan; names come from `pod_names`.
"""

from typing import Any

import msgspec

from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.controllers.job import pod_names
from refloat.policy.job import pod_state
from refloat.policy.job.scaling import NewPod

INDEX_ENV = "JOB_COMPLETION_INDEX"

_INDEX_SOURCE = {
    "name": INDEX_ENV,
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{pod_state.COMPLETION_INDEX}']"}},
}


class PodTemplate:
    """A Job's template, decoded once for all pods of a sync."""

    def __init__(self, job: Job) -> None:
        self._job = job
        decoded: Object = msgspec.json.decode(bytes(job.spec.template) or b"{}")
        self._metadata: Object = decoded.get("metadata") or {}
        self._spec: Object = decoded.get("spec") or {}

    @property
    def has_labels(self) -> bool:
        """A pod without labels would match no selector, and is never created (behaviour A8.10).

        The index of a pod is a label, too, whatever the template has.
        """
        return bool(self._metadata.get("labels"))

    def pod(self, name: str, new: NewPod) -> Object:
        finalizers = list(self._metadata.get("finalizers") or ())
        if pod_state.TRACKING_FINALIZER not in finalizers:
            finalizers.append(pod_state.TRACKING_FINALIZER)
        metadata: Object = {
            "name": name,
            "generateName": pod_names.prefix(self._job.metadata.name, new.index),
            "labels": dict(self._metadata.get("labels") or {}),
            "annotations": dict(self._metadata.get("annotations") or {}),
            "finalizers": finalizers,
            "ownerReferences": [owner_reference(self._job)],
        }
        spec = self._spec
        if new.index is not None:
            metadata["labels"][pod_state.COMPLETION_INDEX] = str(new.index)
            metadata["annotations"][pod_state.COMPLETION_INDEX] = str(new.index)
            spec = {**spec, "hostname": f"{self._job.metadata.name}-{new.index}"}
            for key in ("initContainers", "containers"):
                if spec.get(key):
                    spec[key] = [_with_index(container) for container in spec[key]]
        if new.failures is not None:
            metadata["annotations"].update(new.failures.annotations())
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def owner_reference(job: Job) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _with_index(container: dict[str, Any]) -> Object:
    """The container with its index in the environment, unless the variable is defined."""
    env = container.get("env") or []
    if any(each.get("name") == INDEX_ENV for each in env):
        return container
    return {**container, "env": [*env, _INDEX_SOURCE]}
