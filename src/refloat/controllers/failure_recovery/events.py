# SPDX-License-Identifier: Apache-2.0
"""Events of zombie recovery on pods and nodes; the one for a Failed pod is the KEP's."""

from refloat.api import durations
from refloat.api.core import Node, Pod
from refloat.client import kinds
from refloat.policy.garbage import pod_gc
from refloat.policy.recovery import out_of_service, recovery_bounds, zombie
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

COMPONENT = "pod-termination-controller"

# A lost node may have had thousands of pods, and no event of one that was forced
# may be lost: half a kilobyte for each that waits.
MAX_QUEUED = 20_000

# Kueue's, for the same (behaviour E1.7).
_ACTION = "ForcefulTermination"
DELETED = "KueueForcefullyDeleted"

WOULD = "WouldForcefullyTerminate"
WOULD_TAINT = "WouldTaintNodeOutOfService"
TAINTED = "FailureRecoveryTaintedNode"
UNTAINTED = "FailureRecoveryUntaintedNode"


class RecoveryEvents:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def terminated(self, pod: Pod, message: str) -> None:
        self._of_pod(pod, "Warning", zombie.REASON, message)

    def deleted(self, pod: Pod, decision: zombie.Delete) -> None:
        where, who = pod.spec.node_name, decision.trigger.name
        note = f"Pod forcefully deleted on unreachable node `{where}` (triggered by `{who}`)"
        self._of_pod(pod, "Warning", DELETED, note)

    def would(self, pod: Pod, decision: zombie.Terminate | zombie.Delete) -> None:
        """Of mode Report."""
        act = "fail" if isinstance(decision, zombie.Terminate) else "be deleted"
        note = (
            f"Pod would {act} now by force, but failureRecoveryPolicy.mode is Report:"
            f" unreachable node `{pod.spec.node_name}` (triggered by `{decision.trigger.name}`)"
        )
        self._of_pod(pod, "Normal", WOULD, note)

    def held(self, node: Node, why: str) -> None:
        note = f"Pods that hang on this node are not freed for now: {why}"
        self._of_node(node, "Warning", recovery_bounds.HELD, note)

    def tainted(self, node: Node, decision: out_of_service.AddTaint) -> None:
        note = f"Node tainted {pod_gc.OUT_OF_SERVICE}: {_why(decision)}"
        self._of_node(node, "Warning", TAINTED, note)

    def would_taint(self, node: Node, decision: out_of_service.AddTaint) -> None:
        """Of mode Report."""
        note = (
            f"Node would be tainted {pod_gc.OUT_OF_SERVICE} now,"
            f" but failureRecoveryPolicy.mode is Report: {_why(decision)}"
        )
        self._of_node(node, "Normal", WOULD_TAINT, note)

    def untainted(self, node: Node) -> None:
        note = f"Node is ready again: the taint {pod_gc.OUT_OF_SERVICE} was removed"
        self._of_node(node, "Normal", UNTAINTED, note)

    def _of_pod(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        self._sink.event(Reference.of(kinds.PODS, pod), kind, reason, _ACTION, note)

    def _of_node(self, node: Node, kind: EventType, reason: str, note: str) -> None:
        self._sink.event(Reference.of(kinds.NODES, node), kind, reason, _ACTION, note)


def _why(decision: out_of_service.AddTaint) -> str:
    timeout = durations.show(decision.rule.timeout)
    return f"unreachable for {timeout} (triggered by `{decision.rule.path} rule`)"
