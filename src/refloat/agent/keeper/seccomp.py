# SPDX-License-Identifier: Apache-2.0
"""The runtime's default filter of system calls, for `seccompProfile: RuntimeDefault`.

Kubernetes leaves the profile to the runtime. This profile refuses, with EPERM, the calls
that containerd refuses to a container without capabilities: mounts, namespaces, kernel
modules, kernel keys, clocks, swap, tracing of the kernel, io_uring. The profile allows
all others. It refuses all calls of another architecture, such as those of 32-bit
programs, because their numbers differ.
"""

import ctypes
import errno
import os

from refloat.agent.keeper import syscalls

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

# Of a program for the kernel's filter: load a word, jump, mask, return.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in `struct seccomp_data`

# All flags of clone that make a namespace.
_NAMESPACES = 0x7E020000

# Numbers from here on are those of the x32 architecture.
_X32 = 0x40000000

# Since Linux 5.0 a new call has one number on all architectures: io_uring, open_tree,
# move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, quotactl_fd.
_COMMON = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443)
_CLONE3 = 435

_X86_64 = {
    "acct": 163,
    "add_key": 248,
    "bpf": 321,
    "chroot": 161,
    "clock_adjtime": 305,
    "clock_settime": 227,
    "delete_module": 176,
    "finit_module": 313,
    "init_module": 175,
    "ioperm": 173,
    "iopl": 172,
    "kcmp": 312,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "keyctl": 250,
    "lookup_dcookie": 212,
    "mount": 165,
    "open_by_handle_at": 304,
    "perf_event_open": 298,
    "pivot_root": 155,
    "quotactl": 179,
    "reboot": 169,
    "request_key": 249,
    "setdomainname": 171,
    "sethostname": 170,
    "setns": 308,
    "settimeofday": 164,
    "swapoff": 168,
    "swapon": 167,
    "syslog": 103,
    "umount2": 166,
    "unshare": 272,
    "userfaultfd": 323,
    "vhangup": 153,
}
_AARCH64 = {
    "acct": 89,
    "add_key": 217,
    "bpf": 280,
    "chroot": 51,
    "clock_adjtime": 266,
    "clock_settime": 112,
    "delete_module": 106,
    "finit_module": 273,
    "init_module": 105,
    "kcmp": 272,
    "kexec_file_load": 294,
    "kexec_load": 104,
    "keyctl": 219,
    "lookup_dcookie": 18,
    "mount": 40,
    "open_by_handle_at": 265,
    "perf_event_open": 241,
    "pivot_root": 41,
    "quotactl": 60,
    "reboot": 142,
    "request_key": 218,
    "setdomainname": 162,
    "sethostname": 161,
    "setns": 268,
    "settimeofday": 170,
    "swapoff": 225,
    "swapon": 224,
    "syslog": 116,
    "umount2": 39,
    "unshare": 97,
    "userfaultfd": 282,
    "vhangup": 58,
}

# By machine: the kernel's name of the architecture, the numbers, and that of clone.
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64, 56),
    "aarch64": (0xC00000B7, _AARCH64, 220),
}


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


def is_available() -> bool:
    """Whether the kernel has filters, and this module knows the machine's numbers."""
    return os.uname().machine in _MACHINES and os.path.exists("/proc/sys/kernel/seccomp")


def install() -> None:
    """Filter this process and all its children, for ever; needs NoNewPrivs."""
    steps = _steps(*_MACHINES[os.uname().machine])
    program = _Program(len(steps), (_Step * len(steps))(*(_Step(*each) for each in steps)))
    syscalls.set_filter(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))


def _steps(architecture: int, numbers: dict[str, int], clone: int) -> list[tuple[int, ...]]:
    refuse = (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    unknown = (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        refuse,
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        refuse,
        # The C library then uses clone, whose flags a filter can check.
        (_JUMP_EQUAL, 0, 1, _CLONE3),
        unknown,
    ]
    for number in (*sorted(numbers.values()), *_COMMON):
        steps += [(_JUMP_EQUAL, 0, 1, number), refuse]
    return [
        *steps,
        (_JUMP_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _NAMESPACES),
        refuse,
        (_RETURN, 0, 0, _ALLOW),
    ]
