# SPDX-License-Identifier: Apache-2.0
"""An Event is the same in both API groups."""

from typing import Any

from refloat.api import codec, event_conversion, events, schema
from refloat.api.meta import Object
from tests.cases import cases

EMPTY_CORE: Object = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "e"},
    "involvedObject": {"namespace": "d"},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
EMPTY_EVENTS: Object = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": {"name": "e"},
    "eventTime": None,
    "regarding": {"namespace": "d"},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}

SAME: dict[str, Any] = {
    "eventTime": "2020-01-01T00:00:00.123456Z",
    "series": {"count": 2, "lastObservedTime": "2020-01-01T00:00:00.000001Z"},
    "action": "A",
    "reason": "R",
    "related": {"kind": "Node", "name": "n"},
    "reportingInstance": "i",
    "type": "Normal",
}
FULL_CORE = {
    **EMPTY_CORE,
    **SAME,
    "involvedObject": {"kind": "Pod", "namespace": "d", "name": "p", "fieldPath": "spec.x"},
    "message": "M",
    "source": {"component": "c", "host": "h"},
    "firstTimestamp": "2020-01-01T00:00:00Z",
    "lastTimestamp": "2020-01-02T00:00:00Z",
    "count": 3,
    "reportingComponent": "rc",
}
FULL_EVENTS = {
    **EMPTY_EVENTS,
    **SAME,
    "regarding": FULL_CORE["involvedObject"],
    "note": "M",
    "deprecatedSource": {"component": "c", "host": "h"},
    "deprecatedFirstTimestamp": "2020-01-01T00:00:00Z",
    "deprecatedLastTimestamp": "2020-01-02T00:00:00Z",
    "deprecatedCount": 3,
    "reportingController": "rc",
}


@cases(
    "core event",
    {
        "with nothing but what is always written": (EMPTY_CORE, EMPTY_EVENTS),
        "with every field": (FULL_CORE, FULL_EVENTS),
    },
)
def test_each_form_turns_into_the_other(core: Object, event: Object) -> None:
    assert event_conversion.to_events(core) == event
    assert event_conversion.to_core(event) == core


def test_every_field_of_one_form_has_its_place_in_the_other() -> None:
    core = set(schema.struct("v1", "Event").fields)
    event = schema.struct("events.k8s.io/v1", "Event").fields
    assert {events.TO_CORE.get(name, name) for name in event} == core


def test_the_original_is_left_alone() -> None:
    before = codec.encode(FULL_CORE)
    event_conversion.to_events(FULL_CORE)
    assert codec.encode(FULL_CORE) == before
