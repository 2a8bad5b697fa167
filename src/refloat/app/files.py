# SPDX-License-Identifier: Apache-2.0
"""Small files that must be whole or absent, and for their owner's eyes only."""

import os
from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in one step: a crash leaves the old one or the new one."""
    beside = path.with_name(f".{path.name}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
