# SPDX-License-Identifier: Apache-2.0
"""Whether a node lives, in one clause; `pod_terminating`, `job` and `node` ask here."""

from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.explain.explanation import age


def is_lost(node: Node) -> bool:
    """The kubelet has stopped reporting, as the node controller sees it."""
    ready = structs.find(node.status.conditions, "Ready")
    return ready is not None and ready.status == "Unknown"


def seems_lost(pod: Pod) -> bool:
    """Whether the node controller, and not the kubelet, has marked the pod not ready.

    The node controller changes `Ready` alone; a kubelet changes `ContainersReady` with it. For
    users who may not read the node.
    """
    ready = structs.find(pod.status.conditions, "Ready")
    by_other = ready is not None and ready.reason != "ReadinessGatesNotReady"
    is_ready = structs.is_true(pod.status.conditions, "Ready")
    return by_other and not is_ready and structs.is_true(pod.status.conditions, "ContainersReady")


def health(node: Node, now: datetime) -> str:
    """Whether the node is ready, and since when."""
    ready = structs.find(node.status.conditions, "Ready")
    if ready is None:
        return "has not reported yet"
    words = {"True": "ready", "False": "not ready, but its kubelet reports"}
    text = words.get(ready.status, "lost: the kubelet has stopped reporting")
    if ready.last_transition_time:
        text += f", since {age(times.parse(ready.last_transition_time), now)}"
    return text if ready.status == "True" else f"{text} ({ready.reason})"
