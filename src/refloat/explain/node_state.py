# SPDX-License-Identifier: Apache-2.0
"""Whether a node lives, in one clause; `pod_terminating`, `job` and `node` ask here."""

from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node
from refloat.explain.explanation import age


def is_lost(node: Node) -> bool:
    """The kubelet has stopped reporting, as the node controller sees it."""
    ready = structs.find(node.status.conditions, "Ready")
    return ready is not None and ready.status == "Unknown"


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
