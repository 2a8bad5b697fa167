# SPDX-License-Identifier: Apache-2.0
"""One log record for each decision: the pod, the evidence, the rule and the result.

A decision that is repeated is not recorded again. Users who look at the objects read
events and conditions instead.
"""

import logging
from typing import Any

from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.recovery_state import RecoveryState
from refloat.policy.recovery import node_evidence, out_of_service, zombie
from refloat.runtime.cache import key_of

log = logging.getLogger(__name__)

IGNORED, WAITING, HELD = "ignored", "waiting", "held"
TERMINATED, DELETED, TAINTED, UNTAINTED = "terminated", "deleted", "tainted", "untainted"
REPORTED = "reported"


class Audit:
    def __init__(self, state: RecoveryState, clock: Clock, metrics: FailureRecoveryMetrics) -> None:
        self._state = state
        self._clock = clock
        self._metrics = metrics
        self._last: dict[str, object] = {}  # by key: the last record

    def forget(self, key: str) -> None:
        self._last.pop(key, None)

    def pod(self, pod: Pod, decision: zombie.Decision, outcome: str, *, reason: str = "") -> bool:
        """Record a decision; False if the last record says the same."""
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
        """Record a decision; False if the last record says the same."""
        name = node.metadata.name
        reason = reason or _reason(decision)
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

    def _is_news(self, key: str, record: object) -> bool:
        if self._last.get(key) == record:
            return False
        self._last[key] = record
        return True

    def _of_node(self, name: str) -> dict[str, Any]:
        """The evidence for the health of a node."""
        return {
            **node_evidence.record(self._state.nodes.get(name), self._state.silence(name)),
            "unreachableNodes": len(self._state.lost),
        }

    def _write(self, text: str, fields: dict[str, Any]) -> None:
        when = self._clock.now().isoformat(timespec="milliseconds")
        log.info("%s", text, extra={"fields": {**fields, "when": when}})


def _until(decision: zombie.Decision) -> object:
    """The time that a record announces; a silence of the Lease that starts again is no news."""
    if isinstance(decision, zombie.TerminateLater) and decision.awaited != zombie.Awaited.LEASE:
        return decision.until
    return None


def _reason(decision: zombie.Decision | out_of_service.Decision) -> str:
    if isinstance(decision, zombie.Ignore | out_of_service.Ignore):
        return decision.reason
    if isinstance(decision, zombie.TerminateLater | out_of_service.TaintLater):
        return decision.awaited
    if isinstance(decision, out_of_service.RemoveTaint):
        return "NodeReady"
    if isinstance(decision, out_of_service.AddTaint):
        return "Rule"
    return "Annotation" if decision.trigger.name.endswith(" annotation") else "Rule"
