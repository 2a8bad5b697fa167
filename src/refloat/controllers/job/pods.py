# SPDX-License-Identifier: Apache-2.0
"""What a new pod of a Job looks like (behaviour A8.4-A8.9).

A pure function of the Job and of what was planned; names come from
`pod_names`, and `writes` creates it.
"""

from typing import Any

import msgspec

from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.controllers.job import pod_names
from refloat.policy import pod_state
from refloat.policy.scaling import NewPod

INDEX_ENV = "JOB_COMPLETION_INDEX"

_INDEX_SOURCE = {
    "name": INDEX_ENV,
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{pod_state.COMPLETION_INDEX}']"}},
}


class Template:
    """A Job's template, decoded once for all pods of a sync."""

    def __init__(self, job: Job) -> None:
        self._job = job
        decoded: Object = msgspec.json.decode(bytes(job.spec.template) or b"{}")
        self._metadata: Object = decoded.get("metadata") or {}
        self._spec: Object = decoded.get("spec") or {}

    @property
    def has_labels(self) -> bool:
        """A pod without labels is nobody's, and never created (behaviour A8.10).

        Its index is a label of its own, whatever the template has.
        """
        return bool(self._metadata.get("labels"))

    def pod(self, name: str, new: NewPod) -> Object:
        metadata: Object = {
            "name": name,
            "generateName": pod_names.prefix(self._job.metadata.name, new.index),
            "labels": dict(self._metadata.get("labels") or {}),
            "annotations": dict(self._metadata.get("annotations") or {}),
            "finalizers": self._finalizers(),
            "ownerReferences": [owner_reference(self._job)],
        }
        spec = self._spec
        if new.index is not None:
            spec = _indexed(self._job, metadata, spec, new.index)
        if new.failures is not None:
            metadata["annotations"].update(new.failures.annotations())
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _finalizers(self) -> list[str]:
        kept = list(self._metadata.get("finalizers") or ())
        if pod_state.TRACKING_FINALIZER not in kept:
            kept.append(pod_state.TRACKING_FINALIZER)
        return kept


def owner_reference(job: Job) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _indexed(job: Job, metadata: Object, spec: Object, index: int) -> Object:
    """The spec of the pod for an index; writes the index into the metadata."""
    metadata["labels"][pod_state.COMPLETION_INDEX] = str(index)
    metadata["annotations"][pod_state.COMPLETION_INDEX] = str(index)
    spec = {**spec, "hostname": f"{job.metadata.name}-{index}"}
    for key in ("initContainers", "containers"):
        if spec.get(key):
            spec[key] = [_told(container) for container in spec[key]]
    return spec


def _told(container: dict[str, Any]) -> Object:
    """The container, told its index unless it already says what that is."""
    env = container.get("env") or []
    if any(each.get("name") == INDEX_ENV for each in env):
        return container
    return {**container, "env": [*env, _INDEX_SOURCE]}
