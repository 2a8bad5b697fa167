# SPDX-License-Identifier: Apache-2.0
"""What a pod or a node is explained with: all that was gathered, and nothing of how."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import times
from refloat.api.core import Node, Pod
from refloat.api.events import Event
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.config.load import Configuration
from refloat.explain.account import Point, when

# Events of an object that are told, the latest: more is what `kubectl describe` is for.
MAX_EVENTS = 5

UNKNOWN = (
    "no Refloat on this cluster says what it is configured to do: it does not run here,"
    " or you may not read its ConfigMap"
)


NODE_HIDDEN = "unknown: it depends on the pod's node, which you may not read"

# Where a Refloat says it: that of an embedded cluster, and that of the example for
# managers. Not everybody may write there.
USUAL = ("kube-system", "refloat-system")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The cluster around an object, at one time."""

    now: datetime
    configuration: Configuration | None = None
    """What the Refloat of this cluster goes by; None if none says so."""
    announced_in: Sequence[str] = ()
    """The namespaces in which one says so, that of `configuration` first."""
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

    def labels(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {})


def reservation(configuration: Configuration) -> str:
    """Why a decision is not carried out, whatever it is; empty if it is."""
    if not Gates(configuration.feature_gates).enabled(FAILURE_RECOVERY_POLICY):
        return f"the gate {FAILURE_RECOVERY_POLICY} is off, so nothing of this happens"
    if configuration.failure_recovery.mode == "Report":
        return "the mode is Report, so it is told and nothing is touched"
    return ""


def origin(around: Surroundings) -> list[Point]:
    """Whose configuration it is, unless that goes without saying."""
    if not around.announced_in:
        return []
    first, *others = around.announced_in
    if first in USUAL and not others:
        return []
    text = f"the one that is announced in namespace {first}"
    if others:
        text += f"; {len(others)} more, announced elsewhere, did not count"
    return [Point("configuration", text)]


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
