# SPDX-License-Identifier: Apache-2.0
"""What Ctrl-C does while a command is being loaded."""

import contextlib
import os
import signal
from collections.abc import Iterator

EXIT_CODE = 128 + signal.SIGINT  # as a shell reports it


@contextlib.contextmanager
def that_end() -> Iterator[None]:
    """Ctrl-C ends the process at once and quietly: nothing has begun that must be undone.

    Where the process ignores Ctrl-C, or has a handler of its own, that stays.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
