# SPDX-License-Identifier: Apache-2.0
"""The pods that force eviction freed: each is counted, recorded and reported once.

A record belongs to a write that succeeded. Where the controllers of Kubernetes do the work,
a pod counts when a later read shows that the pod is gone. If the answer of a write was
lost, Refloat reads the pod first: the write was ours only if the pod has the condition
that the write sets. A deletion whose answer was lost leaves no trace, so it is not counted.
"""

from refloat.api.core import Node, Pod
from refloat.controllers.force_eviction import audit
from refloat.controllers.force_eviction.audit import Audit
from refloat.controllers.force_eviction.events import ForceEvictionEvents
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.force_eviction.writes import ForceEvictionWriter
from refloat.policy.job.job_gates import JobGates
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.force_eviction import Observation
from refloat.runtime.status_writes import REFUSED


class PodRecords:
    def __init__(
        self, events: ForceEvictionEvents, audit_: Audit, metrics: ForceEvictionMetrics
    ) -> None:
        self._events = events
        self._audit = audit_
        self._metrics = metrics
        # By node, then by uid; both last as long as the request.
        self._freed: dict[str, dict[str, None]] = {}
        self._lost_answers: dict[str, dict[str, None]] = {}
        self._left_to_others: dict[str, dict[str, Pod]] = {}

    def forget(self, node: str) -> None:
        self._freed.pop(node, None)
        self._lost_answers.pop(node, None)
        self._left_to_others.pop(node, None)
        self._count_left()

    def settle(self, observation: Observation) -> None:
        """Record pods that this read shows to be freed."""
        name, done = observation.node.metadata.name, force_eviction.progress(observation.node)
        if done is None or done.step != force_eviction.EVICTING:
            return
        present = {pod.metadata.uid: pod for pod in observation.pods}
        for uid in list(self._lost_answers.get(name, ())):
            pod = present.get(uid)
            if pod is None or pod.is_terminal:
                del self._lost_answers[name][uid]
            if pod is not None and force_eviction.is_failed_by_us(pod):
                self._record(pod, observation.node, audit.EVICTED)
        leaving = {
            pod.metadata.uid: pod
            for pod in force_eviction.evicted(observation.node, observation.pods, done)
        }
        if done.handed_over:
            for uid, pod in self._left_to_others.get(name, {}).items():
                now = present.get(uid)
                if now is None or force_eviction.is_gone(now):
                    self._record(now or pod, observation.node, audit.HANDED_OVER)
        self._left_to_others[name] = leaving
        self._count_left()

    async def evict(
        self, pod: Pod, node: Node, writes: ForceEvictionWriter, job_gates: JobGates
    ) -> None:
        """Write the status first: a Job must see why its pod ended."""
        try:
            is_failed = await writes.fail(pod, job_gates)
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
        self._events.evicted(pod, handed_over=handed_over)
        self._audit.pod(pod, node, action, f"node {node.metadata.name} is down")

    def _count_left(self) -> None:
        self._metrics.left.set(sum(len(each) for each in self._left_to_others.values()))
