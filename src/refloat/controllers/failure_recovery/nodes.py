# SPDX-License-Identifier: Apache-2.0
"""Declares lost nodes out of service by the rules for it, and takes that back.

As for pods, an event and a record belong to a write that succeeded: if the
answer is lost, the node must show the taint with the time that was written.
"""

from collections.abc import Sequence

from refloat.api import times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.failure_recovery import audit
from refloat.controllers.failure_recovery.audit import Audit
from refloat.controllers.failure_recovery.bounds import NODES, Bounds
from refloat.controllers.failure_recovery.events import Teller
from refloat.controllers.failure_recovery.scene import Scene
from refloat.controllers.failure_recovery.writes import (
    AT_ONCE,
    LOOK_SECONDS,
    REFUSED,
    Looks,
    Writes,
)
from refloat.policy import node_taints, out_of_service, zombie
from refloat.policy.out_of_service import Lift, Set, Wait
from refloat.runtime.errors import Retry
from refloat.runtime.reconcile import DONE, Result


class NodeRecovery:
    """The reconciler of lost nodes, and of those that Refloat tainted; a key is a name."""

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
    ) -> None:
        self._scene = scene
        self._looks = looks
        self._writes = writes
        self._bounds = bounds
        self._teller = teller
        self._audit = audit_
        self._clock = clock
        self._lost_answers: dict[str, tuple[str, Set]] = {}  # by node: timeAdded, decision

    async def reconcile(self, key: str) -> Result:
        node = self._scene.nodes.get(key)
        if not self._scene.is_on or node is None:
            return DONE
        self._settle(key, node)
        if key in self._scene.lost:
            await self._looks.regain_contact(key)
        decision = self._decide(node, self._scene.pods.on(key))
        if isinstance(decision, Lift):
            return await self._lift(key)
        if not isinstance(decision, Set):
            return self._leave(key, node, decision)
        if self._bounds.holds(key, node):
            self._audit.node(node, decision, audit.HELD, reason=NODES)
            return DONE
        if self._scene.settings.policy.mode == "Report":
            return self._report(node, decision)
        return await self._set(key)

    async def _lift(self, key: str) -> Result:
        """In mode Report too: it forces nothing."""
        live = await self._looks.node(key)
        if live is None or not self._scene.is_on:
            return DONE
        decision = self._decide(live, self._scene.pods.on(key))
        if not isinstance(decision, Lift):
            return self._leave(key, live, decision)
        return await self._act(key, live, decision)

    async def _set(self, key: str) -> Result:
        """The node comes last: its pods rarely change while it is lost, and it may be back."""
        pods = await self._looks.pods(key)
        live = await self._looks.node(key)
        if not self._scene.may_force:
            return AT_ONCE
        if live is None:
            return DONE
        decision = self._decide(live, pods)
        if not isinstance(decision, Set):
            return self._leave(key, live, decision)
        return await self._act(key, live, decision)

    def _decide(self, node: Node, pods: Sequence[Pod]) -> out_of_service.Decision:
        policy = self._scene.settings.policy
        silence = self._scene.silence(node.metadata.name)
        return out_of_service.decide(
            node, pods, policy, self._may_end, silence=silence, now=self._clock.now()
        )

    def _may_end(self, pod: Pod) -> bool:
        """Whether it opted in, and is dead by now if somebody asked for proof of that."""
        trigger = zombie.trigger_of(pod, self._scene.labels_of(pod), self._scene.settings.policy)
        if isinstance(trigger, zombie.Ignore):
            return False
        if not trigger.require_self_fence:
            return True
        promise = self._scene.promise(pod)
        silent = self._scene.silence(pod.spec.node_name).seconds or 0.0
        return promise is not None and silent >= zombie.fence_seconds(promise)

    def _leave(self, key: str, node: Node, decision: out_of_service.Decision) -> Result:
        if isinstance(decision, Wait):
            self._audit.node(node, decision, audit.WAITING)
            assert decision.until is not None
            left = (decision.until - self._clock.now()).total_seconds()
            return Result(requeue_after=max(0.0, left))
        if not isinstance(decision, out_of_service.Ignore):
            return Result(requeue_after=LOOK_SECONDS)  # it changed while it was looked at
        if key in self._scene.lost and self._scene.settings.policy.taint:
            self._audit.node(node, decision, audit.IGNORED)
            if decision.reason == out_of_service.Reason.NOT_OPTED_IN:
                return Result(requeue_after=LOOK_SECONDS)
        return DONE

    def _report(self, node: Node, decision: Set) -> Result:
        if self._audit.node(node, decision, audit.REPORTED):
            self._teller.would_taint(node, decision)
        return DONE

    async def _act(self, key: str, node: Node, decision: Set | Lift) -> Result:
        try:
            if isinstance(decision, Set):
                await self._taint(key, node, decision)
            else:
                await self._writes.untaint(node)
        except errors.NotFound:
            return DONE
        except errors.Conflict as error:
            self._looks.forget(key)
            raise Retry(f"node {key}: {error}") from error
        self._tell(node, decision)
        return DONE

    async def _taint(self, key: str, node: Node, decision: Set) -> None:
        now = times.format_time(self._clock.now())
        try:
            await self._writes.taint(node, now=now)
        except REFUSED:
            raise
        except Exception:
            self._lost_answers[key] = (now, decision)
            raise

    def _settle(self, key: str, node: Node) -> None:
        """Tell of a taint whose answer was lost, once the node shows that the write was ours."""
        when, decision = self._lost_answers.get(key, ("", None))
        if decision is None:
            return
        ours = [each for each in node_taints.of(node) if out_of_service.is_our_taint(each)]
        if ours:
            del self._lost_answers[key]
            if ours[0].time_added == when:
                self._tell(node, decision)

    def _tell(self, node: Node, decision: Set | Lift) -> None:
        if isinstance(decision, Set):
            self._teller.tainted(node, decision)
            self._audit.node(node, decision, audit.TAINTED)
        else:
            self._teller.untainted(node)
            self._audit.node(node, decision, audit.UNTAINTED)
