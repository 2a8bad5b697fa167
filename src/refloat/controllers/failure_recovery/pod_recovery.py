# SPDX-License-Identifier: Apache-2.0
"""Frees single pods: decides, reads the node once more, writes, records.

An event, a record and a count belong to a write that succeeded. If the answer of a write
was lost, Refloat reads the pod first. The write was ours only if the pod's condition has
the message and the time of the write. Each attempt sets its own time, and an attempt can
arrive after later ones were sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.failure_recovery import audit
from refloat.controllers.failure_recovery.audit import Audit
from refloat.controllers.failure_recovery.budget_queue import BUDGET, NODES, RecoveryLimits
from refloat.controllers.failure_recovery.due_pods import REPORT, WRITE_FAILED, DuePods
from refloat.controllers.failure_recovery.events import RecoveryEvents
from refloat.controllers.failure_recovery.recovery_state import RecoveryState
from refloat.controllers.failure_recovery.writes import (
    AT_ONCE,
    LOOK_SECONDS,
    MAX_LOST_ANSWERS,
    LateWrite,
    LiveNodes,
    RecoveryWriter,
)
from refloat.policy.recovery import zombie
from refloat.policy.recovery.zombie import Delete, Terminate, TerminateLater
from refloat.runtime.errors import Retry
from refloat.runtime.queue import Queue
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.status_writes import REFUSED

SERVE = ""
"""The key that serves the pods that wait for the budget; no pod has this key."""


@dataclass(frozen=True, slots=True)
class _LostAnswer:
    """A write that may or may not have happened."""

    uid: str
    decision: Terminate
    when: datetime
    """The lastTransitionTime that the write would set."""

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod shows this write, not another one with the same message."""
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
        state: RecoveryState,
        live_nodes: LiveNodes,
        writes: RecoveryWriter,
        limits: RecoveryLimits,
        events: RecoveryEvents,
        audit_: Audit,
        *,
        clock: Clock,
        due: DuePods,
    ) -> None:
        self._state = state
        self._live_nodes = live_nodes
        self._writes = writes
        self._limits = limits
        self._events = events
        self._audit = audit_
        self._clock = clock
        self._due = due
        self._lost_answers: dict[str, list[_LostAnswer]] = {}  # by the pod's key
        # Pods as they ended while a write of ours was under way, by key: at most one each.
        self._under_way: dict[str, list[Pod]] = {}
        self.queue: Queue[str] | None = None

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self._lost_answers.pop(key, None)
        self._due.remove(key)
        self._audit.forget(key)
        self._drop(key)

    def ended(self, key: str, pod: Pod) -> None:
        """The pod has ended, and nothing more is to be done."""
        self.settle(key, pod)
        self._due.remove(key)
        self._drop(key)

    def _drop(self, key: str) -> None:
        if self._limits.forget(key):
            self.serve()

    def serve(self) -> None:
        """A slot of the budget may be free for the next pod."""
        if self._limits.is_awaited and self.queue is not None:
            self.queue.add(SERVE)

    async def reconcile(self, key: str) -> Result:
        assert self.queue is not None
        pod = self._state.pods.get(key)
        if pod is None or not self._state.is_on:
            # A write that failed after the pod was deleted, or the gate, set the reason again.
            self._due.remove(key)
        if not self._state.is_on:
            return DONE
        if key == SERVE:
            return Result(requeue_after=self._limits.serve(self.queue.add))
        if pod is None:
            self._lost_answers.pop(key, None)
            return DONE
        self.settle(key, pod)
        if pod.spec.node_name in self._state.lost:
            await self._live_nodes.regain_contact(pod.spec.node_name)
        node = self._state.nodes.get(pod.spec.node_name)
        decision = self._state.decide(pod, node)
        if not isinstance(decision, Terminate | Delete):
            return self._leave(key, pod, decision)
        assert node is not None
        if self._limits.holds(key, node):
            self._set_due(key, pod, NODES)
            self._audit.pod(pod, decision, audit.HELD, reason=NODES)
            self.serve()
            return DONE
        if self._state.settings.policy.mode == "Report":
            self._set_due(key, pod, REPORT)
            if self._audit.pod(pod, decision, audit.REPORTED):
                self._events.would(pod, decision)
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
        """Note why Refloat has not freed a pod that should be gone from a lost node."""
        is_stuck = pod.is_terminating and not pod.is_terminal
        if not is_stuck or pod.spec.node_name not in self._state.lost:
            self._due.remove(key)
            return
        policy = self._state.settings.policy
        trigger = zombie.trigger_of(pod, self._state.labels_of(pod), policy)
        period = policy.default_period
        if not isinstance(trigger, zombie.Ignore):
            period = trigger.period
        self._due.set(key, reason, zombie.deleted_at(pod) + period)

    def _leave(self, key: str, pod: Pod, decision: zombie.Decision) -> Result:
        self._drop(key)
        if not isinstance(decision, TerminateLater):
            if isinstance(decision, zombie.Ignore):
                self._set_due(key, pod, decision.reason)
            self._audit.pod(pod, decision, audit.IGNORED)
            return DONE
        self._set_due(key, pod, decision.awaited)
        self._audit.pod(pod, decision, audit.WAITING)
        if decision.until is None:
            return DONE
        wait = (decision.until - self._clock.now()).total_seconds()
        return Result(requeue_after=max(0.0, wait))

    def _leave_after_look(self, key: str, pod: Pod, decision: zombie.Decision) -> Result:
        """Check again, because the live read saw what no watch may ever show:

        1. The node is back: the read sees this, the watch is cut.
        2. The node is lost once more.
        3. The watch continues, or all nodes are listed: the node is as before, and nothing
           queues its pods.
        """
        result = self._leave(key, pod, decision)
        return Result(requeue_after=LOOK_SECONDS) if result.requeue_after is None else result

    async def _within_budget(self, key: str, pod: Pod, node: Node, decision: Terminate) -> Result:
        slot = self._limits.take(key, node)
        if slot is None:
            self._set_due(key, pod, BUDGET)
            self._audit.pod(pod, decision, audit.HELD, reason=BUDGET)
            self.serve()
            return DONE
        is_spent = False
        try:
            live_node = await self._live(pod)
            if not self._state.may_force:
                return AT_ONCE
            live = self._state.decide(pod, live_node)
            if not isinstance(live, Terminate):
                return self._leave_after_look(key, pod, live)
            self._limits.note(pod)
            is_spent = True  # the answer may get lost
            await self._terminate(key, pod, live)
        except REFUSED as error:
            is_spent = False
            return self._refused(key, error)
        except LateWrite as late:
            is_spent = late.was_sent
            raise
        finally:
            if is_spent:
                slot.spend(self._clock.monotonic())
            else:
                slot.give_back()
                self._limits.disown(pod)
            self.serve()
        # The watch brings the changed pod, which queues the next step.
        return DONE

    async def _live(self, pod: Pod) -> Node | None:
        """The current node of the pod; a watch may have been faster than the read."""
        name = pod.spec.node_name
        node = await self._live_nodes.node(name)
        return node if name in self._state.lost else self._state.nodes.get(name)

    async def _terminate(self, key: str, pod: Pod, decision: Terminate) -> None:
        """Write, and record the write.

        1. The write is applied. 2. The watch shows the pod Failed. 3. The Job controller removes
        the finalizer, and the pod is gone. 4. The client learns that the answer is lost. So the
        pod that the watch showed meanwhile is kept, and judged once the answer is known.
        """
        now, says_why = self._clock.now(), self._state.settings.says_why
        answers = self._lost_answers.setdefault(key, [])
        ends = self._under_way[key] = []
        try:
            await self._writes.fail(pod, decision.message, now=now, says_why=says_why)
        except Exception as error:
            if not isinstance(error, REFUSED) and len(answers) < MAX_LOST_ANSWERS:
                answers.append(_LostAnswer(pod.metadata.uid, decision, now))
            if ends:
                self._judge(key, ends[0], answers)
            raise
        finally:
            del self._under_way[key]
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
        self._events.terminated(pod, decision.message)
        self._audit.pod(pod, decision, audit.TERMINATED)

    def settle(self, key: str, pod: Pod) -> None:
        """Record a write whose answer was lost, once the pod shows that the write was ours."""
        ends = self._under_way.get(key)
        if ends is None:
            self._judge(key, pod, self._lost_answers.get(key, ()))
        elif pod.is_terminal and not ends:
            ends.append(pod)

    def _judge(self, key: str, pod: Pod, answers: Sequence[_LostAnswer]) -> None:
        own = [each for each in answers if each.uid == pod.metadata.uid]
        if own and not pod.is_terminal:
            return
        self._lost_answers.pop(key, None)
        if ours := next((each for each in own if each.is_ours(pod)), None):
            self._record(key, pod, ours.decision)

    async def _delete(self, key: str, pod: Pod) -> Result:
        self._drop(key)  # the pod ended while it waited for the budget
        live_node = await self._live(pod)
        if not self._state.may_force:
            return AT_ONCE
        live = self._state.decide(pod, live_node)
        if not isinstance(live, Delete):
            return self._leave_after_look(key, pod, live)
        try:
            await self._writes.delete(pod)
        except REFUSED as error:
            return self._refused(key, error)
        self._events.deleted(pod, live)
        self._audit.pod(pod, live, audit.DELETED)
        return DONE
