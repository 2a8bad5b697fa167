# SPDX-License-Identifier: Apache-2.0
"""What is told about nodes that are force evicted, and about their pods."""

from refloat.api.core import Node, Pod, Taint
from refloat.client import kinds
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

COMPONENT = "refloat.dev/force-eviction"

_ACTION = "ForceEvict"


def shown(taint: Taint) -> str:
    """As `kubectl taint` writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}"


class Teller:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def refused(self, node: Node, taints: tuple[Taint, ...], why: str) -> None:
        named = ", ".join(map(shown, taints))
        note = (
            f"Node {node.metadata.name} is not force evicted, and loses the taint {named}: {why}. "
            "Taint it again once it is switched off and not Ready."
        )
        self._of_node(node, "Warning", "ForceEvictionRefused", note)

    def began(self, node: Node, taints: tuple[Taint, ...]) -> None:
        named = ", ".join(map(shown, taints))
        note = f"Node {node.metadata.name} is down, says the taint {named}: its pods are evicted"
        self._of_node(node, "Normal", "ForceEvictionStarted", note)

    def finished(self, node: Node) -> None:
        note = f"Pods and volumes of node {node.metadata.name} are free, and the taint is gone"
        self._of_node(node, "Normal", "ForceEvictionFinished", note)

    def withdrawn(self, node: Node) -> None:
        note = f"Somebody took the taint off node {node.metadata.name}: nothing more is evicted"
        self._of_node(node, "Normal", "ForceEvictionWithdrawn", note)

    def evicted(self, pod: Pod) -> None:
        note = f"Node {pod.spec.node_name} is down: failed and deleted without grace"
        self._sink.event(Reference.of(kinds.PODS, pod), "Normal", "ForceEviction", _ACTION, note)

    def _of_node(self, node: Node, event_type: EventType, reason: str, note: str) -> None:
        meta = node.metadata
        about = Reference("v1", "Node", meta.name, uid=meta.uid)
        self._sink.event(about, event_type, reason, _ACTION, note)
