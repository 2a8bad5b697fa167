# SPDX-License-Identifier: Apache-2.0
"""Small files of /proc and /sys, read at once."""

import os

_MOST = 1 << 20


def read(path: str) -> str:
    """The text; empty if the file is gone."""
    return read_bytes(path).decode(errors="replace")


def read_bytes(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, _MOST):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""  # the process has ended during the read
    finally:
        os.close(descriptor)


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
