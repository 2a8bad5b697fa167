# SPDX-License-Identifier: Apache-2.0
"""What an object is explained with: all that was gathered, and nothing of how."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import times
from refloat.api.core import Node, Pod, Taint
from refloat.api.events import Event
from refloat.api.self_fence import Promise
from refloat.api.structs import ApiObject
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.config.load import Configuration
from refloat.explain.actors import Outlook
from refloat.explain.explanation import Evidence, age
from refloat.policy.job import job_gates
from refloat.policy.job.job_gates import JobGates
from refloat.policy.recovery import recovery_bounds, zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy

# The latest events of an object that are evidence; `kubectl describe` shows all.
MAX_EVENTS = 5


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a node has left for new pods, and which pods it takes."""

    name: str
    free: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """The cluster around the objects, at one time."""

    now: datetime
    recovery: Outlook = field(default_factory=Outlook)
    """Which process does failure recovery here."""
    force_eviction: Outlook = field(default_factory=Outlook)
    """Which process evicts by force here."""
    job_control: Outlook = field(default_factory=Outlook)
    """Which process of Refloat runs the Jobs that ask for Refloat."""
    gates: JobGates = job_gates.ALL_ON
    """Those of the Job controller, as far as they are known."""
    nodes: Mapping[str, Node | None] = field(default_factory=dict)
    """By name; None for a node that does not exist. A node that may not be read is missing."""
    promises: Mapping[str, Mapping[str, Promise]] = field(default_factory=dict)
    """By node: the self-fenced pods that its Lease lists, by uid. Missing if not readable."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of namespaces, by name."""
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    """By the key of their object (`event_key`)."""
    unreachable: tuple[int, int] | None = None
    """How many nodes are unreachable, of how many; None if the nodes were not listed."""
    rooms: Sequence[NodeRoom] | None = None
    """The free resources of each node; None if they were not read."""

    def events_of(self, kind: str, of: ApiObject) -> list[Event]:
        """The latest last."""
        key = event_key(kind, of.metadata.namespace, of.metadata.name)
        return sorted(self.events.get(key, ()), key=last_seen)

    def promise(self, pod: Pod) -> Promise | None:
        """What recovery counts. Without the Lease, what the pod's condition shows."""
        promises = self.promises.get(pod.spec.node_name)
        if promises is None:
            return zombie.shown_promise(pod)
        return promises.get(pod.metadata.uid)

    def labels(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {})

    def is_recovered(self, pod: Pod) -> bool:
        """Whether recovery ends the pod if its node is lost."""
        configuration = self.recovery.configuration
        if configuration is None:
            return False
        labels = self.labels(pod.metadata.namespace)
        trigger = zombie.trigger_of(pod, labels, configuration.failure_recovery)
        return not isinstance(trigger, zombie.Ignore)

    def recovery_decision(
        self, pod: Pod, node: Node, policy: FailureRecoveryPolicy
    ) -> zombie.Decision:
        """What recovery decides about a deleted pod."""
        return zombie.decide(
            pod,
            node,
            policy,
            namespace=self.labels(pod.metadata.namespace),
            silence=zombie.UNWATCHED,
            now=self.now,
            promise=self.promise(pod),
        )

    def elapsed(self, text: str | None) -> float:
        """Seconds since a time of the API; 0 if there is none."""
        return (self.now - times.parse(text)).total_seconds() if text else 0.0


def event_key(kind: str, namespace: str, name: str) -> str:
    """Names are unique in a namespace only; a node has none."""
    return f"{kind}/{namespace}/{name}"


def reservation(configuration: Configuration) -> str:
    """Why recovery does not carry out a decision; empty if it does."""
    if not Gates(configuration.feature_gates).enabled(FAILURE_RECOVERY_POLICY):
        return f"the gate {FAILURE_RECOVERY_POLICY} is off"
    if configuration.failure_recovery.mode == "Report":
        return "the mode is Report: recovery reports and changes nothing"
    return ""


def node_hold(configuration: Configuration, context: ExplainContext) -> str:
    """Why recovery forces nothing while so many nodes are unreachable; empty if it may."""
    if context.unreachable is None:
        return ""
    lost, total = context.unreachable
    percent = configuration.failure_recovery.hold_above_percent
    if not recovery_bounds.holds(lost, total, percent):
        return ""
    return f"{lost} of {total} nodes are unreachable, more than {percent} %"


def last_seen(event: Event) -> str:
    """When the event last happened, as a text that sorts."""
    series = event.series.last_observed_time if event.series else None
    latest = series or event.deprecated_last_timestamp or event.event_time
    return latest or event.metadata.creation_timestamp or ""


def event_evidence(events: Iterable[Event], now: datetime) -> tuple[Evidence, ...]:
    """The latest events, the oldest first."""
    known = sorted((event for event in events if last_seen(event)), key=last_seen)
    return tuple(
        Evidence(
            f"event {each.regarding.kind.lower()}/{each.regarding.name}",
            f"{each.reason}, {age(times.parse(last_seen(each)), now)} ago: "
            + " ".join(each.note.split()),
        )
        for each in known[-MAX_EVENTS:]
    )
