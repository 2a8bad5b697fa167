# SPDX-License-Identifier: Apache-2.0
"""A node that a taint declares down gives up its pods and volumes at once (KEP-36).

One decision: from the observation of a node to the next step. Each step is one write, or one for
each pod. The progress is on the node itself, so that the next process continues:

    (nothing)       refused, or waits until the Lease has not changed for long enough
    VolumesCleared  the node's lists of volumes are empty; the evidence is checked once more
    Evicting        begun: pods are failed while the evidence holds; when they are gone, the
                    eviction is finished, whatever the node reports

`controllers.force_eviction` reads and writes. This module also decides what the agent of such a
node may start.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from refloat.api import conditions, structs, times
from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.policy.garbage import pod_gc
from refloat.policy.job import pod_reason
from refloat.policy.job.job_gates import JobGates
from refloat.policy.node import taint_timers
from refloat.policy.recovery import node_evidence
from refloat.policy.recovery.node_evidence import Doubt, LeaseSilence
from refloat.policy.scheduling import critical_pods, disruption_target, tolerations
from refloat.policy.scheduling.tolerations import FORCE_EVICTION, NO_EXECUTE, NO_SCHEDULE

REQUEST_TAINT = Taint(key="refloat.dev/force-eviction", value="true", effect=NO_SCHEDULE)
"""The request that every API server accepts; KEP-36 has any taint with its effect."""

PROGRESS = "refloat.dev/force-eviction-progress"
"""The annotation of a node with the progress of the eviction."""

OUT_OF_SERVICE = Taint(key=pod_gc.OUT_OF_SERVICE, value="refloat-force-eviction", effect=NO_EXECUTE)
"""Starts Kubernetes' own controllers, whatever its value (behaviour C1.4, C9). The value shows that
Refloat may remove the taint."""

REASON = "DeletionByForceEviction"
MESSAGE = "Force eviction: deleting a pod of a node that is down"

VOLUMES_CLEARED: Final = "VolumesCleared"
EVICTING: Final = "Evicting"

# A taint of that effect with any key.
_ANY_TAINT = Taint(key="", value="", effect=FORCE_EVICTION)


@dataclass(frozen=True, slots=True)
class ForceEvictionSettings:
    """Settings of force eviction."""

    hands_over: bool = False
    """Whether Kubernetes' own controllers, started by a taint, free pods and volumes."""

    node_grace: timedelta = node_evidence.GRACE_PERIOD
    """How long the Lease of a node must not change until the node counts as down."""

    poll_seconds: float = 5.0
    """Seconds between two checks of a node that is waited for."""

    detach_seconds: float = 360.0
    """How long to wait for others to detach volumes: then Kubernetes detaches them anyway."""


class Progress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The progress of an eviction, as the node's annotation has it."""

    step: Literal["VolumesCleared", "Evicting"]
    started: str = ""
    """When the eviction of pods began."""

    handed_over: bool = False
    """Whether Kubernetes' own controllers free pods and volumes."""

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class AttachmentRef:
    """A VolumeAttachment with its uid, because its name may belong to another node later."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The observation of a node for one decision."""

    node: Node
    lease: LeaseSilence
    pods: Sequence[Pod] = ()
    """Pods bound to the node; read only while evicting."""

    attachments: Sequence[AttachmentRef] = ()
    """Attachments of volumes whose pods are gone."""

    detaching_seconds: float = 0.0
    """How long all pods have been gone."""

    renewed: bool = False
    """Whether the Lease changed since the first read with the request."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No request, and nothing to clean up."""


@dataclass(frozen=True, slots=True)
class EvictLater:
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The node may be alive: remove the request, and report the reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The request is gone: remove the progress."""


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
    attachments: tuple[AttachmentRef, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Remove request and progress."""


Step: TypeAlias = (
    Nothing | EvictLater | Refuse | Withdraw | ClearVolumes | Begin | Evict | Detach | Finish
)


def request_taints(node: Node) -> tuple[Taint, ...]:
    """The taints that declare the node down."""
    return tuple(each for each in node.spec.taints or () if is_request(each))


def is_request(taint: Taint) -> bool:
    if taint.effect == FORCE_EVICTION:
        return True
    return (taint.key, taint.value, taint.effect) == (
        REQUEST_TAINT.key,
        REQUEST_TAINT.value,
        REQUEST_TAINT.effect,
    )


def mistyped(node: Node) -> Taint | None:
    """A taint with the key of the request and a wrong value or effect."""
    if request_taints(node):
        return None
    return next((each for each in node.spec.taints or () if each.key == REQUEST_TAINT.key), None)


def progress(node: Node) -> Progress | None:
    """The progress; None also for an unreadable one, so that all evidence is checked again."""
    text = (node.metadata.annotations or {}).get(PROGRESS)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Progress)
    except msgspec.MsgspecError:
        return None


def concerns(node: Node) -> bool:
    """Whether the node has a request or progress."""
    return PROGRESS in (node.metadata.annotations or {}) or bool(request_taints(node))


def decide(observation: Observation, settings: ForceEvictionSettings) -> Step:
    done = progress(observation.node)
    if not request_taints(observation.node):
        return Nothing() if done is None else Withdraw()
    if done is None or done.step != EVICTING:
        return _before(observation, done, settings)
    if settings.hands_over or done.handed_over:
        return _others_work(observation, done, settings)
    return _work(observation, done, settings)


def _before(
    observation: Observation, done: Progress | None, settings: ForceEvictionSettings
) -> Step:
    """The step before the first forced write, which needs all evidence."""
    if (missing := _missing_evidence(observation, settings)) is not None:
        return missing
    return ClearVolumes() if done is None and not settings.hands_over else Begin()


def _missing_evidence(
    observation: Observation, settings: ForceEvictionSettings
) -> Refuse | EvictLater | None:
    """The step instead of a forced one; None if the node counts as down."""
    if (why := _sign_of_life(observation)) is not None:
        return Refuse(why)
    wait = observation.lease.left(settings.node_grace)
    if wait > 0:
        return EvictLater(
            min(wait, settings.poll_seconds), node_evidence.awaited(settings.node_grace)
        )
    return None


def _sign_of_life(observation: Observation) -> str | None:
    doubt = node_evidence.doubt(observation.node, observation.lease)
    if doubt == Doubt.READY:
        return "it is Ready"
    if observation.renewed:
        return "it renews its lease"
    return None if doubt is None else node_evidence.WORDS[doubt]


def _is_ready(node: Node) -> bool:
    return structs.is_true(node.status.conditions, "Ready")


def _work(observation: Observation, done: Progress, settings: ForceEvictionSettings) -> Step:
    """Progress is no evidence: the node may have returned while no process observed it."""
    leaving = tuple(evicted(observation.node, observation.pods, done))
    if leaving:
        return _missing_evidence(observation, settings) or Evict(leaving)
    return Detach(tuple(observation.attachments)) if observation.attachments else Finish()


def _others_work(observation: Observation, done: Progress, settings: ForceEvictionSettings) -> Step:
    """Wait for Kubernetes' controllers; if a user removed their taint, add it again.

    But not on a node that shows a sign of life: there the eviction ends with the work that they
    have begun, once the node is Ready.
    """
    why = "pods are there"
    if not any(evicted(observation.node, observation.pods, done)):
        needed = sum(len(claims(pod)) for pod in observation.pods if not is_gone(pod))
        attached = len(observation.node.status.volumes_attached or ())
        if attached <= needed or observation.detaching_seconds >= settings.detach_seconds:
            return Finish()
        why = "volumes are attached"
    if not _telling(observation.node) and _sign_of_life(observation) is None:
        if observation.lease.left(settings.node_grace) <= 0:
            return Begin()
        why = node_evidence.awaited(settings.node_grace)
    return EvictLater(settings.poll_seconds, why)


def evicted(node: Node, pods: Iterable[Pod], done: Progress) -> Iterable[Pod]:
    """The pods that must go and are not gone yet.

    After a hand-over, Kubernetes' controllers leave a pod that tolerates their taint forever. If a
    user removed their taint, Refloat's own counts, which is added again. It is not added to a node
    that is Ready, so no controller deletes more pods there.
    """
    requests, is_ready, telling = request_taints(node), _is_ready(node), _telling(node)
    taints = telling if telling or is_ready else (OUT_OF_SERVICE,)
    for pod in pods:
        if is_gone(pod) or critical_pods.is_mirror(pod):
            continue  # a mirror pod only shows what the node runs by itself
        # Where the gate was off for a while, a living agent may have started later pods. The
        # node's clock may be ahead, and a node that is not Ready runs no such pods.
        started = pod.status.start_time
        if is_ready and started is not None and started > done.started:
            continue
        if done.handed_over:
            step = taint_timers.decide(taints, pod.spec.tolerations, counting=False)
            stays = step == taint_timers.CANCEL and not pod.is_terminating
        else:
            stays = tolerates(pod, requests)
        if not stays:
            yield pod


def _telling(node: Node) -> tuple[Taint, ...]:
    """The taints that start Kubernetes' controllers."""
    return tuple(each for each in node.spec.taints or () if _is_out_of_service(each))


def _is_out_of_service(taint: Taint) -> bool:
    """Whether the taint evicts pods, whoever set it: other effects do not (behaviour C9.2)."""
    return (taint.key, taint.effect) == (OUT_OF_SERVICE.key, OUT_OF_SERVICE.effect)


def is_failed_by_us(pod: Pod) -> bool:
    """Whether the pod's condition shows that force eviction marked it Failed."""
    target = structs.find(pod.status.conditions, disruption_target.TARGET)
    return pod.is_terminal and target is not None and target.reason == REASON


def is_gone(pod: Pod) -> bool:
    """Whether the pod has failed, and only finalizers keep it."""
    meta = pod.metadata
    return pod.is_terminating and meta.deletion_grace_period_seconds == 0 and pod.is_terminal


def claims(pod: Pod) -> list[str]:
    """The claims that a pod names, each once."""
    sources = [each.persistent_volume_claim for each in pod.spec.volumes or ()]
    return list(dict.fromkeys(each.claim_name for each in sources if each is not None))


def failing(pod: Pod, job_gates: JobGates, *, now: datetime) -> Object | None:
    """The status to write before the deletion; None for a pod that has ended.

    Without `PodDisruptionConditions` the pod gets no condition.
    """
    if pod.is_terminal:
        return None
    status: Object = {"phase": "Failed", "observedGeneration": pod.metadata.generation}
    if job_gates.pod_disruption_conditions:
        target = disruption_target.condition(pod, REASON, MESSAGE, now=now)
        if target is not None:
            status |= conditions.merged(pod.status.conditions, [target])
    reason = pod_reason.delete_reason(pod_reason.FORCE_EVICTION, job_gates)
    return status | pod_reason.status_reason(pod, reason)


def plan_begin(
    node: Node, settings: ForceEvictionSettings, *, now: datetime
) -> tuple[Progress, tuple[Taint, ...]]:
    """The progress and taints of a node whose eviction begins; the first start time stays."""
    taints, stamp = node.spec.taints or (), times.format_time(now)
    before = progress(node)
    started = stamp if before is None else before.started or stamp
    done = Progress(EVICTING, started, handed_over=settings.hands_over)
    if not settings.hands_over or _telling(node):
        return done, taints
    return done, (*taints, msgspec.structs.replace(OUT_OF_SERVICE, time_added=stamp))


def plan_end(node: Node) -> tuple[Taint, ...]:
    """The node's taints without the request and without the added taint."""
    return tuple(
        each
        for each in node.spec.taints or ()
        if not is_request(each)
        and not (_is_out_of_service(each) and each.value == OUT_OF_SERVICE.value)
    )


def describe(node: Node, pods: Iterable[Pod]) -> str:
    """The progress in words; empty without an eviction."""
    done = progress(node)
    if not concerns(node):
        return ""
    if not request_taints(node):
        return "the taint that asked for it is gone: it ends where it is"
    if done is None:
        return (
            "a taint says that it is down; awaited: its Ready condition must not be True, and"
            " its Lease must not change for the node grace period"
        )
    if done.step == VOLUMES_CLEARED:
        return "its volumes are cleared; its lease is looked at once more"
    count = len(list(evicted(node, pods, done)))
    return f"since {done.started} its pods are evicted; {count} are left"


# -- the agent's side


def tolerates(pod: Pod, taints: Iterable[Taint]) -> bool:
    """Whether the pod tolerates all these requests."""
    return all(tolerations.is_tolerated(each, pod.spec.tolerations) for each in taints)


def tolerates_any_request(pod: Pod) -> bool:
    """Whether the pod tolerates every possible request, where the request is unknown."""
    return tolerates(pod, (REQUEST_TAINT, _ANY_TAINT))


def may_start(pod: Pod, node: Node | None) -> bool:
    """Whether a node may start a pod: not while it is force evicted, or might be (Scenario 2).

    `node` is None if it cannot be read.
    """
    if node is None:
        return tolerates_any_request(pod)
    if not _is_ready(node):
        return tolerates_any_request(pod)
    return tolerates(pod, request_taints(node))
