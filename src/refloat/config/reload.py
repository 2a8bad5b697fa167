# SPDX-License-Identifier: Apache-2.0
"""A configuration file that is taken up when it changes.

A bad one keeps the old configuration, and is told once. Whatever happens, the
file is looked at again: it has the switch by which all is switched off. It is polled:
a ConfigMap that is mounted changes by a renamed link, which watching a file
misses.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from refloat.base.clock import Clock
from refloat.config import load
from refloat.config.errors import ConfigError

log = logging.getLogger(__name__)

# A change is seen within this time; reading a small file costs nothing.
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
        """Call it with every new configuration."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Look at the file for ever."""
        while True:
            await self._clock.sleep(POLL_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("configuration not taken up by all; %s is still followed", self._path)

    def look(self) -> None:
        """Take up the file if it has changed."""
        found = self._read()
        if found == self._seen:
            return
        self._seen = found
        new = self._loaded()
        if new is None or new == self.current:
            return
        self.current = new
        log.warning("configuration taken up from %s", self._path)
        for listener in self._listeners:
            listener(new)

    def _loaded(self) -> load.Configuration | None:
        try:
            return load.load(self._path)
        except ConfigError as error:
            log.error("configuration not taken up, the old one stays: %s", error)
        except Exception:
            log.exception("configuration not taken up, the old one stays: %s", self._path)
        return None

    def _read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None
