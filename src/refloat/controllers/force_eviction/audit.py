# SPDX-License-Identifier: Apache-2.0
"""One log record for each act of force eviction: which object, on what evidence.

The records have the fields of zombie recovery's records, so one query of the log shows
both. A record belongs to a write that succeeded, or to a decision not to write.
"""

import logging
from collections.abc import Callable
from typing import Any

from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.policy.recovery import force_eviction, node_evidence
from refloat.policy.recovery.node_evidence import LeaseSilence
from refloat.runtime.cache import key_of

log = logging.getLogger(__name__)

EVICTED, DELETED, HANDED_OVER = "evicted", "deleted", "handedOver"
STARTED, FINISHED, REFUSED, WITHDRAWN = "started", "finished", "refused", "withdrawn"
WAITING = "waiting"


class Audit:
    def __init__(self, clock: Clock, silence: Callable[[str], LeaseSilence]) -> None:
        self._clock = clock
        self._silence = silence
        self._waits: dict[str, str] = {}  # by node: the last wait that was recorded

    def forget(self, node: str) -> None:
        self._waits.pop(node, None)

    def pod(self, pod: Pod, node: Node, action: str, text: str) -> None:
        fields = {
            "pod": key_of(pod),
            "uid": pod.metadata.uid,
            "node": pod.spec.node_name,
            "action": action,
            "reason": force_eviction.REASON,
            "rule": _requests(node),
            "deletionTimestamp": pod.metadata.deletion_timestamp,
            "phase": pod.status.phase,
            **self._evidence(node),
        }
        self._write(f"pod {action}: {text}", fields)

    def node(self, node: Node, action: str, text: str) -> None:
        fields = {
            "node": node.metadata.name,
            "uid": node.metadata.uid,
            "action": action,
            "reason": "ForceEviction",
            "rule": _requests(node),
            **self._evidence(node),
        }
        self._write(f"node {action}: {text}", fields)

    def wait(self, node: Node, why: str) -> None:
        """Record a wait once."""
        if self._waits.get(node.metadata.name) != why:
            self._waits[node.metadata.name] = why
            self.node(node, WAITING, why)

    def _evidence(self, node: Node) -> dict[str, Any]:
        return node_evidence.record(node, self._silence(node.metadata.name))

    def _write(self, text: str, fields: dict[str, Any]) -> None:
        when = self._clock.now().isoformat(timespec="milliseconds")
        log.info("%s", text, extra={"fields": {**fields, "when": when}})


def _requests(node: Node) -> str:
    taints = force_eviction.request_taints(node)
    return ",".join(f"{each.key}={each.value}:{each.effect}" for each in taints)
