# SPDX-License-Identifier: Apache-2.0
"""One record for each decision: which pod, on what evidence, by whose word, what came of it.

A decision that is taken again is not told again. Records go to the log, as
fields; events and conditions are for those who look at the objects.
"""

import logging
from typing import Any

from refloat.api import structs
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.scene import Scene
from refloat.policy import out_of_service, zombie
from refloat.runtime.cache import key_of

log = logging.getLogger(__name__)

IGNORED, WAITING, HELD = "ignored", "waiting", "held"
TERMINATED, DELETED, TAINTED, UNTAINTED = "terminated", "deleted", "tainted", "untainted"
REPORTED = "reported"


class Audit:
    def __init__(self, scene: Scene, clock: Clock, metrics: FailureRecoveryMetrics) -> None:
        self._scene = scene
        self._clock = clock
        self._metrics = metrics
        self._last: dict[str, object] = {}  # key -> what was told of it

    def forget(self, key: str) -> None:
        self._last.pop(key, None)

    def pod(self, pod: Pod, decision: zombie.Decision, outcome: str, *, reason: str = "") -> bool:
        """Whether it is news."""
        reason = reason or _reason(decision)
        if not self._is_news(key_of(pod), (pod.metadata.uid, outcome, reason, _until(decision))):
            return False
        self._metrics.pods.labels(outcome, reason).inc()
        if isinstance(decision, zombie.Terminate) and outcome == TERMINATED:
            self._metrics.stuck.observe(decision.stuck.total_seconds())
        if log.isEnabledFor(logging.INFO):
            self._record(pod, decision, outcome, reason)
        return True

    def _record(self, pod: Pod, decision: zombie.Decision, outcome: str, reason: str) -> None:
        fields = {
            "pod": key_of(pod),
            "uid": pod.metadata.uid,
            "node": pod.spec.node_name,
            "action": outcome,
            "reason": reason,
            "rule": "" if isinstance(decision, zombie.Ignore) else decision.trigger.name,
            "deletionTimestamp": pod.metadata.deletion_timestamp,
            "phase": pod.status.phase,
            **self._of_node(pod.spec.node_name),
        }
        self._write(f"pod {outcome}: {decision.text}", fields)

    def node(
        self, node: Node, decision: out_of_service.Decision, outcome: str, *, reason: str = ""
    ) -> bool:
        """Whether it is news."""
        name = node.metadata.name
        reason = reason or _node_reason(decision)
        rule = getattr(decision, "rule", None)
        if not self._is_news(name, (node.metadata.uid, outcome, reason)):
            return False
        self._metrics.nodes.labels(outcome, reason).inc()
        fields = {
            "node": name,
            "uid": node.metadata.uid,
            "action": outcome,
            "reason": reason,
            "rule": "" if rule is None else rule.path,
            **self._of_node(name),
        }
        self._write(f"node {outcome}: {decision.text}", fields)
        return True

    def _is_news(self, key: str, told: object) -> bool:
        if self._last.get(key) == told:
            return False
        self._last[key] = told
        return True

    def _of_node(self, name: str) -> dict[str, Any]:
        """The evidence."""
        node = self._scene.nodes.get(name)
        taints = () if node is None else node.spec.taints or ()
        ready = None if node is None else structs.find(node.status.conditions, "Ready")
        silence = self._scene.silence(name)
        return {
            "taints": ",".join(f"{each.key}:{each.effect}" for each in taints),
            "ready": "" if ready is None else ready.status,
            "leaseSilentSeconds": round(silence.seconds or 0.0) if silence.exists else None,
            "unreachableNodes": len(self._scene.lost),
        }

    def _write(self, text: str, fields: dict[str, Any]) -> None:
        when = self._clock.now().isoformat(timespec="milliseconds")
        log.info("%s", text, extra={"fields": {**fields, "when": when}})


def _until(decision: zombie.Decision) -> object:
    """The time that a record announces; a silence that begins anew again and again is no news."""
    if isinstance(decision, zombie.Wait) and decision.awaited != zombie.Awaited.LEASE:
        return decision.until
    return None


def _reason(decision: zombie.Decision) -> str:
    if isinstance(decision, zombie.Ignore):
        return decision.reason
    if isinstance(decision, zombie.Wait):
        return decision.awaited
    return "Annotation" if decision.trigger.name.endswith(" annotation") else "Rule"


def _node_reason(decision: out_of_service.Decision) -> str:
    if isinstance(decision, out_of_service.Ignore):
        return decision.reason
    if isinstance(decision, out_of_service.Wait):
        return decision.awaited
    return "Rule" if isinstance(decision, out_of_service.Set) else "NodeReady"
