# SPDX-License-Identifier: Apache-2.0
"""What a process that serves many for long asks of its system and interpreter.

All are settings of the whole process, so only a command makes them, never a
component that a test or a simulation may start by the dozen.
"""

import contextlib
import ctypes
import gc
import resource


def allow_many_files() -> int:
    """Raise the soft limit of open files to the hard one; what is it now?

    Every connection is a file, and many systems start a process with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse their own maximum
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


# Parameters of the C library's allocator (mallopt), and what they are set to.
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
_LARGE_BLOCK = 128 * 1024


def return_memory() -> None:
    """Have the C library give memory back to the system once it is free.

    By default each thread has an arena of its own, and after a first large
    block such blocks come from the heap, where one small block above them keeps
    them all. A server that saw some large requests would stay large.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_TRIM_THRESHOLD, _LARGE_BLOCK)


def trim_memory() -> None:
    """Give back to the system what is free now, wherever it lies; takes some milliseconds."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def settle() -> None:
    """Call it when everything is loaded: what there is now is no garbage.

    A full collection then looks only at what came later. Without this, one
    holds the event loop for some 20 ms only to find all modules still there.
    """
    gc.collect()
    gc.freeze()
