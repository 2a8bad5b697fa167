# SPDX-License-Identifier: Apache-2.0
"""The processes of a container and their memory, for machines without cgroups.

A process that loses its parent becomes a child of the keeper. So a process of a
container descends from the container's first process, or from such an orphan. The
session of an orphan, or the mark in its environment, names the container. The keeper
kills an orphan that hides both together with the next container that ends.
"""

import os
from collections.abc import Container, Iterable

from refloat.agent.keeper.launch import MARKER
from refloat.agent.keeper.small_files import read, read_bytes

_MARK = MARKER.encode() + b"="


class ProcessTable:
    """All processes of the machine at one moment, with their parents and sessions."""

    def __init__(self) -> None:
        self.children: dict[int, list[int]] = {}
        self._session: dict[int, int] = {}
        self._marks: dict[int, str] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            # The program's name comes before, in brackets, and may have any characters.
            fields = read_bytes(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) >= 4 and fields[0] not in (b"Z", b"X"):
                self._session[int(name)] = int(fields[3])
                self.children.setdefault(int(fields[1]), []).append(int(name))

    def below(self, roots: Iterable[int]) -> list[int]:
        """The roots that live, and their descendants."""
        pids: dict[int, None] = {}
        waiting = list(roots)
        while waiting:
            pid = waiting.pop()
            if pid in self._session and pid not in pids:
                pids[pid] = None
                waiting += self.children.get(pid, ())
        return list(pids)

    def members(self, container: str, leaders: Container[int]) -> list[int]:
        """The processes of one container; `leaders` are its sessions."""
        orphans = []
        for pid in self.children.get(os.getpid(), ()):
            # The mark comes first, because the number of an old session can be in use again.
            container_id = self._mark(pid)
            if container_id == container if container_id else self._session[pid] in leaders:
                orphans.append(pid)
        return self.below(orphans)

    def _mark(self, pid: int) -> str:
        if pid not in self._marks:
            self._marks[pid] = mark(pid)
        return self._marks[pid]

    def strays(self, containers: Container[str], leaders: Container[int]) -> list[int]:
        """Orphans that belong to none of these containers, and their descendants."""
        orphans = self.children.get(os.getpid(), ())
        return self.below(
            pid
            for pid in orphans
            if self._session[pid] not in leaders and self._mark(pid) not in containers
        )


def own_children() -> list[int] | None:
    """The keeper's children; None if the kernel does not list them."""
    pid = os.getpid()
    path = f"/proc/{pid}/task/{pid}/children"
    return [int(each) for each in read(path).split()] if os.path.exists(path) else None


def mark(pid: int) -> str:
    """The container id in the environment of a process; empty without one."""
    for each in read_bytes(f"/proc/{pid}/environ").split(b"\0"):
        if each.startswith(_MARK):
            return each[len(_MARK) :].decode(errors="replace")
    return ""


def find_marked(prefix: str) -> list[int]:
    """All processes of the machine whose mark begins with a prefix."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if mark(pid).startswith(prefix)]


def threads_of(uid: int) -> int:
    """The number of threads of a user."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # the process has ended meanwhile
    return total


def memory(pids: Iterable[int], limit: int | None = None) -> int:
    """Bytes that the kernel cannot reclaim.

    The quick numbers of the kernel count a shared page for each process, so they are
    never too low. Above the limit the kernel walks the pages, which takes milliseconds,
    and counts shared pages once.
    """
    pids = list(pids)
    total = _sum_lines(pids, "status", ("RssAnon:", "RssShmem:"))
    if limit is None or total <= limit:
        return total
    return _sum_lines(pids, "smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _sum_lines(pids: list[int], file: str, names: tuple[str, ...]) -> int:
    return sum(
        int(line.split()[1]) * 1024
        for pid in pids
        for line in read(f"/proc/{pid}/{file}").splitlines()
        if line.startswith(names)
    )
