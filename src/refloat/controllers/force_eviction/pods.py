# SPDX-License-Identifier: Apache-2.0
"""Which pods force eviction freed: each is counted, recorded and told of once.

A record belongs to a write that succeeded. Where Kubernetes' own controllers do
the work, a pod counts when a later read shows that it is gone. If the answer
of a write is lost, the pod is read before anything is told of it: the write was
ours only if the pod has the condition that it sets. A deletion whose answer is
lost leaves no trace to read, so it is not counted.
"""

from refloat.api.core import Node, Pod
from refloat.controllers.force_eviction import audit
from refloat.controllers.force_eviction.audit import Audit
from refloat.controllers.force_eviction.events import Teller
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.force_eviction.writes import REFUSED, Writes
from refloat.policy import force_eviction
from refloat.policy.force_eviction import Sight
from refloat.policy.switches import Switches


class PodRecords:
    def __init__(self, teller: Teller, audit_: Audit, metrics: ForceEvictionMetrics) -> None:
        self._teller = teller
        self._audit = audit_
        self._metrics = metrics
        # By node, then by uid; both go with the request.
        self._freed: dict[str, dict[str, None]] = {}
        self._lost_answers: dict[str, dict[str, None]] = {}
        self._left_to_others: dict[str, dict[str, Pod]] = {}

    def forget(self, node: str) -> None:
        self._freed.pop(node, None)
        self._lost_answers.pop(node, None)
        self._left_to_others.pop(node, None)
        self._count_left()

    def settle(self, seen: Sight) -> None:
        """Tell of pods that this read shows to be freed."""
        name, done = seen.node.metadata.name, force_eviction.progress(seen.node)
        if done is None or done.step != force_eviction.EVICTING:
            return
        present = {pod.metadata.uid: pod for pod in seen.pods}
        self._settle_answers(seen.node, present)
        leaving = {
            pod.metadata.uid: pod for pod in force_eviction.evicted(seen.node, seen.pods, done)
        }
        if done.handed_over:
            for uid, pod in self._left_to_others.get(name, {}).items():
                now = present.get(uid)
                if now is None or force_eviction.is_gone(now):
                    self._record(now or pod, seen.node, audit.HANDED_OVER)
        self._left_to_others[name] = leaving
        self._count_left()

    def _settle_answers(self, node: Node, present: dict[str, Pod]) -> None:
        for uid in list(self._lost_answers.get(node.metadata.name, ())):
            pod = present.get(uid)
            if pod is None or pod.is_terminal:
                del self._lost_answers[node.metadata.name][uid]
            if pod is not None and force_eviction.is_failed_by_us(pod):
                self._record(pod, node, audit.EVICTED)

    async def evict(self, pod: Pod, node: Node, writes: Writes, switches: Switches) -> None:
        """The status first: a Job must see why its pod ended."""
        try:
            is_failed = await writes.fail(pod, switches)
        except REFUSED:
            raise
        except Exception:
            self._lost_answers.setdefault(node.metadata.name, {})[pod.metadata.uid] = None
            raise
        if is_failed:
            self._record(pod, node, audit.EVICTED)
        if await writes.delete(pod):
            self._record(pod, node, audit.DELETED)

    def _record(self, pod: Pod, node: Node, action: str) -> None:
        freed = self._freed.setdefault(node.metadata.name, {})
        if pod.metadata.uid in freed:
            return
        freed[pod.metadata.uid] = None
        self._metrics.pods.inc()
        handed_over = action == audit.HANDED_OVER
        self._teller.evicted(pod, handed_over=handed_over)
        self._audit.pod(pod, node, action, f"node {node.metadata.name} is down")

    def _count_left(self) -> None:
        self._metrics.left.set(sum(len(each) for each in self._left_to_others.values()))
