# SPDX-License-Identifier: Apache-2.0
"""Reads the termination message of a container, or the end of its log instead."""

import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A kubelet's limits for the message, and for the log in its place.
MAX_MESSAGE = 4096
MAX_LOG_BYTES, MAX_LOG_LINES = 2048, 80

FALLBACK = "FallbackToLogsOnError"

# Enough of a log's end for those lines with their times.
_TAIL = 64 * 1024


def message(memo: Mapping[str, Any] | None, exit_code: int) -> str:
    """The message of an ended container; `memo` has the paths of its files."""
    if memo is None:
        return ""
    text = _tail(Path(memo["message"]), MAX_MESSAGE)
    if not text and exit_code != 0 and memo.get("policy") == FALLBACK:
        lines = deque(_tail(Path(memo["log"]), _TAIL).split(b"\n"), maxlen=MAX_LOG_LINES + 1)
        text = b"".join(map(_plain, lines))[-MAX_LOG_BYTES:]
    return text.decode(errors="replace")


def _plain(line: bytes) -> bytes:
    """A line of the log without time, stream and tag."""
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        return b""
    return parts[3] + (b"\n" if parts[2] == b"F" else b"")


def _tail(path: Path, most: int) -> bytes:
    try:
        # The container may have put any file there, even a pipe that blocks.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        kind = os.fstat(descriptor)
        if not stat.S_ISREG(kind.st_mode):
            return b""
        return os.pread(descriptor, most, max(0, kind.st_size - most))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
