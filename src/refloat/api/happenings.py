# SPDX-License-Identifier: Apache-2.0
"""What is read of events (group events.k8s.io).

See `structs` for what holds for all structs. How the two Event kinds turn
into each other is in `events`, and writing them is the recorder's business.
"""

from refloat.api.structs import ApiObject, Partial, Time


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
