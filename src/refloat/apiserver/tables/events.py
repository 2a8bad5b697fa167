# SPDX-License-Identifier: Apache-2.0
"""Events as rows: one table for both kinds, which name the same fields differently."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from refloat.api import printing
from refloat.api.meta import Object
from refloat.apiserver.tables.columns import NAME, Cells, Printer, column, name

# The white space of Unicode; `str.strip` alone would strip more.
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_COLUMNS = (
    column("Last Seen", "The time since the last occurrence."),
    column("Type", "Normal or Warning."),
    column("Reason", "The reason in one word."),
    column("Object", "The object of the event."),
    column("Subobject", "The part of the object.", wide=True),
    column("Source", "The component that reports the event.", wide=True),
    column("Message", "The message for people."),
    column("First Seen", "The time since the first occurrence.", wide=True),
    column("Count", "The number of occurrences.", wide=True),
    NAME | {"priority": 1},
)


@dataclass(frozen=True, slots=True)
class _Names:
    """The field names of one of the two kinds."""

    target: str
    message: str
    source: str
    controller: str
    first: str
    last: str
    count: str

    def cells(self, event: Object, now: datetime) -> Cells:
        target = event.get(self.target) or {}
        first = printing.age(event.get(self.first) or event.get("eventTime"), now)
        if (series := event.get("series")) is not None:
            last = printing.age(series.get("lastObservedTime"), now)
            count = series.get("count", 0)
        else:
            last = printing.age(event[self.last], now) if event.get(self.last) else first
            count = event.get(self.count) or 1
        return [
            last,
            event.get("type", ""),
            event.get("reason", ""),
            _target(target),
            target.get("fieldPath", ""),
            self._source(event),
            event.get(self.message, "").strip(_SPACE),
            first,
            count,
            name(event),
        ]

    def _source(self, event: Object) -> str:
        source = event.get(self.source) or {}
        component: str = source.get("component") or event.get(self.controller, "")
        host = source.get("host") or event.get("reportingInstance")
        return f"{component}, {host}" if host else component


def _target(target: dict[str, Any]) -> str:
    kind: str = target.get("kind", "").lower()
    return f"{kind}/{target['name']}" if target.get("name") else kind


CORE_EVENTS = Printer(
    _COLUMNS,
    _Names(
        target="involvedObject",
        message="message",
        source="source",
        controller="reportingComponent",
        first="firstTimestamp",
        last="lastTimestamp",
        count="count",
    ).cells,
)

EVENTS = Printer(
    _COLUMNS,
    _Names(
        target="regarding",
        message="note",
        source="deprecatedSource",
        controller="reportingController",
        first="deprecatedFirstTimestamp",
        last="deprecatedLastTimestamp",
        count="deprecatedCount",
    ).cells,
)
