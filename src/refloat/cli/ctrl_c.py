# SPDX-License-Identifier: Apache-2.0
"""The handler of Ctrl-C while a command is loaded, and after the command has ended."""

import contextlib
import os
import signal
from collections.abc import Iterator

EXIT_CODE = 128 + signal.SIGINT  # as shells report the signal


@contextlib.contextmanager
def quiet_exit() -> Iterator[None]:
    """Ctrl-C ends the process at once, without a traceback: there is nothing to clean up yet.

    A process that ignores Ctrl-C, or has another handler, keeps that.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    _set_handler()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def exit_quietly() -> None:
    """From now on Ctrl-C ends the process at once: the command has ended, and Python shuts down."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _set_handler()


def _set_handler() -> None:
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
