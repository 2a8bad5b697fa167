# SPDX-License-Identifier: Apache-2.0
"""Events on nodes and pods, in the exact words of Kubernetes (behaviour C3.6, C3.16)."""

from refloat.api.core import Pod
from refloat.client import kinds
from refloat.runtime.event_series import Reference
from refloat.runtime.recorder import Sink

# The source of the events, as in Kubernetes.
COMPONENT = "node-controller"


class NodeEvents:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def registered(self, name: str, uid: str) -> None:
        note = f"Node {name} event: Registered Node {name} in Controller"
        self._of_node(name, uid, "RegisteredNode", note)

    def removed(self, name: str, uid: str) -> None:
        note = f"Node {name} event: Removing Node {name} from Controller"
        self._of_node(name, uid, "RemovingNode", note)

    def not_ready(self, name: str, uid: str) -> None:
        self._of_node(name, uid, "NodeNotReady", f"Node {name} status is now: NodeNotReady")

    def pod_not_ready(self, pod: Pod) -> None:
        about = Reference.of(kinds.PODS, pod)
        self._sink.event(about, "Warning", "NodeNotReady", "Monitor", "Node is not ready")

    def _of_node(self, name: str, uid: str, reason: str, note: str) -> None:
        self._sink.event(Reference("v1", "Node", name, uid=uid), "Normal", reason, "Monitor", note)
