# SPDX-License-Identifier: Apache-2.0
"""What becomes of a pod that hangs in Terminating on a lost node (KEP-6757).

One decision from the pod, its node, what the administrator allows and what
the observer saw of the node's lease. It is asked by the controller before it
acts, once more right before it writes, and by `refloat explain`, so each
answer can say in plain words why. How many pods may be forced at once is said
by `recovery_bounds`, what becomes of whole nodes by `out_of_service`; who
watches and who writes is the failure recovery controller's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeAlias

from refloat.api import conditions, self_fence, structs, times
from refloat.api.coordination import Lease
from refloat.api.core import PENDING, RUNNING, Node, Pod
from refloat.api.meta import Object
from refloat.policy import node_evidence, node_taints, pod_reason
from refloat.policy.failure_recovery import FIELD, Annotated, FailureRecoveryPolicy
from refloat.policy.node_evidence import Doubt, LeaseSilence

ANNOTATIONS = (
    "kueue.x-k8s.io/safe-to-forcefully-terminate",
    "kueue.x-k8s.io/safe-to-forcefully-delete",
    "refloat.dev/safe-to-forcefully-terminate",
)
"""Each of them, exactly `"true"`, is a user's word that a pod may be ended by force: the KEP's,
the one that Kueue has today (behaviour E1.2), and Refloat's."""

UNWATCHED = node_evidence.UNWATCHED

CONDITION = "KueueFailureRecovery"
REASON = "KueueForcefullyTerminated"


class Reason(StrEnum):
    """Why a pod is left alone."""

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
    Reason.NOT_TERMINATING: "it is not being deleted",
    Reason.PHASE: "its phase is neither Running nor Pending",
    Reason.NOT_OPTED_IN: (
        f'nobody opted in: it has no annotation {ANNOTATIONS[0]}: "true",'
        f" and no rule of {FIELD} selects its labels"
    ),
    Reason.NAMESPACE: (
        f"it has the annotation, but {FIELD}.annotated.namespaceSelector"
        " does not select its namespace"
    ),
    Reason.NO_NODE: "it is on no node; the pod garbage collector ends such pods",
    Reason.NODE_GONE: "its node does not exist; the pod garbage collector ends such pods",
    Reason.NODE_REACHABLE: (
        f"its node is not tainted {node_taints.UNREACHABLE}, so the node itself ends its pods"
    ),
    **{
        Reason(each): f"its node does not count as down, whatever its taints say: {words}"
        for each, words in node_evidence.WORDS.items()
    },
    Reason.NOT_ARMED: (
        "the rule asks for self-fencing, and its node has not promised to end this pod by itself"
        f" (the Lease of the node does not list it in {self_fence.LISTED})"
    ),
    Reason.ENDED: "it has ended already, and nobody asked for its deletion (deleteAfter)",
    Reason.HELD: "it was deleted by force already, and only its finalizers keep it",
}


class Awaited(StrEnum):
    """What is not over yet."""

    GRACE = "GracePeriod"
    SELF_FENCE = "SelfFence"
    LEASE = "LeaseSilence"
    DELETE_AFTER = "DeleteAfter"


_AWAITED = {
    Awaited.GRACE: "the period after its deletion grace period",
    Awaited.SELF_FENCE: "its node must have ended it by itself, if it still runs",
    Awaited.DELETE_AFTER: "deleteAfter",
}


@dataclass(frozen=True, slots=True)
class Trigger:
    """Who allowed it, and on what terms."""

    name: str
    """As the KEP's message has it between its back-ticks."""
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
class Wait:
    """Not yet; looked at again at that time, or when something changes."""

    until: datetime | None
    """None where only the one who watches the lease can say."""
    awaited: Awaited
    trigger: Trigger
    then: Literal["terminate", "delete"]
    node_grace: timedelta = node_evidence.GRACE_PERIOD
    """For how long the Lease of the node must not change."""

    @property
    def text(self) -> str:
        what = "made to fail" if self.then == "terminate" else "deleted by force"
        when = "later" if self.until is None else f"at {times.format_time(self.until)}"
        lease = self.awaited == Awaited.LEASE
        why = node_evidence.awaited(self.node_grace) if lease else _AWAITED[self.awaited]
        return (
            f"it will be {what} {when} unless its node comes back"
            f" (triggered by `{self.trigger.name}`); awaited: {why}"
        )


@dataclass(frozen=True, slots=True)
class Terminate:
    """It is to be Failed, now."""

    trigger: Trigger
    message: str
    """For the condition and the event."""
    stuck: timedelta
    """For how long its grace period has been over."""

    @property
    def text(self) -> str:
        return f"it is to be made to fail now (triggered by `{self.trigger.name}`)"


@dataclass(frozen=True, slots=True)
class Delete:
    """It has ended, and its object is to go, now."""

    trigger: Trigger
    stuck: timedelta

    @property
    def text(self) -> str:
        return f"it is to be deleted by force now (triggered by `{self.trigger.name}`)"


Decision: TypeAlias = Ignore | Wait | Terminate | Delete


def is_unreachable(node: Node) -> bool:
    """By the taint's key alone, whatever its effect (behaviour E4.7).

    A node that says itself that it is not ready has another taint: its
    kubelet lives, and is never overruled.
    """
    return any(taint.key == node_taints.UNREACHABLE for taint in node.spec.taints or ())


def trigger_of(
    pod: Pod, namespace: Mapping[str, str], policy: FailureRecoveryPolicy
) -> Trigger | Ignore:
    """Who opted in for this pod, in a namespace with these labels.

    Rules come first, so that an annotation cannot get round what a rule asks for.
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
    return _annotated(key, policy.annotated, policy.default_period)


def _annotated(key: str, terms: Annotated, default: timedelta) -> Trigger:
    period = default if terms.period is None else terms.period
    return Trigger(f"{key} annotation", period, terms.delete_after, terms.require_self_fence)


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
    """What to do about a pod on this node, which is None if it does not exist.

    `promise`: what the Lease of the node lists for the pod (`promise_of`). Where leases are not
    watched, what is due waits: only the process that watches them can say that the node is down.
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
    awaited = list(_awaited(pod, trigger, silence, policy.node_grace_period, now, promise))
    if (wait := _wait(pod, trigger, silence, awaited, policy.node_grace_period, now)) is not None:
        return wait
    stuck = now - deleted_at(pod)
    if pod.is_terminal:
        return Delete(trigger, stuck)
    return Terminate(trigger, message(pod, trigger), stuck)


def _wait(
    pod: Pod,
    trigger: Trigger,
    silence: LeaseSilence,
    awaited: list[tuple[datetime | None, Awaited]],
    grace: timedelta,
    now: datetime,
) -> Wait | None:
    """What is not over yet, with the latest time; None if everything is."""
    then: Literal["terminate", "delete"] = "delete" if pod.is_terminal else "terminate"
    if any(until is None for until, _ in awaited):
        return Wait(None, Awaited.SELF_FENCE, trigger, then, grace)
    until, what = max((until or now, what) for until, what in awaited)
    if until > now:
        return Wait(until, what, trigger, then, grace)
    return Wait(None, Awaited.LEASE, trigger, then, grace) if silence.seconds is None else None


def _why_not(
    pod: Pod,
    node: Node | None,
    trigger: Trigger,
    silence: LeaseSilence,
    promise: self_fence.Promise | None,
) -> Reason | None:
    if pod.is_terminal and (reason := _why_not_delete(pod, trigger)) is not None:
        return reason
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


def _why_not_delete(pod: Pod, trigger: Trigger) -> Reason | None:
    if trigger.delete_after is None:
        return Reason.ENDED
    return None if pod.metadata.deletion_grace_period_seconds else Reason.HELD


def _needs_fence(pod: Pod, trigger: Trigger) -> bool:
    """A pod of which its own node says that it is over needs no other proof."""
    return trigger.require_self_fence and (not pod.is_terminal or is_forced(pod))


def is_forced(pod: Pod) -> bool:
    """It was made to fail by Refloat, or by Kueue, which writes the same condition."""
    return pod.is_terminal and structs.is_true(pod.status.conditions, CONDITION)


def promise_of(pod: Pod, lease: Lease | None) -> self_fence.Promise | None:
    """What its node promised for a pod, if the Lease of the node lists the pod.

    The pod's condition does not count: pods/status can be written by others than the node.
    """
    return self_fence.read_listed(lease).get(pod.metadata.uid)


def shown_promise(pod: Pod) -> self_fence.Promise | None:
    """What the pod's condition says, for display."""
    shown = structs.find(pod.status.conditions, self_fence.CONDITION)
    if shown is None or shown.status != "True":
        return None
    return self_fence.read(shown.message)


def fence_seconds(promise: self_fence.Promise) -> float:
    """How long the lease must have been seen unchanged until the pod is dead for sure."""
    return self_fence.dead_seconds(promise)


def _awaited(
    pod: Pod,
    trigger: Trigger,
    silence: LeaseSilence,
    grace: timedelta,
    now: datetime,
    promise: self_fence.Promise | None,
) -> Iterator[tuple[datetime | None, Awaited]]:
    """All that must be over, with its time."""
    if pod.is_terminal:
        assert trigger.delete_after is not None
        yield _ended_at(pod) + trigger.delete_after, Awaited.DELETE_AFTER
    else:
        yield deleted_at(pod) + trigger.period, Awaited.GRACE
    if silence.seconds is not None:
        yield now + timedelta(seconds=silence.left(grace)), Awaited.LEASE
    if promise is not None and _needs_fence(pod, trigger):
        if silence.seconds is None:
            yield None, Awaited.SELF_FENCE
        else:
            yield now + _left(fence_seconds(promise), silence.seconds), Awaited.SELF_FENCE


def _left(needed: float, passed: float) -> timedelta:
    return timedelta(seconds=needed - passed)


def deleted_at(pod: Pod) -> datetime:
    """When its grace period ends or ended: a deletionTimestamp has it in it (behaviour C8.2)."""
    assert pod.metadata.deletion_timestamp is not None
    return times.parse(pod.metadata.deletion_timestamp)


def _ended_at(pod: Pod) -> datetime:
    """From when deleteAfter counts: since it was made to fail, if anybody noted that."""
    held = structs.find(pod.status.conditions, CONDITION)
    if is_forced(pod) and held is not None and held.last_transition_time is not None:
        return times.parse(held.last_transition_time)
    return deleted_at(pod)


def message(pod: Pod, trigger: Trigger) -> str:
    """The KEP's, word for word, with whole seconds."""
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    seconds = int((grace + trigger.period).total_seconds())
    return (
        f"Pod forcefully terminated after {seconds}s grace period"
        f" due to unreachable node `{pod.spec.node_name}` (triggered by `{trigger.name}`)"
    )


def failing(pod: Pod, told: str, *, now: datetime, says_why: bool = False) -> Object:
    """The status to write: Failed, and the one condition of its type (behaviour 0.5, E4.2).

    Whatever else the status says stays (behaviour E1.10). `says_why` adds the
    reason by which a backoffPolicy knows the loss of a node.
    """
    condition: Object = {"type": CONDITION, "status": "True", "reason": REASON, "message": told}
    if not structs.is_true(pod.status.conditions, CONDITION):
        condition["lastTransitionTime"] = times.format_time(now)
    reason = pod_reason.noted(pod, pod_reason.NODE_LOST) if says_why else {}
    return {"phase": "Failed", **conditions.merged(pod.status.conditions, [condition]), **reason}
