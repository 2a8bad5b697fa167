# SPDX-License-Identifier: Apache-2.0
"""What a pod or a node is explained with: all that was gathered, and nothing of how."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import times
from refloat.api.core import Node, Pod
from refloat.api.events import Event
from refloat.api.self_fence import Promise
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.config.load import Configuration
from refloat.explain.account import Point, when
from refloat.explain.actors import Outlook
from refloat.policy import zombie

# Events of an object that are told, the latest: more is what `kubectl describe` is for.
MAX_EVENTS = 5

NODE_HIDDEN = "unknown: it depends on the pod's node, which you may not read"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The cluster around an object, at one time."""

    now: datetime
    recovery: Outlook = field(default_factory=Outlook)
    """Which process does failure recovery here."""
    force_eviction: Outlook = field(default_factory=Outlook)
    """Which process evicts by force here."""
    node: Node | None = None
    """The pod's node, or the node itself; None if it does not exist or is hidden."""
    node_hidden: bool = False
    """Whether the asker may not read the pod's node."""
    pods: Sequence[Pod] = ()
    """Those on the node, where a node is explained."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the namespaces that matter, by name."""
    events: Sequence[Event] = ()
    of_node: Sequence[Event] = ()
    """Those of a pod's node."""

    promises: Mapping[str, Promise] | None = None
    """The self-fenced pods that the node's Lease lists, by uid; None if it may not be read."""

    def promise(self, pod: Pod) -> Promise | None:
        """What recovery counts. Without the Lease, what the pod's condition shows."""
        if self.promises is None:
            return zombie.shown_promise(pod)
        return self.promises.get(pod.metadata.uid)

    def labels(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {})


def reservation(configuration: Configuration) -> str:
    """Why a decision is not carried out, whatever it is; empty if it is."""
    if not Gates(configuration.feature_gates).enabled(FAILURE_RECOVERY_POLICY):
        return f"the gate {FAILURE_RECOVERY_POLICY} is off, so nothing of this happens"
    if configuration.failure_recovery.mode == "Report":
        return "the mode is Report, so it is told and nothing is touched"
    return ""


def told(events: Iterable[Event], now: datetime) -> list[Point]:
    """The latest events, the oldest first."""
    known = sorted((event for event in events if _seen(event)), key=_seen)
    return [
        Point("event", f"{when(times.parse(_seen(each)), now)} {each.reason}: {each.note}")
        for each in known[-MAX_EVENTS:]
    ]


def _seen(event: Event) -> str:
    """When it last happened, as a text that sorts."""
    series = event.series.last_observed_time if event.series else None
    found = series or event.deprecated_last_timestamp or event.event_time
    return found or event.metadata.creation_timestamp or ""
