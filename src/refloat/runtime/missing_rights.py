# SPDX-License-Identifier: Apache-2.0
"""The rights that the API server refuses to a controller (403).

A missing right is a mistake of the installation that no retry repairs. So the
controller names it in readyz, in a gauge and in one Warning event, until a
request that needs the right succeeds. A right is named like `patch pods/status`;
the names are constants of the controllers, so the label's values are a closed set.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from refloat.client import errors
from refloat.runtime.event_series import Reference
from refloat.runtime.recorder import Sink

REASON = "MissingRights"


class Rights:
    """The missing rights of one controller."""

    def __init__(self, controller: str, gauge: Gauge, sink: Sink) -> None:
        """`gauge` has one label, `right`."""
        self._controller = controller
        self._gauge = gauge
        self._sink = sink
        self._missing: dict[str, None] = {}

    @property
    def missing(self) -> str | None:
        """For readyz: why the controller cannot work; None if it has all rights."""
        if not self._missing:
            return None
        return f"{self._controller} may not {', '.join(self._missing)}"

    @contextmanager
    def needed(self, right: str, about: Reference) -> Iterator[None]:
        """The requests inside need this right; `about` is the object of the event."""
        try:
            yield
        except errors.Forbidden as error:
            if right not in self._missing:
                self._missing[right] = None
                self._gauge.labels(right).set(1)
                note = f"{self._controller} may not {right}, so nothing is freed: {error}"
                self._sink.event(about, "Warning", REASON, "CheckRights", note)
            raise
        if right in self._missing:
            del self._missing[right]
            self._gauge.labels(right).set(0)
