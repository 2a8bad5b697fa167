# SPDX-License-Identifier: Apache-2.0
"""The system calls that Python 3.11 does not have."""

import ctypes
import os
import signal
import time

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
PR_CAPBSET_DROP = 24

_MAX_CAPABILITIES = 64  # the bits of a capability set

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_MOVE, MS_PRIVATE, MS_SLAVE = 2, 4, 8, 8192, 1 << 18, 1 << 19

# These two system calls have one number on all of Linux' architectures but alpha.
_OPENAT2, _MOUNT_SETATTR = 437, 442

RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 1, 2, 4, 8

MOUNT_ATTR_RDONLY = 1
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000

BOOTTIME = time.CLOCK_BOOTTIME
"""This clock runs on while the machine is suspended, so deadlines pass then too."""

LAST_MOMENT = 1e10
"""The latest time of a timer: the kernel takes a later one for a time in the past."""

_TFD_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
_TFD_TIMER_ABSTIME = 1


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def _checked(answer: int, path: str | None = None) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return answer


def now() -> float:
    return time.clock_gettime(BOOTTIME)


def prctl(option: int, argument: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))


def drop_capabilities() -> None:
    """Drop all capabilities that this process and its children could gain by an exec."""
    for number in range(_MAX_CAPABILITIES):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            return  # no right to drop any, or the kernel has no further capabilities


def set_filter(option: int, mode: int, program: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(mode), ctypes.c_void_p(program), 0, 0))


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent ends."""
    prctl(PR_SET_PDEATHSIG, by)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags))


def setns(descriptor: int, flags: int) -> None:
    _checked(_libc.setns(descriptor, flags))


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    answer = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _checked(answer, target)


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags, 0, resolve)
    name = os.fsencode(path)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    return _checked(_libc.syscall(_OPENAT2, folder, name, ctypes.byref(how), size), path)


def set_read_only(mount: int, *, value: bool, recursive: bool = False) -> None:
    """Change the mount whose root a descriptor names; `recursive`: and all mounts below."""
    change = (MOUNT_ATTR_RDONLY, 0) if value else (0, MOUNT_ATTR_RDONLY)
    attributes = _MountAttributes(*change, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _checked(_libc.syscall(_MOUNT_SETATTR, mount, b"", flags, ctypes.byref(attributes), size))


def timer() -> int:
    """A descriptor that becomes readable at the time that `arm` sets."""
    return _checked(_libc.timerfd_create(BOOTTIME, _TFD_CLOEXEC_NONBLOCK))


def arm(descriptor: int, when: float | None) -> None:
    """Set the timer to a time of `now()`; None: never."""
    whole = 0 if when is None else int(when)
    rest = 0 if when is None else int((when - whole) * 1e9)
    spec = _TimerSpec(0, 0, whole, rest or (1 if when is not None else 0))
    _checked(_libc.timerfd_settime(descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None))
