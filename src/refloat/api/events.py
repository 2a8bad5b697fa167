# SPDX-License-Identifier: Apache-2.0
"""What is read of Events of `events.k8s.io/v1` (see `structs`).

Writing them is the recorder's business; what the API server makes of them is in
`event_conversion`, apart, because that knows all types and agents do without.
"""

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
