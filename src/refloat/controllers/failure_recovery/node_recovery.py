# SPDX-License-Identifier: Apache-2.0
"""Taints unreachable nodes as out of service where a rule allows it, and removes the taint again.

An event and a record belong to a write that succeeded. If the answer of a write was lost,
the node must show the taint with the time that was written.
"""

from collections.abc import Sequence

from refloat.api import times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.failure_recovery import audit
from refloat.controllers.failure_recovery.audit import Audit
from refloat.controllers.failure_recovery.budget_queue import NODES, RecoveryLimits
from refloat.controllers.failure_recovery.events import RecoveryEvents
from refloat.controllers.failure_recovery.recovery_state import RecoveryState
from refloat.controllers.failure_recovery.writes import (
    AT_ONCE,
    LOOK_SECONDS,
    MAX_LOST_ANSWERS,
    LiveNodes,
    RecoveryWriter,
)
from refloat.policy.node import node_taints
from refloat.policy.recovery import out_of_service, zombie
from refloat.policy.recovery.out_of_service import AddTaint, RemoveTaint, TaintLater
from refloat.runtime.errors import Retry
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.status_writes import REFUSED


class NodeRecovery:
    """The reconciler of unreachable nodes and of nodes that Refloat tainted, by name."""

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
    ) -> None:
        self._state = state
        self._live_nodes = live_nodes
        self._writes = writes
        self._limits = limits
        self._events = events
        self._audit = audit_
        self._clock = clock
        self._lost_answers: dict[str, dict[str, AddTaint]] = {}  # by node, then by timeAdded

    async def reconcile(self, key: str) -> Result:
        node = self._state.nodes.get(key)
        if not self._state.is_on or node is None:
            return DONE
        self._settle(key, node)
        if key in self._state.lost:
            await self._live_nodes.regain_contact(key)
        decision = self._decide(node, self._state.pods.on(key))
        if isinstance(decision, RemoveTaint):  # in mode Report too: this forces nothing
            live = await self._live_nodes.node(key)
            if live is None or not self._state.is_on:
                return DONE
            decision = self._decide(live, self._state.pods.on(key))
            if isinstance(decision, RemoveTaint):
                return await self._act(key, live, decision)
            return self._leave(key, live, decision)
        if not isinstance(decision, AddTaint):
            return self._leave(key, node, decision)
        if self._limits.holds(key, node):
            self._audit.node(node, decision, audit.HELD, reason=NODES)
            return DONE
        if self._state.settings.policy.mode == "Report":
            if self._audit.node(node, decision, audit.REPORTED):
                self._events.would_taint(node, decision)
            return DONE
        return await self._set(key)

    async def _set(self, key: str) -> Result:
        """The node is read last: its pods rarely change, but the node may have returned."""
        pods = await self._live_nodes.pods(key)
        live = await self._live_nodes.node(key)
        if not self._state.may_force:
            return AT_ONCE
        if live is None:
            return DONE
        decision = self._decide(live, pods)
        if not isinstance(decision, AddTaint):
            return self._leave(key, live, decision)
        return await self._act(key, live, decision)

    def _decide(self, node: Node, pods: Sequence[Pod]) -> out_of_service.Decision:
        policy = self._state.settings.policy
        silence = self._state.silence(node.metadata.name)
        return out_of_service.decide(
            node, pods, policy, self._may_end, silence=silence, now=self._clock.now()
        )

    def _may_end(self, pod: Pod) -> bool:
        """Whether the pod opted in, and is dead if its rule asks for proof of that."""
        trigger = zombie.trigger_of(pod, self._state.labels_of(pod), self._state.settings.policy)
        if isinstance(trigger, zombie.Ignore):
            return False
        if not trigger.require_self_fence:
            return True
        promise = self._state.promise(pod)
        silent = self._state.silence(pod.spec.node_name).seconds or 0.0
        return promise is not None and silent >= zombie.fence_seconds(promise)

    def _leave(self, key: str, node: Node, decision: out_of_service.Decision) -> Result:
        if isinstance(decision, TaintLater):
            self._audit.node(node, decision, audit.WAITING)
            assert decision.until is not None
            wait = (decision.until - self._clock.now()).total_seconds()
            return Result(requeue_after=max(0.0, wait))
        if not isinstance(decision, out_of_service.Ignore):
            return Result(requeue_after=LOOK_SECONDS)  # the node changed between two reads
        if key in self._state.lost and self._state.settings.policy.taint:
            self._audit.node(node, decision, audit.IGNORED)
            if decision.reason == out_of_service.Reason.NOT_OPTED_IN:
                return Result(requeue_after=LOOK_SECONDS)
        return DONE

    async def _act(self, key: str, node: Node, decision: AddTaint | RemoveTaint) -> Result:
        try:
            if isinstance(decision, AddTaint):
                await self._taint(key, node, decision)
            else:
                await self._writes.untaint(node)
        except errors.NotFound:
            return DONE
        except errors.Conflict as error:
            self._live_nodes.forget(key)
            raise Retry(f"node {key}: {error}") from error
        self._record_step(node, decision)
        return DONE

    async def _taint(self, key: str, node: Node, decision: AddTaint) -> None:
        now = times.format_time(self._clock.now())
        try:
            await self._writes.taint(node, now=now)
        except REFUSED:
            raise
        except Exception:
            answers = self._lost_answers.setdefault(key, {})
            if len(answers) < MAX_LOST_ANSWERS:
                answers[now] = decision
            raise

    def _settle(self, key: str, node: Node) -> None:
        """Record a taint whose answer was lost, once the node shows that the write was ours."""
        ours = [each for each in node_taints.of(node) if out_of_service.is_our_taint(each)]
        if not ours:
            return
        decision = self._lost_answers.pop(key, {}).get(ours[0].time_added or "")
        if decision is not None:
            self._record_step(node, decision)

    def _record_step(self, node: Node, decision: AddTaint | RemoveTaint) -> None:
        if isinstance(decision, AddTaint):
            self._events.tainted(node, decision)
            self._audit.node(node, decision, audit.TAINTED)
        else:
            self._events.untainted(node)
            self._audit.node(node, decision, audit.UNTAINTED)
