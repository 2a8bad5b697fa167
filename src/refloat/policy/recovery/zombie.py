# SPDX-License-Identifier: Apache-2.0
"""What to do about a pod that hangs in Terminating on a lost node (KEP-6757).

One decision from the pod, its node, the administrator's policy and the observed silence of the
node's Lease. The controller asks before it acts, and again right before it writes; `refloat
explain` asks, too, so each answer has a plain reason. `recovery_bounds` limits how many pods are
forced at once, `out_of_service` decides about whole nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeAlias

from refloat.api import conditions, self_fence, structs, times
from refloat.api.coordination import Lease
from refloat.api.core import PENDING, RUNNING, Node, Pod
from refloat.api.meta import Object
from refloat.policy.job import pod_reason
from refloat.policy.node import node_taints
from refloat.policy.recovery import node_evidence
from refloat.policy.recovery.failure_recovery import FIELD, FailureRecoveryPolicy
from refloat.policy.recovery.node_evidence import Doubt, LeaseSilence

ANNOTATIONS = (
    "kueue.x-k8s.io/safe-to-forcefully-terminate",
    "kueue.x-k8s.io/safe-to-forcefully-delete",
    "refloat.dev/safe-to-forcefully-terminate",
)
"""Each of them, exactly `"true"`, is a user's permission to end the pod by force: the KEP's, the
one that Kueue has today (behaviour E1.2), and Refloat's."""

UNWATCHED = node_evidence.UNWATCHED

CONDITION = "KueueFailureRecovery"
REASON = "KueueForcefullyTerminated"


class Reason(StrEnum):
    """Why Refloat does nothing about a pod."""

    NOT_TERMINATING = "NotTerminating"
    PHASE = "NeitherRunningNorPending"
    NOT_OPTED_IN = "NotOptedIn"
    NAMESPACE = "NamespaceNotSelected"
    NO_NODE = "NotScheduled"
    NODE_GONE = "NodeGone"
    NODE_REACHABLE = "NodeReachable"
    NODE_READY = Doubt.READY.value
    NO_CONDITION = Doubt.NO_CONDITION.value
    NO_LEASE = Doubt.NO_LEASE.value
    NOT_ARMED = "SelfFenceNotArmed"
    ENDED = "AlreadyEnded"
    HELD = "HeldByFinalizers"


_WORDS = {
    Reason.NOT_TERMINATING: "the pod is not being deleted",
    Reason.PHASE: "the phase of the pod is neither Running nor Pending",
    Reason.NOT_OPTED_IN: (
        f'the pod lacks the annotation {ANNOTATIONS[0]}: "true",'
        f" and no rule of {FIELD} selects its labels"
    ),
    Reason.NAMESPACE: (
        f"the pod has the annotation, but {FIELD}.annotated.namespaceSelector"
        " does not select its namespace"
    ),
    Reason.NO_NODE: "the pod is on no node; the pod garbage collector ends such pods",
    Reason.NODE_GONE: "the node does not exist; the pod garbage collector ends such pods",
    Reason.NODE_REACHABLE: (
        f"the node lacks the taint {node_taints.UNREACHABLE}, so the node ends its pods itself"
    ),
    **{
        Reason(each): f"the node does not count as down, whatever its taints: {words}"
        for each, words in node_evidence.WORDS.items()
    },
    Reason.NOT_ARMED: (
        "the rule requires self-fencing, and the node has not promised to end this pod by itself"
        f" (the Lease of the node does not list it in {self_fence.LISTED})"
    ),
    Reason.ENDED: "the pod has ended, and no deleteAfter asks for its deletion",
    Reason.HELD: "the pod was deleted by force, and only its finalizers keep it",
}


class Awaited(StrEnum):
    """What a pod still waits for."""

    GRACE = "GracePeriod"
    SELF_FENCE = "SelfFence"
    LEASE = "LeaseSilence"
    DELETE_AFTER = "DeleteAfter"


_AWAITED = {
    Awaited.GRACE: "the period after its deletion grace period",
    Awaited.SELF_FENCE: "the time after which the node has ended the pod by itself",
    Awaited.DELETE_AFTER: "deleteAfter",
}


@dataclass(frozen=True, slots=True)
class Trigger:
    """The annotation or rule that allows a forced end, and its terms."""

    name: str
    """The name between the back-ticks of the KEP's message."""
    period: timedelta
    delete_after: timedelta | None = None
    require_self_fence: bool = False


@dataclass(frozen=True, slots=True)
class Ignore:
    """The pod is left alone."""

    reason: Reason

    @property
    def text(self) -> str:
        return _WORDS[self.reason]


@dataclass(frozen=True, slots=True)
class TerminateLater:
    """Not yet; check again at that time, or after a change."""

    until: datetime | None
    """None where only the process that watches the Lease knows."""
    awaited: Awaited
    trigger: Trigger
    then: Literal["terminate", "delete"]
    node_grace: timedelta = node_evidence.GRACE_PERIOD
    """How long the Lease of the node must not change."""

    @property
    def text(self) -> str:
        what = "mark the pod Failed" if self.then == "terminate" else "delete the pod by force"
        when = "later" if self.until is None else f"at {times.format_time(self.until)}"
        lease = self.awaited == Awaited.LEASE
        why = node_evidence.awaited(self.node_grace) if lease else _AWAITED[self.awaited]
        return (
            f"Refloat will {what} {when} unless the node returns"
            f" (triggered by `{self.trigger.name}`); until then: {why}"
        )


@dataclass(frozen=True, slots=True)
class Terminate:
    """The pod must be marked Failed now."""

    trigger: Trigger
    message: str
    """For the condition and the event."""
    stuck: timedelta
    """How long its grace period has been over."""

    @property
    def text(self) -> str:
        return f"Refloat marks the pod Failed now (triggered by `{self.trigger.name}`)"


@dataclass(frozen=True, slots=True)
class Delete:
    """The pod has ended, and must be deleted now."""

    trigger: Trigger
    stuck: timedelta

    @property
    def text(self) -> str:
        return f"Refloat deletes the pod by force now (triggered by `{self.trigger.name}`)"


Decision: TypeAlias = Ignore | TerminateLater | Terminate | Delete


def is_unreachable(node: Node) -> bool:
    """Whether the node has the taint, with any effect (behaviour E4.7).

    A node that reports itself as not ready has another taint: its kubelet lives, and Refloat never
    overrules a living kubelet.
    """
    return any(taint.key == node_taints.UNREACHABLE for taint in node.spec.taints or ())


def trigger_of(
    pod: Pod, namespace: Mapping[str, str], policy: FailureRecoveryPolicy
) -> Trigger | Ignore:
    """The annotation or rule that allows a forced end, in a namespace with these labels.

    Rules come first, so that an annotation cannot bypass the terms of a rule.
    """
    labels = pod.metadata.labels or {}
    for rule in policy.terminate:
        if rule.pods.matches(labels):
            name = f"{rule.path} rule"
            return Trigger(name, rule.period, rule.delete_after, rule.require_self_fence)
    annotations = pod.metadata.annotations or {}
    key = next((each for each in ANNOTATIONS if annotations.get(each) == "true"), None)
    if key is None:
        return Ignore(Reason.NOT_OPTED_IN)
    if not policy.annotated.namespaces.matches(namespace):
        return Ignore(Reason.NAMESPACE)
    period = policy.annotated.period
    return Trigger(
        f"{key} annotation",
        policy.default_period if period is None else period,
        policy.annotated.delete_after,
        policy.annotated.require_self_fence,
    )


def decide(
    pod: Pod,
    node: Node | None,
    policy: FailureRecoveryPolicy,
    *,
    namespace: Mapping[str, str],
    silence: LeaseSilence,
    now: datetime,
    promise: self_fence.Promise | None = None,
) -> Decision:
    """What to do about a pod; `node` is None if it does not exist.

    `promise`: what the Lease of the node lists for the pod (`promise_of`). Where leases are not
    watched, a due pod waits: only the process that watches them can know that the node is down.
    """
    if not pod.is_terminating:
        return Ignore(Reason.NOT_TERMINATING)
    if not pod.is_terminal and pod.status.phase not in (RUNNING, PENDING):
        return Ignore(Reason.PHASE)
    trigger = trigger_of(pod, namespace, policy)
    if isinstance(trigger, Ignore):
        return trigger
    if (reason := _why_not(pod, node, trigger, silence, promise)) is not None:
        return Ignore(reason)
    wait = _wait(pod, trigger, silence, policy.node_grace_period, now, promise)
    if wait is not None:
        return wait
    overdue = now - deleted_at(pod)
    if pod.is_terminal:
        return Delete(trigger, overdue)
    return Terminate(trigger, message(pod, trigger), overdue)


def _wait(
    pod: Pod,
    trigger: Trigger,
    silence: LeaseSilence,
    grace: timedelta,
    now: datetime,
    promise: self_fence.Promise | None,
) -> TerminateLater | None:
    """The wait with the latest end; None if nothing is left to wait for."""
    then: Literal["terminate", "delete"] = "terminate"
    end, what = deleted_at(pod) + trigger.period, Awaited.GRACE
    if pod.is_terminal:
        assert trigger.delete_after is not None
        # deleteAfter starts when the pod was marked Failed, if the condition shows this.
        condition = structs.find(pod.status.conditions, CONDITION)
        forced_at = None if condition is None else condition.last_transition_time
        then, what = "delete", Awaited.DELETE_AFTER
        end = times.parse(forced_at) if forced_at and is_forced(pod) else deleted_at(pod)
        end += trigger.delete_after
    fence = promise if _needs_fence(pod, trigger) else None
    if silence.seconds is None:
        if fence is not None:
            return TerminateLater(None, Awaited.SELF_FENCE, trigger, then, grace)
        if end <= now:
            return TerminateLater(None, Awaited.LEASE, trigger, then, grace)
        return TerminateLater(end, what, trigger, then, grace)
    waits = [(end, what), (now + timedelta(seconds=silence.left(grace)), Awaited.LEASE)]
    if fence is not None:
        silent = now + timedelta(seconds=fence_seconds(fence) - silence.seconds)
        waits.append((silent, Awaited.SELF_FENCE))
    until, what = max(waits)
    return TerminateLater(until, what, trigger, then, grace) if until > now else None


def _why_not(
    pod: Pod,
    node: Node | None,
    trigger: Trigger,
    silence: LeaseSilence,
    promise: self_fence.Promise | None,
) -> Reason | None:
    if pod.is_terminal:
        if trigger.delete_after is None:
            return Reason.ENDED
        if not pod.metadata.deletion_grace_period_seconds:
            return Reason.HELD
    if not pod.spec.node_name:
        return Reason.NO_NODE
    if node is None:
        return Reason.NODE_GONE
    if not is_unreachable(node):
        return Reason.NODE_REACHABLE
    if (doubt := node_evidence.doubt(node, silence)) is not None:
        return Reason(doubt)
    if promise is None and _needs_fence(pod, trigger):
        return Reason.NOT_ARMED
    return None


def _needs_fence(pod: Pod, trigger: Trigger) -> bool:
    """Whether the pod needs a self-fence: not if its own node reported its end."""
    return trigger.require_self_fence and (not pod.is_terminal or is_forced(pod))


def is_forced(pod: Pod) -> bool:
    """Whether Refloat marked the pod Failed, or Kueue, which writes the same condition."""
    return pod.is_terminal and structs.is_true(pod.status.conditions, CONDITION)


def promise_of(pod: Pod, lease: Lease | None) -> self_fence.Promise | None:
    """The self-fence promise for a pod, if the Lease of its node lists the pod.

    The pod's condition does not count: other users than the node can write pods/status.
    """
    return self_fence.read_listed(lease).get(pod.metadata.uid)


def shown_promise(pod: Pod) -> self_fence.Promise | None:
    """The promise in the pod's condition, for display only."""
    condition = structs.find(pod.status.conditions, self_fence.CONDITION)
    if condition is None or condition.status != "True":
        return None
    return self_fence.read(condition.message)


def fence_seconds(promise: self_fence.Promise) -> float:
    """How long the Lease must be silent until the pod is dead for certain."""
    return self_fence.dead_seconds(promise)


def deleted_at(pod: Pod) -> datetime:
    """When the grace period ends or ended, which is the deletionTimestamp (behaviour C8.2)."""
    assert pod.metadata.deletion_timestamp is not None
    return times.parse(pod.metadata.deletion_timestamp)


def message(pod: Pod, trigger: Trigger) -> str:
    """The KEP's exact message, with whole seconds."""
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    seconds = int((grace + trigger.period).total_seconds())
    return (
        f"Pod forcefully terminated after {seconds}s grace period"
        f" due to unreachable node `{pod.spec.node_name}` (triggered by `{trigger.name}`)"
    )


def failing(pod: Pod, text: str, *, now: datetime, says_why: bool = False) -> Object:
    """The status to write: Failed, and the one condition of its type (behaviour 0.5, E4.2).

    The rest of the status stays (behaviour E1.10). `says_why` adds the reason by which a
    backoffPolicy knows the loss of a node.
    """
    condition: Object = {"type": CONDITION, "status": "True", "reason": REASON, "message": text}
    if not structs.is_true(pod.status.conditions, CONDITION):
        condition["lastTransitionTime"] = times.format_time(now)
    reason = pod_reason.status_reason(pod, pod_reason.NODE_LOST) if says_why else {}
    return {"phase": "Failed", **conditions.merged(pod.status.conditions, [condition]), **reason}
