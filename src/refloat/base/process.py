# SPDX-License-Identifier: Apache-2.0
"""System and interpreter settings for a server process.

They apply to the whole process, so only commands use them, and never a component
that a test or a simulation may start several times.
"""

import contextlib
import ctypes
import gc
import resource


def allow_many_files() -> int:
    """Raise the soft limit of open files to the hard limit; returns the new limit.

    Every connection is a file, and many systems start a process with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse their own maximum
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


# Parameters of the C library's allocator (mallopt), and their values.
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
_LARGE_BLOCK = 128 * 1024


def return_memory() -> None:
    """Make the C library return free memory to the system.

    By default each thread has an arena of its own, and after a first large block such
    blocks come from the heap, where a small block above them prevents their return.
    After some large requests, a server would stay large.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_TRIM_THRESHOLD, _LARGE_BLOCK)


def trim_memory() -> None:
    """Return all free memory to the system now; takes some milliseconds."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def settle() -> None:
    """Exclude all current objects from garbage collection, after the start.

    Otherwise each full collection visits all modules, and holds the event loop for some
    20 ms.
    """
    gc.collect()
    gc.freeze()
