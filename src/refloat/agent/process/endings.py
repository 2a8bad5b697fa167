# SPDX-License-Identifier: Apache-2.0
"""What a container says at its end: its termination message, else the end of its log."""

import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What a kubelet takes of the message, and of the log where that stands in for it.
MAX_MESSAGE = 4096
MAX_LOG_BYTES, MAX_LOG_LINES = 2048, 80

FALLBACK = "FallbackToLogsOnError"

# Enough of a log's end to hold the lines above with their times.
_TAIL = 64 * 1024


def message(memo: Mapping[str, Any] | None, exit_code: int) -> str:
    """Of a container that ended; `memo` says where its files are."""
    if memo is None:
        return ""
    text = _tail(Path(memo["message"]), MAX_MESSAGE).decode(errors="replace")
    if not text and exit_code != 0 and memo.get("policy") == FALLBACK:
        return _log_tail(Path(memo["log"]))
    return text


def _log_tail(log: Path) -> str:
    lines = deque(_tail(log, _TAIL).split(b"\n"), maxlen=MAX_LOG_LINES + 1)
    made = b"".join(map(_plain, lines))
    return made[-MAX_LOG_BYTES:].decode(errors="replace")


def _plain(line: bytes) -> bytes:
    """Without time, stream and tag."""
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        return b""
    return parts[3] + (b"\n" if parts[2] == b"F" else b"")


def _tail(path: Path, most: int) -> bytes:
    try:
        # Made by the container: it may have put anything there, even what blocks.
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
