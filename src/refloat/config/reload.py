# SPDX-License-Identifier: Apache-2.0
"""Applies a configuration file again when the file changes.

A bad file keeps the old configuration in force and is logged once. No failure
ends the polling, because the file has the switch that turns recovery off. The
file is polled, because a mounted ConfigMap changes by a renamed link, which a
file watch misses.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from refloat.base.clock import Clock
from refloat.config import load
from refloat.config.errors import ConfigError

log = logging.getLogger(__name__)

# A change applies within this time; reading a small file costs nothing.
POLL_SECONDS = 2.0


class Reloading:
    """The configuration in force; raises `ConfigError` when the first one is bad."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._seen = self._read()
        self.current = load.load(path)
        self._listeners: list[Callable[[load.Configuration], object]] = []

    def on_change(self, listener: Callable[[load.Configuration], object]) -> None:
        """Call `listener` with every new configuration."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Poll the file until cancelled."""
        while True:
            await self._clock.sleep(POLL_SECONDS)
            try:
                self.poll()
            except Exception:
                log.exception("some listeners did not apply the configuration from %s", self._path)

    def poll(self) -> None:
        """Apply the file if it has changed."""
        content = self._read()
        if content == self._seen:
            return
        self._seen = content
        try:
            new = load.load(self._path)
        except ConfigError as error:
            log.error("the old configuration stays in force: %s", error)
            return
        except Exception:
            log.exception("the old configuration stays in force: %s", self._path)
            return
        if new == self.current:
            return
        self.current = new
        log.warning("configuration applied from %s", self._path)
        for listener in self._listeners:
            listener(new)

    def _read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None
