# SPDX-License-Identifier: Apache-2.0
"""The two kinds of Event, which are one thing under two names.

Events are stored as those of `v1`; `events.k8s.io/v1` calls some fields by
other names. Objects are in normal form before and after. The structs are what
is read of those of `events.k8s.io/v1` (see `structs`); writing them is the
recorder's business.
"""

from refloat.api import codec, schema
from refloat.api.meta import Object
from refloat.api.structs import ApiObject, Partial, Time

CORE = "v1"
EVENTS = "events.k8s.io/v1"

TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_TO_EVENTS = {core: name for name, core in TO_CORE.items()}


def to_core(event: Object) -> Object:
    """An Event of events.k8s.io/v1 as one of v1."""
    return _renamed(event, TO_CORE, CORE)


def to_events(event: Object) -> Object:
    """An Event of v1 as one of events.k8s.io/v1."""
    return _renamed(event, _TO_EVENTS, EVENTS)


def _renamed(event: Object, names: dict[str, str], api_version: str) -> Object:
    renamed = {names.get(key, key): value for key, value in event.items()}
    return codec.convert(renamed, schema.struct(api_version, "Event")).obj


class ObjectReference(Partial, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(Partial, frozen=True):
    count: int = 0
    last_observed_time: Time | None = None


class Event(ApiObject, frozen=True):
    event_time: Time | None = None
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    series: EventSeries | None = None
    deprecated_first_timestamp: Time | None = None
    deprecated_last_timestamp: Time | None = None
    deprecated_count: int = 0
