# SPDX-License-Identifier: Apache-2.0
"""An event sink that keeps the events in a list, for programs in virtual time."""

from dataclasses import dataclass, field

from refloat.runtime.event_series import EventType, Reference


@dataclass(slots=True)
class EventLog:
    """The events of controllers, in order. Implements `runtime.recorder.Sink`."""

    events: list[tuple[EventType, str, str]] = field(default_factory=list)
    """Type, reason and note of each."""
    objects: list[str] = field(default_factory=list)
    """The object of each event, as `Kind/name`."""

    def event(
        self, regarding: Reference, event_type: EventType, reason: str, action: str, note: str
    ) -> None:
        assert regarding.uid
        assert action
        self.events.append((event_type, reason, note))
        self.objects.append(f"{regarding.kind}/{regarding.name}")

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    def notes(self, reason: str) -> list[str]:
        return [note for _, other, note in self.events if other == reason]

    def about(self, name: str) -> list[tuple[str, str]]:
        """The events of an object `Kind/name`, as (`Type Reason`, note)."""
        return [
            (f"{event_type} {reason}", note)
            for about, (event_type, reason, note) in zip(self.objects, self.events, strict=True)
            if about == name
        ]
