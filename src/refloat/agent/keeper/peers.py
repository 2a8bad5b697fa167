# SPDX-License-Identifier: Apache-2.0
"""Which process is at the other end of a socket, and whether a container started it.

The mode of a socket keeps other users out. It does not keep out a container that
runs as the agent's own user. But all processes of a container descend from the
keeper, whatever they do: an orphan becomes the keeper's child. Agents and commands
of the user do not.
"""

import os
import socket
import sys
from collections.abc import Container

from refloat.agent.keeper.files import read_bytes

# No chain of parents is so long on a machine that works.
_MAX_ANCESTORS = 1000

# A parent may end while the chain is read, and its child gets another. A chain counts
# when it reads the same twice; a container that forks all the time is refused.
_MAX_READS = 20

_SIZE = 4  # of each number in `struct ucred`


def credentials(end: socket.socket) -> tuple[int, int]:
    """The process and the user that connected; the process is 0 if it is in another namespace."""
    told = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * _SIZE)
    pid, uid = (int.from_bytes(told[at : at + _SIZE], sys.byteorder) for at in (0, _SIZE))
    return pid, uid


def refusal(end: socket.socket, keepers: Container[int]) -> str:
    """Why the process at the other end must not be heard; empty if it may."""
    pid, uid = credentials(end)
    if uid not in (0, os.geteuid()):
        return f"process {pid} of user {uid} is not the owner's"
    chain = _stable_ancestors(pid)
    if chain is None:
        return f"process {pid} is not known on this machine"
    if any(each in keepers for each in chain):
        return f"process {pid} is a container's"
    return ""


def _stable_ancestors(pid: int) -> list[int] | None:
    before: list[int] = []
    for _ in range(_MAX_READS):
        chain = ancestors(pid)
        if not chain:
            return None
        if chain == before:
            return chain
        before = chain
    return None


def ancestors(pid: int) -> list[int]:
    """The process, its parent, and so on; empty if there is no such process."""
    chain: list[int] = []
    while pid > 0 and len(chain) < _MAX_ANCESTORS:
        # The program's name comes before, in brackets, and may hold anything.
        fields = read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) < 2 or (not chain and fields[0] in (b"Z", b"X")):
            break
        chain.append(pid)
        pid = int(fields[1])
    return chain
