# SPDX-License-Identifier: Apache-2.0
"""Small objects for the tests to send."""

from typing import Any

Object = dict[str, Any]

CONTAINER: Object = {"name": "main", "image": "registry.example/busybox:1", "command": ["true"]}


def _metadata(name: str, labels: Object | None) -> Object:
    """Without what is empty: kubectl would find a difference each time that it applies."""
    return {"name": name, "labels": labels} if labels else {"name": name}


def pod(name: str, *, node: str = "", labels: Object | None = None, **spec: object) -> Object:
    """A pod that nothing runs; with a node, one whose deletion takes its grace."""
    bound = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, labels),
        "spec": {"containers": [CONTAINER], **bound, **spec},
    }


def job(name: str, **spec: object) -> Object:
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def node(name: str, **spec: object) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, labels: Object | None = None, **data: str) -> Object:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(name, labels)}
    return {**made, "data": data} if data else made


def budget(name: str, labels: Object, *, min_available: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
    }


def event(name: str, about: Object, reason: str, message: str) -> Object:
    """A warning about an object, as a controller writes it."""
    time = "2026-01-02T03:04:05Z"
    metadata = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "test-controller"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
