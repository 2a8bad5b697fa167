# SPDX-License-Identifier: Apache-2.0
"""When Refloat taints a lost node out-of-service, and when it removes the taint (KEP-6757).

The KEP's second strategy: a taint that makes Kubernetes end all pods of a node (behaviour C9).
Refloat sets it only where all pods opted in, or where an administrator allows it for the node, and
removes only its own taint. `zombie` decides about single pods.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from refloat.api import structs, times
from refloat.api.core import Node, Pod, Taint
from refloat.policy.garbage.pod_gc import OUT_OF_SERVICE
from refloat.policy.node.node_taints import UNREACHABLE, Taints
from refloat.policy.recovery import node_evidence, zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy, TaintNodeOutOfService
from refloat.policy.recovery.node_evidence import Doubt, LeaseSilence
from refloat.policy.scheduling import critical_pods
from refloat.policy.scheduling.tolerations import NO_EXECUTE

OURS = "refloat-failure-recovery"
"""The value of Refloat's taint, which shows that Refloat may remove it."""


class Reason(StrEnum):
    """Why Refloat does nothing about a node."""

    REACHABLE = "NodeReachable"
    READY = Doubt.READY.value
    NO_CONDITION = Doubt.NO_CONDITION.value
    NO_LEASE = Doubt.NO_LEASE.value
    NO_RULE = "NoRule"
    TAINTED = "AlreadyTainted"
    UNKNOWN_SINCE = "UnknownSince"
    NOTHING_TO_FREE = "NothingToFree"
    NOT_OPTED_IN = "PodNotOptedIn"


_WORDS = {
    Reason.REACHABLE: f"it is not tainted {UNREACHABLE}",
    **{
        Reason(each): f"it does not count as down, whatever its taints say: {words}"
        for each, words in node_evidence.WORDS.items()
    },
    Reason.NO_RULE: "no rule taintNodeOutOfService selects it",
    Reason.TAINTED: f"it is tainted {OUT_OF_SERVICE} already",
    Reason.UNKNOWN_SINCE: "nothing says since when it is unreachable",
    Reason.NOTHING_TO_FREE: "no pod hangs on it",
    Reason.NOT_OPTED_IN: "not every pod on it may be ended by force",
}


@dataclass(frozen=True, slots=True)
class Ignore:
    reason: Reason
    pod: str = ""
    """The pod that is the reason, as namespace/name."""

    @property
    def text(self) -> str:
        return f"{_WORDS[self.reason]}{f': {self.pod}' if self.pod else ''}"


class Awaited(StrEnum):
    """What a node still waits for."""

    TIMEOUT = "UnreachableNodeTimeout"
    LEASE = "LeaseSilence"


@dataclass(frozen=True, slots=True)
class TaintLater:
    until: datetime | None
    """None where only the process that watches leases knows."""
    rule: TaintNodeOutOfService
    awaited: Awaited = Awaited.TIMEOUT
    node_grace: timedelta = node_evidence.GRACE_PERIOD
    """How long the Lease of the node must not change."""

    @property
    def text(self) -> str:
        when = "later" if self.until is None else f"at {times.format_time(self.until)}"
        text = f"it will be tainted {OUT_OF_SERVICE} {when} unless it comes back"
        if self.awaited == Awaited.LEASE:
            text += f"; awaited: {node_evidence.awaited(self.node_grace)}"
        return text


@dataclass(frozen=True, slots=True)
class AddTaint:
    """The node must be tainted now."""

    rule: TaintNodeOutOfService

    @property
    def text(self) -> str:
        return f"it is to be tainted {OUT_OF_SERVICE} now ({self.rule.path})"


@dataclass(frozen=True, slots=True)
class RemoveTaint:
    """The node is back: Refloat must remove its taint."""

    @property
    def text(self) -> str:
        return f"it is ready again: the taint {OUT_OF_SERVICE} is to go"


Decision: TypeAlias = Ignore | TaintLater | AddTaint | RemoveTaint

MayEnd: TypeAlias = Callable[[Pod], bool]
"""Whether the rule of a running pod allows a forced end."""


def decide(
    node: Node,
    pods: Sequence[Pod],
    policy: FailureRecoveryPolicy,
    may_end: MayEnd,
    *,
    silence: LeaseSilence,
    now: datetime,
) -> Decision:
    """What to do about a node with these pods and this lease."""
    if not zombie.is_unreachable(node):
        ready = structs.is_true(node.status.conditions, "Ready")
        return RemoveTaint() if ready and is_ours(node) else Ignore(Reason.REACHABLE)
    labels = node.metadata.labels or {}
    rule = next((each for each in policy.taint if each.nodes.matches(labels)), None)
    if rule is None:
        return Ignore(Reason.NO_RULE)
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints or ()):
        return Ignore(Reason.TAINTED)
    if (doubt := node_evidence.doubt(node, silence)) is not None:
        return Ignore(Reason(doubt))
    since = unreachable_since(node)
    if since is None:
        return Ignore(Reason.UNKNOWN_SINCE)
    if (ignored := _of_pods(pods, rule, may_end)) is not None:
        return ignored
    return _timed(since, rule, silence, policy.node_grace_period, now)


def _timed(
    since: datetime,
    rule: TaintNodeOutOfService,
    silence: LeaseSilence,
    grace: timedelta,
    now: datetime,
) -> TaintLater | AddTaint:
    """Both the timeout of the rule and the silence of the lease must be over."""
    until, silent = since + rule.timeout, now + timedelta(seconds=silence.left(grace))
    if silence.seconds is None:
        return (
            TaintLater(until, rule) if until > now else TaintLater(None, rule, Awaited.LEASE, grace)
        )
    if max(until, silent) <= now:
        return AddTaint(rule)
    if silent > until:
        return TaintLater(silent, rule, Awaited.LEASE, grace)
    return TaintLater(until, rule)


def _of_pods(pods: Iterable[Pod], rule: TaintNodeOutOfService, may_end: MayEnd) -> Ignore | None:
    concerned = [
        pod
        for pod in pods
        if ((owner := pod.metadata.controller) is None or owner.kind != "DaemonSet")
        and not critical_pods.is_mirror(pod)
    ]
    if not any(pod.is_terminating or not pod.is_terminal for pod in concerned):
        return Ignore(Reason.NOTHING_TO_FREE)
    if rule.all_pods:
        return None
    for pod in concerned:
        if not pod.is_terminal and not may_end(pod):
            return Ignore(Reason.NOT_OPTED_IN, f"{pod.metadata.namespace}/{pod.metadata.name}")
    return None


def is_ours(node: Node) -> bool:
    """Whether Refloat has tainted the node out-of-service."""
    return any(is_our_taint(taint) for taint in node.spec.taints or ())


def is_our_taint(taint: Taint) -> bool:
    """Whether Refloat set this taint."""
    return taint.key == OUT_OF_SERVICE and taint.value == OURS


def unreachable_since(node: Node) -> datetime | None:
    """Since when the status of the node is Unknown; else since when it is tainted."""
    ready = structs.find(node.status.conditions, "Ready")
    if ready is not None and ready.status == "Unknown" and ready.last_transition_time:
        return times.parse(ready.last_transition_time)
    added = [
        taint.time_added
        for taint in node.spec.taints or ()
        if taint.key == UNREACHABLE and taint.time_added
    ]
    return times.parse(min(added)) if added else None


def add_own_taint(taints: Taints, *, now: str) -> Taints:
    """The taints with Refloat's, added at `now`; an existing one of any owner stays."""
    if any(each.key == OUT_OF_SERVICE for each in taints):
        return taints
    taint = Taint(key=OUT_OF_SERVICE, value=OURS, effect=NO_EXECUTE, time_added=now)
    return (*taints, taint)


def remove_own_taint(taints: Taints) -> Taints:
    """The taints without Refloat's."""
    return tuple(each for each in taints if not is_our_taint(each))
