# SPDX-License-Identifier: Apache-2.0
"""Frees single pods: decides, looks once more, writes, tells.

An event, a record and a count belong to a write that succeeded. If the answer
of a write is lost, the pod is read before anything is told of it: the write
was ours only if the pod's condition has the message and the time that it set.
"""

from dataclasses import dataclass
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.failure_recovery import audit
from refloat.controllers.failure_recovery.audit import Audit
from refloat.controllers.failure_recovery.bounds import BUDGET, NODES, Bounds
from refloat.controllers.failure_recovery.due import REPORT, WRITE_FAILED, DuePods
from refloat.controllers.failure_recovery.events import Teller
from refloat.controllers.failure_recovery.scene import Scene
from refloat.controllers.failure_recovery.writes import (
    AT_ONCE,
    LOOK_SECONDS,
    REFUSED,
    Late,
    Looks,
    Writes,
)
from refloat.policy import zombie
from refloat.policy.zombie import Delete, Terminate, Wait
from refloat.runtime.errors import Retry
from refloat.runtime.queue import Queue
from refloat.runtime.reconcile import DONE, Result

SERVE = ""
"""The key under which the line of those that the budget holds is served; no pod has it."""


@dataclass(frozen=True, slots=True)
class _LostAnswer:
    """A write of which it is not known whether it happened."""

    uid: str
    decision: Terminate
    when: datetime
    """The lastTransitionTime that the write would set."""

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod shows this very write, and not another's of the same message."""
        condition = structs.find(pod.status.conditions, zombie.CONDITION)
        return (
            zombie.is_forced(pod)
            and condition is not None
            and condition.message == self.decision.message
            and condition.last_transition_time == times.format_time(self.when)
        )


class PodRecovery:
    """The reconciler of pods that are terminating on lost nodes; a key is a pod's."""

    def __init__(
        self,
        scene: Scene,
        looks: Looks,
        writes: Writes,
        bounds: Bounds,
        teller: Teller,
        audit_: Audit,
        *,
        clock: Clock,
        due: DuePods,
    ) -> None:
        self._scene = scene
        self._looks = looks
        self._writes = writes
        self._bounds = bounds
        self._teller = teller
        self._audit = audit_
        self._clock = clock
        self._due = due
        self._lost_answers: dict[str, _LostAnswer] = {}  # by the pod's key
        self.queue: Queue[str] | None = None

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self._lost_answers.pop(key, None)
        self._due.remove(key)
        self._audit.forget(key)
        self._drop(key)

    def ended(self, key: str, pod: Pod) -> None:
        """It is over, and nothing more is to be done about it."""
        self._settle(key, pod)
        self._due.remove(key)
        self._drop(key)

    def _drop(self, key: str) -> None:
        if self._bounds.forget(key):
            self.serve()

    def serve(self) -> None:
        """A slot may be free for whoever is first in the line."""
        if self._bounds.is_awaited and self.queue is not None:
            self.queue.add(SERVE)

    async def reconcile(self, key: str) -> Result:
        assert self.queue is not None
        pod = self._scene.pods.get(key)
        if pod is None or not self._scene.is_on:
            # A write that failed after the pod went, or the gate, has set the reason again.
            self._due.remove(key)
        if not self._scene.is_on:
            return DONE
        if key == SERVE:
            return Result(requeue_after=self._bounds.serve(self.queue.add))
        if pod is None:
            self._lost_answers.pop(key, None)
            return DONE
        self._settle(key, pod)
        if pod.spec.node_name in self._scene.lost:
            await self._looks.regain_contact(pod.spec.node_name)
        node = self._scene.nodes.get(pod.spec.node_name)
        decision = self._scene.decide(pod, node)
        if not isinstance(decision, Terminate | Delete):
            return self._leave(key, pod, decision)
        assert node is not None
        if self._bounds.holds(key, node):
            self._set_due(key, pod, NODES)
            self._audit.pod(pod, decision, audit.HELD, reason=NODES)
            self.serve()
            return DONE
        if self._scene.settings.policy.mode == "Report":
            self._set_due(key, pod, REPORT)
            if self._audit.pod(pod, decision, audit.REPORTED):
                self._teller.would(pod, decision)
            return DONE
        return await self._force(key, pod, node, decision)

    async def _force(self, key: str, pod: Pod, node: Node, decision: Terminate | Delete) -> Result:
        try:
            if isinstance(decision, Delete):
                return await self._delete(key, pod)
            return await self._within_budget(key, pod, node, decision)
        except (errors.ClientError, Retry):
            self._set_due(key, pod, WRITE_FAILED)
            raise

    def _set_due(self, key: str, pod: Pod, reason: str) -> None:
        """Why a pod that should be gone from a lost node is not freed."""
        is_stuck = pod.is_terminating and not pod.is_terminal
        if not is_stuck or pod.spec.node_name not in self._scene.lost:
            self._due.remove(key)
            return
        policy = self._scene.settings.policy
        trigger = zombie.trigger_of(pod, self._scene.labels_of(pod), policy)
        period = policy.default_period
        if not isinstance(trigger, zombie.Ignore):
            period = trigger.period
        self._due.set(key, reason, zombie.deleted_at(pod) + period)

    def _leave(self, key: str, pod: Pod, decision: zombie.Decision) -> Result:
        self._drop(key)
        if not isinstance(decision, Wait):
            if isinstance(decision, zombie.Ignore):
                self._set_due(key, pod, decision.reason)
            self._audit.pod(pod, decision, audit.IGNORED)
            return DONE
        self._set_due(key, pod, decision.awaited)
        self._audit.pod(pod, decision, audit.WAITING)
        if decision.until is None:
            return DONE
        left = (decision.until - self._clock.now()).total_seconds()
        return Result(requeue_after=max(0.0, left))

    def _leave_after_look(self, key: str, pod: Pod, decision: zombie.Decision) -> Result:
        """The look saw what the cache does not know, and may never tell of:

        1. The node is back: the look sees it, the watch is cut.
        2. The node is lost once more.
        3. The watch goes on, or all nodes are listed: the node is as it was, and nothing
           calls for a look at its pods.
        """
        result = self._leave(key, pod, decision)
        return Result(requeue_after=LOOK_SECONDS) if result.requeue_after is None else result

    async def _within_budget(self, key: str, pod: Pod, node: Node, decision: Terminate) -> Result:
        slot = self._bounds.take(key, node)
        if slot is None:
            self._set_due(key, pod, BUDGET)
            self._audit.pod(pod, decision, audit.HELD, reason=BUDGET)
            self.serve()
            return DONE
        spent = False
        try:
            seen = await self._live(pod)
            if not self._scene.may_force:
                return AT_ONCE
            live = self._scene.decide(pod, seen)
            if not isinstance(live, Terminate):
                return self._leave_after_look(key, pod, live)
            self._bounds.note(pod)
            spent = True  # an answer that is lost may have been a yes
            await self._terminate(key, pod, live)
        except REFUSED as error:
            spent = False
            return self._refused(key, error)
        except Late as late:
            spent = late.was_sent
            raise
        finally:
            if spent:
                slot.spend(self._clock.monotonic())
            else:
                slot.give_back()
                self._bounds.disown(pod)
            self.serve()
        # The watch brings the pod as it is now, and with it what comes next.
        return DONE

    async def _live(self, pod: Pod) -> Node | None:
        """Its node as it is now; a watch may have been faster than the look."""
        name = pod.spec.node_name
        node = await self._looks.node(name)
        return node if name in self._scene.lost else self._scene.nodes.get(name)

    async def _terminate(self, key: str, pod: Pod, decision: Terminate) -> None:
        now, says_why = self._clock.now(), self._scene.settings.says_why
        try:
            await self._writes.fail(pod, decision.message, now=now, says_why=says_why)
        except REFUSED:
            raise
        except Exception:
            self._lost_answers[key] = _LostAnswer(pod.metadata.uid, decision, now)
            raise
        self._record(key, pod, decision)

    def _refused(self, key: str, error: errors.ClientError) -> Result:
        if isinstance(error, errors.NotFound):
            return DONE
        if isinstance(error, errors.Conflict):
            raise Retry(f"pod {key}: {error}") from error
        raise error

    def _record(self, key: str, pod: Pod, decision: Terminate) -> None:
        self._lost_answers.pop(key, None)
        self._due.remove(key)
        self._teller.terminated(pod, decision.message)
        self._audit.pod(pod, decision, audit.TERMINATED)

    def _settle(self, key: str, pod: Pod) -> None:
        """Tell of a write whose answer was lost, once the pod shows that the write was ours."""
        lost = self._lost_answers.get(key)
        if lost is None or (lost.uid == pod.metadata.uid and not pod.is_terminal):
            return
        del self._lost_answers[key]
        if lost.uid == pod.metadata.uid and lost.is_ours(pod):
            self._record(key, pod, lost.decision)

    async def _delete(self, key: str, pod: Pod) -> Result:
        self._drop(key)  # it ended by itself while it stood in the line
        seen = await self._live(pod)
        if not self._scene.may_force:
            return AT_ONCE
        live = self._scene.decide(pod, seen)
        if not isinstance(live, Delete):
            return self._leave_after_look(key, pod, live)
        try:
            await self._writes.delete(pod)
        except REFUSED as error:
            return self._refused(key, error)
        self._teller.deleted(pod, live)
        self._audit.pod(pod, live, audit.DELETED)
        return DONE
