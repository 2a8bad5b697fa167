# SPDX-License-Identifier: Apache-2.0
"""A node that somebody knows to be down gives up its pods and volumes at once (KEP-36).

One decision: from what was seen of a node to the next step. Each step is one
write, or one for each pod, and how far it came stands on the node itself, so
that whoever looks next goes on:

    (nothing)       refused, or waits until the lease has stood still for long enough
    VolumesCleared  the node's lists of volumes are empty; all is asked once more
    Evicting        begun: pods are failed as long as all that still holds; when they are
                    gone it is finished, whatever the node says

Who reads and writes is `controllers.force_eviction`; what a node's agent may
start meanwhile is asked here too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from refloat.api import conditions, structs, times
from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.policy import (
    critical_pods,
    disruption,
    node_evidence,
    pod_gc,
    pod_reason,
    taint_timers,
    tolerations,
)
from refloat.policy.node_evidence import Doubt, LeaseSilence
from refloat.policy.switches import Switches
from refloat.policy.tolerations import FORCE_EVICTION, NO_EXECUTE, NO_SCHEDULE

WISH = Taint(key="refloat.dev/force-eviction", value="true", effect=NO_SCHEDULE)
"""The wish as every API server takes it; that of KEP-36 is any taint of its effect."""

PROGRESS = "refloat.dev/force-eviction-progress"
"""The annotation of a node that says how far it came."""

OUT_OF_SERVICE = Taint(key=pod_gc.OUT_OF_SERVICE, value="refloat-force-eviction", effect=NO_EXECUTE)
"""By which Kubernetes' own controllers are told, whatever its value (behaviour C1.4, C9). The value
says that it is ours to take off."""

REASON = "DeletionByForceEviction"
MESSAGE = "Force eviction: deleting a pod of a node that is down"

VOLUMES_CLEARED: Final = "VolumesCleared"
EVICTING: Final = "Evicting"

# Any key of that effect.
_ANY_TAINT = Taint(key="", value="", effect=FORCE_EVICTION)


@dataclass(frozen=True, slots=True)
class Settings:
    """How force eviction works."""

    hands_over: bool = False
    """Whether pods and volumes are left to Kubernetes' own controllers, which a taint tells."""

    node_grace: timedelta = node_evidence.GRACE_PERIOD
    """For how long the lease of a node must not change until the node counts as down."""

    poll_seconds: float = 5.0
    """From one look at a node that something is awaited of to the next."""

    detach_seconds: float = 360.0
    """How long volumes are waited for that others detach: then Kubernetes does it anyway."""


class Progress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What stands on the node."""

    step: Literal["VolumesCleared", "Evicting"]
    started: str = ""
    """When pods began to be evicted."""

    handed_over: bool = False
    """Whether Kubernetes' own controllers do the work."""

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment. Its name alone may be another node's by the time that it is deleted."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Sight:
    """All that is known of a node when a step is decided."""

    node: Node
    lease: LeaseSilence
    pods: Sequence[Pod] = ()
    """Those bound to it; asked for once it is evicting."""

    attachments: Sequence[Attachment] = ()
    """Those that hold volumes for pods that are gone."""

    detaching_seconds: float = 0.0
    """How long all pods have been gone."""

    renewed: bool = False
    """Whether the lease changed since the request was first seen."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nobody wishes it."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The node may be alive: take the wish off, and say why."""

    why: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Nobody wishes it any more: forget how far it came."""


@dataclass(frozen=True, slots=True)
class ClearVolumes:
    """Empty the lists of volumes in use and attached."""


@dataclass(frozen=True, slots=True)
class Begin:
    """From here on pods are evicted."""


@dataclass(frozen=True, slots=True)
class Evict:
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Detach:
    attachments: tuple[Attachment, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Take the wish off, and what stands on the node of it."""


Step: TypeAlias = (
    Nothing | Wait | Refuse | Withdraw | ClearVolumes | Begin | Evict | Detach | Finish
)


def wishes(node: Node) -> tuple[Taint, ...]:
    """The taints by which somebody says that the node is down."""
    return tuple(each for each in node.spec.taints or () if is_wish(each))


def is_wish(taint: Taint) -> bool:
    if taint.effect == FORCE_EVICTION:
        return True
    return (taint.key, taint.value, taint.effect) == (WISH.key, WISH.value, WISH.effect)


def mistyped(node: Node) -> Taint | None:
    """A taint that has the key of the request but another value or effect, if it is no request."""
    if wishes(node):
        return None
    return next((each for each in node.spec.taints or () if each.key == WISH.key), None)


def progress(node: Node) -> Progress | None:
    """How far it came; what nobody can read is as nothing, and all is asked anew."""
    text = (node.metadata.annotations or {}).get(PROGRESS)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Progress)
    except msgspec.MsgspecError:
        return None


def concerns(node: Node) -> bool:
    """Whether there is anything to look at."""
    return PROGRESS in (node.metadata.annotations or {}) or bool(wishes(node))


def decide(seen: Sight, settings: Settings) -> Step:
    done = progress(seen.node)
    if not wishes(seen.node):
        return Nothing() if done is None else Withdraw()
    if done is None or done.step != EVICTING:
        return _before(seen, done, settings)
    if settings.hands_over or done.handed_over:
        return _others_work(seen, done, settings)
    return _work(seen, done, settings)


def _before(seen: Sight, done: Progress | None, settings: Settings) -> Step:
    """Nothing was forced yet, so everything is asked."""
    if (missing := _missing_evidence(seen, settings)) is not None:
        return missing
    return ClearVolumes() if done is None and not settings.hands_over else Begin()


def _missing_evidence(seen: Sight, settings: Settings) -> Refuse | Wait | None:
    """What to do instead of anything that needs the node to be down; None if it counts as down."""
    if (why := _sign_of_life(seen)) is not None:
        return Refuse(why)
    left = seen.lease.left(settings.node_grace)
    if left > 0:
        return Wait(min(left, settings.poll_seconds), node_evidence.awaited(settings.node_grace))
    return None


def _sign_of_life(seen: Sight) -> str | None:
    doubt = node_evidence.doubt(seen.node, seen.lease)
    if doubt == Doubt.READY:
        return "it is Ready"
    if seen.renewed:
        return "it renews its lease"
    return None if doubt is None else node_evidence.WORDS[doubt]


def _is_ready(node: Node) -> bool:
    return structs.is_true(node.status.conditions, "Ready")


def _work(seen: Sight, done: Progress, settings: Settings) -> Step:
    """Progress on the node is no evidence: the node may have returned while no process looked."""
    leaving = tuple(evicted(seen.node, seen.pods, done))
    if leaving:
        return _missing_evidence(seen, settings) or Evict(leaving)
    return Detach(tuple(seen.attachments)) if seen.attachments else Finish()


def _others_work(seen: Sight, done: Progress, settings: Settings) -> Step:
    """They work while the taint is there: if somebody took it off, they are told once more.

    But not of a node that shows a sign of life: there it ends with what they have begun, once it
    is Ready.
    """
    awaited = _awaited_of_others(seen, done, settings)
    if awaited is None:
        return Finish()
    if not _telling(seen.node) and _sign_of_life(seen) is None:
        if seen.lease.left(settings.node_grace) <= 0:
            return Begin()
        awaited = node_evidence.awaited(settings.node_grace)
    return Wait(settings.poll_seconds, awaited)


def _awaited_of_others(seen: Sight, done: Progress, settings: Settings) -> str | None:
    if any(evicted(seen.node, seen.pods, done)):
        return "pods are there"
    staying = [pod for pod in seen.pods if not is_gone(pod)]
    wanted = sum(len(claims(pod)) for pod in staying)
    attached = len(seen.node.status.volumes_attached or ())
    if attached > wanted and seen.detaching_seconds < settings.detach_seconds:
        return "volumes are attached"
    return None


def evicted(node: Node, pods: Iterable[Pod], done: Progress) -> Iterable[Pod]:
    """Those that have to go and are not gone yet."""
    return (pod for pod in pods if not is_gone(pod) and _must_go(pod, node, done))


def _must_go(pod: Pod, node: Node, done: Progress) -> bool:
    """A mirror pod only shows what its node runs by itself."""
    if critical_pods.is_mirror(pod):
        return False
    if _was_started_later(pod, node, done):
        return False
    return not (_is_left(pod, node) if done.handed_over else tolerates(pod, wishes(node)))


def _was_started_later(pod: Pod, node: Node, done: Progress) -> bool:
    """By a living agent, which may where the gate was off for a while.

    The time is by the node's own clock, which may be ahead: nothing runs on one that is not Ready.
    """
    if not _is_ready(node):
        return False
    return pod.status.start_time is not None and pod.status.start_time > done.started


def _is_left(pod: Pod, node: Node) -> bool:
    """Nobody deletes it: it tolerates the taint that tells the others, and for ever.

    Where somebody took that off, what counts is ours, which is added again. To a node that is
    Ready it is not, so there nobody deletes anything more.
    """
    if pod.is_terminating:
        return False
    telling = _telling(node)
    if not telling and _is_ready(node):
        return True
    told = telling or (OUT_OF_SERVICE,)
    return taint_timers.decide(told, pod.spec.tolerations, counting=False) == taint_timers.CANCEL


def _telling(node: Node) -> tuple[Taint, ...]:
    """The taints by which the others know that they have to work."""
    return tuple(each for each in node.spec.taints or () if _is_out_of_service(each))


def _is_out_of_service(taint: Taint) -> bool:
    """Whoever set it. With another effect nobody is evicted by it (behaviour C9.2)."""
    return (taint.key, taint.effect) == (OUT_OF_SERVICE.key, OUT_OF_SERVICE.effect)


def is_failed_by_us(pod: Pod) -> bool:
    """Whether the pod's condition says that force eviction made it Failed."""
    target = structs.find(pod.status.conditions, disruption.TARGET)
    return pod.is_terminal and target is not None and target.reason == REASON


def is_gone(pod: Pod) -> bool:
    """It has failed, and only finalizers hold it."""
    meta = pod.metadata
    return pod.is_terminating and meta.deletion_grace_period_seconds == 0 and pod.is_terminal


def claims(pod: Pod) -> list[str]:
    """The claims that a pod names, each once."""
    sources = [each.persistent_volume_claim for each in pod.spec.volumes or ()]
    return list(dict.fromkeys(each.claim_name for each in sources if each is not None))


def failing(pod: Pod, switches: Switches, *, now: datetime) -> Object | None:
    """The status to write before the pod is deleted; none if it has ended.

    Without `PodDisruptionConditions` it fails without a condition.
    """
    if pod.is_terminal:
        return None
    status: Object = {"phase": "Failed", "observedGeneration": pod.metadata.generation}
    if switches.pod_disruption_conditions:
        target = disruption.condition(pod, REASON, MESSAGE, now=now)
        if target is not None:
            status |= conditions.merged(pod.status.conditions, [target])
    reason = pod_reason.given(pod_reason.FORCE_EVICTION, switches)
    return status | pod_reason.noted(pod, reason)


def begun(node: Node, settings: Settings, *, now: datetime) -> tuple[Progress, tuple[Taint, ...]]:
    """What stands on the node from now on, and its taints; when it first began stays."""
    taints, stamp = node.spec.taints or (), times.format_time(now)
    before = progress(node)
    started = stamp if before is None else before.started or stamp
    done = Progress(EVICTING, started, handed_over=settings.hands_over)
    if not settings.hands_over or _telling(node):
        return done, taints
    return done, (*taints, msgspec.structs.replace(OUT_OF_SERVICE, time_added=stamp))


def ended(node: Node) -> tuple[Taint, ...]:
    """The node's taints without the wish, and without what was added for it."""
    return tuple(
        each for each in node.spec.taints or () if not is_wish(each) and not _is_ours(each)
    )


def _is_ours(taint: Taint) -> bool:
    return _is_out_of_service(taint) and taint.value == OUT_OF_SERVICE.value


def told(node: Node, pods: Iterable[Pod]) -> str:
    """How far it came, in words; empty if nobody wishes it."""
    done = progress(node)
    if not concerns(node):
        return ""
    if not wishes(node):
        return "the taint that asked for it is gone: it ends where it is"
    if done is None:
        return (
            "a taint says that it is down; awaited: its Ready condition must not be True, and"
            " its Lease must not change for the node grace period"
        )
    if done.step == VOLUMES_CLEARED:
        return "its volumes are cleared; its lease is looked at once more"
    left = len(list(evicted(node, pods, done)))
    return f"since {done.started} its pods are evicted; {left} are left"


# -- the agent's side


def tolerates(pod: Pod, taints: Iterable[Taint]) -> bool:
    """Whether it puts up with all these wishes."""
    return all(tolerations.is_tolerated(each, pod.spec.tolerations) for each in taints)


def tolerates_any_wish(pod: Pod) -> bool:
    """Whether it puts up with every wish that there could be, where nobody knows which there is."""
    return tolerates(pod, (WISH, _ANY_TAINT))


def may_start(pod: Pod, node: Node | None) -> bool:
    """Whether a node may start a pod: not while it is force evicted, or might be (Scenario 2).

    `node` is none where it cannot be read.
    """
    if node is None:
        return tolerates_any_wish(pod)
    if not _is_ready(node):
        return tolerates_any_wish(pod)
    return tolerates(pod, wishes(node))
