# SPDX-License-Identifier: Apache-2.0
"""Paths of unix sockets, which have room for about a hundred bytes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 100


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name of the path that is short enough for a socket."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
