# SPDX-License-Identifier: Apache-2.0
"""The two kinds of Event, which are one thing under two names.

Events are stored as those of `v1`; `events.k8s.io/v1` calls some fields by
other names. Objects are in normal form before and after.
"""

from refloat.api import codec, schema
from refloat.api.events import CORE, EVENTS, TO_CORE
from refloat.api.meta import Object

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
