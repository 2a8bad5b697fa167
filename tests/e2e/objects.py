# SPDX-License-Identifier: Apache-2.0
"""What kubectl and clients send, besides the objects of `tests.builders`."""

from typing import Any

Object = dict[str, Any]


def budget(name: str, labels: Object, *, min_available: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
    }


def event(name: str, about: Object, reason: str, message: str) -> Object:
    """A warning about an object, like that of a controller."""
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
