# SPDX-License-Identifier: Apache-2.0
"""Events of force eviction on nodes and pods."""

from refloat.api.core import Node, Pod, Taint
from refloat.client import kinds
from refloat.policy.recovery.force_eviction import REQUEST_TAINT
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

COMPONENT = "refloat.dev/force-eviction"

_ACTION = "ForceEvict"


def shown(taint: Taint) -> str:
    """As `kubectl taint` writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


class ForceEvictionEvents:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def refused(self, node: Node, taints: tuple[Taint, ...], why: str) -> None:
        keys = ", ".join(map(shown, taints))
        note = (
            f"Node {node.metadata.name} is not force evicted, and loses the taint {keys}: {why}. "
            "Taint it again once it is switched off and not Ready."
        )
        self._of_node(node, "Warning", "ForceEvictionRefused", note)

    def began(self, node: Node, taints: tuple[Taint, ...]) -> None:
        keys = ", ".join(map(shown, taints))
        note = f"Node {node.metadata.name} is down, says the taint {keys}: its pods are evicted"
        self._of_node(node, "Normal", "ForceEvictionStarted", note)

    def finished(self, node: Node) -> None:
        note = f"Pods and volumes of node {node.metadata.name} are free, and the taint is gone"
        self._of_node(node, "Normal", "ForceEvictionFinished", note)

    def withdrawn(self, node: Node) -> None:
        note = f"Somebody took the taint off node {node.metadata.name}: nothing more is evicted"
        self._of_node(node, "Normal", "ForceEvictionWithdrawn", note)

    def mistyped(self, node: Node, taint: Taint) -> None:
        name = node.metadata.name
        note = (
            f"The taint {shown(taint)} asks for nothing, so no pod is force evicted. To ask for"
            f" it: kubectl taint node {name} {REQUEST_TAINT.key}-"
            f" && kubectl taint node {name} {shown(REQUEST_TAINT)}"
        )
        self._of_node(node, "Warning", "ForceEvictionMistyped", note)

    def evicted(self, pod: Pod, *, handed_over: bool) -> None:
        what = "deleted by Kubernetes" if handed_over else "failed and deleted without grace"
        note = f"Node {pod.spec.node_name} is down: {what}"
        self._sink.event(Reference.of(kinds.PODS, pod), "Warning", "ForceEviction", _ACTION, note)

    def _of_node(self, node: Node, event_type: EventType, reason: str, note: str) -> None:
        meta = node.metadata
        about = Reference("v1", "Node", meta.name, uid=meta.uid)
        self._sink.event(about, event_type, reason, _ACTION, note)
