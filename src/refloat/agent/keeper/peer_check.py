# SPDX-License-Identifier: Apache-2.0
"""Finds the process at the other end of a socket, and refuses processes of containers.

The mode of a socket keeps other users out, but not a container that runs as the
agent's own user. All processes of a container descend from the keeper, because the
keeper adopts orphans. Agents and commands of the user do not descend from the keeper.
"""

import os
import socket
import sys
from collections.abc import Container

from refloat.agent.keeper.small_files import read_bytes

# A longer chain of parents does not occur.
_MAX_ANCESTORS = 1000

# A parent may end during the read, and its child gets another parent. So a chain counts
# when two reads agree; a container that forks all the time is refused.
_MAX_READS = 20

_SIZE = 4  # of each number in `struct ucred`


def credentials(end: socket.socket) -> tuple[int, int]:
    """Process id and user of the peer; the process id is 0 for another pid namespace."""
    ucred = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * _SIZE)
    pid, uid = (int.from_bytes(ucred[at : at + _SIZE], sys.byteorder) for at in (0, _SIZE))
    return pid, uid


def refusal(end: socket.socket, keepers: Container[int]) -> str:
    """The reason to refuse the process at the other end; empty to accept."""
    pid, uid = credentials(end)
    if uid not in (0, os.geteuid()):
        return f"process {pid} of user {uid} is not the owner's"
    chain: list[int] = []
    for _ in range(_MAX_READS):
        before, chain = chain, ancestors(pid)
        if not chain or chain == before:
            break
    else:
        chain = []
    if not chain:
        return f"process {pid} is not known on this machine"
    if any(each in keepers for each in chain):
        return f"process {pid} is a container's"
    return ""


def ancestors(pid: int) -> list[int]:
    """The process, its parent, and so on; empty if the process does not exist."""
    chain: list[int] = []
    while pid > 0 and len(chain) < _MAX_ANCESTORS:
        # The program's name comes before, in brackets, and may have any characters.
        fields = read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) < 2 or (not chain and fields[0] in (b"Z", b"X")):
            break
        chain.append(pid)
        pid = int(fields[1])
    return chain
