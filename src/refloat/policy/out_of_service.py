# SPDX-License-Identifier: Apache-2.0
"""When a lost node is declared to be out of service, and when no longer (KEP-6757).

The KEP's second strategy: a taint that makes Kubernetes end all pods of a
node (behaviour C9). Refloat sets it only where all of them opted in, or where
an administrator said so for the node, and takes away only what it set. What
becomes of single pods is in `zombie`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from refloat.api import structs, times
from refloat.api.core import Node, Pod, Taint
from refloat.policy import critical_pods, node_evidence, zombie
from refloat.policy.failure_recovery import FailureRecoveryPolicy, TaintNodeOutOfService
from refloat.policy.node_evidence import Doubt, LeaseSilence
from refloat.policy.node_taints import UNREACHABLE, Taints
from refloat.policy.pod_gc import OUT_OF_SERVICE
from refloat.policy.tolerations import NO_EXECUTE

OURS = "refloat-failure-recovery"
"""The value of a taint that Refloat set: whoever finds it knows that it may be taken away."""


class Reason(StrEnum):
    """Why a node is left alone."""

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
    """Because of which one, as namespace/name."""

    @property
    def text(self) -> str:
        return f"{_WORDS[self.reason]}{f': {self.pod}' if self.pod else ''}"


class Awaited(StrEnum):
    """What is not over yet."""

    TIMEOUT = "UnreachableNodeTimeout"
    LEASE = "LeaseSilence"


@dataclass(frozen=True, slots=True)
class Wait:
    until: datetime | None
    """None where only the process that watches leases can say."""
    rule: TaintNodeOutOfService
    awaited: Awaited = Awaited.TIMEOUT
    node_grace: timedelta = node_evidence.GRACE_PERIOD
    """For how long the Lease of the node must not change."""

    @property
    def text(self) -> str:
        when = "later" if self.until is None else f"at {times.format_time(self.until)}"
        text = f"it will be tainted {OUT_OF_SERVICE} {when} unless it comes back"
        if self.awaited == Awaited.LEASE:
            text += f"; awaited: {node_evidence.awaited(self.node_grace)}"
        return text


@dataclass(frozen=True, slots=True)
class Set:
    """It is to be tainted now."""

    rule: TaintNodeOutOfService

    @property
    def text(self) -> str:
        return f"it is to be tainted {OUT_OF_SERVICE} now ({self.rule.path})"


@dataclass(frozen=True, slots=True)
class Lift:
    """It is back: the taint that Refloat set is to go."""

    @property
    def text(self) -> str:
        return f"it is ready again: the taint {OUT_OF_SERVICE} is to go"


Decision: TypeAlias = Ignore | Wait | Set | Lift

MayEnd: TypeAlias = Callable[[Pod], bool]
"""Whether a pod that is not over may be ended by force, as far as its own terms say."""


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
        return Lift() if ready and is_ours(node) else Ignore(Reason.REACHABLE)
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
) -> Wait | Set:
    """Both the timeout of the rule and the silence of the lease must be over."""
    until, silent = since + rule.timeout, now + timedelta(seconds=silence.left(grace))
    if silence.seconds is None:
        return Wait(until, rule) if until > now else Wait(None, rule, Awaited.LEASE, grace)
    if max(until, silent) <= now:
        return Set(rule)
    if silent > until:
        return Wait(silent, rule, Awaited.LEASE, grace)
    return Wait(until, rule)


def _of_pods(pods: Iterable[Pod], rule: TaintNodeOutOfService, may_end: MayEnd) -> Ignore | None:
    concerned = [pod for pod in pods if not _is_daemon(pod) and not critical_pods.is_mirror(pod)]
    if not any(pod.is_terminating or not pod.is_terminal for pod in concerned):
        return Ignore(Reason.NOTHING_TO_FREE)
    if rule.all_pods:
        return None
    for pod in concerned:
        if not pod.is_terminal and not may_end(pod):
            return Ignore(Reason.NOT_OPTED_IN, f"{pod.metadata.namespace}/{pod.metadata.name}")
    return None


def _is_daemon(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "DaemonSet"


def is_ours(node: Node) -> bool:
    """Whether Refloat has declared it to be out of service."""
    return any(is_our_taint(taint) for taint in node.spec.taints or ())


def is_our_taint(taint: Taint) -> bool:
    """Whether Refloat set this taint."""
    return taint.key == OUT_OF_SERVICE and taint.value == OURS


def unreachable_since(node: Node) -> datetime | None:
    """Since its status is unknown; else since it is tainted."""
    ready = structs.find(node.status.conditions, "Ready")
    if ready is not None and ready.status == "Unknown" and ready.last_transition_time:
        return times.parse(ready.last_transition_time)
    added = [
        taint.time_added
        for taint in node.spec.taints or ()
        if taint.key == UNREACHABLE and taint.time_added
    ]
    return times.parse(min(added)) if added else None


def tainted(taints: Taints, *, now: str) -> Taints:
    """With the taint, since `now`, a timestamp; one that is there stays whoever set it."""
    if any(each.key == OUT_OF_SERVICE for each in taints):
        return taints
    made = Taint(key=OUT_OF_SERVICE, value=OURS, effect=NO_EXECUTE, time_added=now)
    return (*taints, made)


def lifted(taints: Taints) -> Taints:
    """Without what Refloat set."""
    return tuple(each for each in taints if not is_our_taint(each))
