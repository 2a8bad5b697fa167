# SPDX-License-Identifier: Apache-2.0
"""What a process that serves many for long asks of its system and interpreter.

Both are settings of the whole process, so only a command makes them, never a
component that a test or a simulation may start by the dozen.
"""

import contextlib
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


def settle() -> None:
    """Call it when everything is loaded: what there is now is no garbage.

    A full collection then looks only at what came later. Without this, one
    holds the event loop for some 20 ms only to find all modules still there.
    """
    gc.collect()
    gc.freeze()
