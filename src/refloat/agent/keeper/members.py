# SPDX-License-Identifier: Apache-2.0
"""Which processes belong to a container, and what they use, where no cgroup says so.

Whatever loses its parent becomes a child of the keeper. So all that belongs
to a container descends from its first process or is such an orphan, which is
known by its session, or by the mark in its environment. An orphan that hides
both belongs to nobody, and is ended with the next container that ends.
"""

import os
from collections.abc import Container, Iterable

from refloat.agent.keeper.files import read, read_bytes
from refloat.agent.keeper.launch import MARKER

_MARK = MARKER.encode() + b"="


class Processes:
    """All processes of the machine at one moment: whose child each is, and its session."""

    def __init__(self) -> None:
        self.children: dict[int, list[int]] = {}
        self._session: dict[int, int] = {}
        self._marks: dict[int, str] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                self._add(int(name))

    def _add(self, pid: int) -> None:
        # The program's name comes before, in brackets, and may hold anything.
        fields = read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) < 4 or fields[0] in (b"Z", b"X"):
            return
        self._session[pid] = int(fields[3])
        self.children.setdefault(int(fields[1]), []).append(pid)

    def below(self, roots: Iterable[int]) -> list[int]:
        """The roots that live, and all that descend from them."""
        found: dict[int, None] = {}
        waiting = list(roots)
        while waiting:
            pid = waiting.pop()
            if pid in self._session and pid not in found:
                found[pid] = None
                waiting += self.children.get(pid, ())
        return list(found)

    def members(self, container: str, leaders: Container[int]) -> list[int]:
        """Those of one container, of which the sessions are known."""
        orphans = self.children.get(os.getpid(), ())
        return self.below(pid for pid in orphans if self._is_of(pid, container, leaders))

    def _is_of(self, pid: int, container: str, leaders: Container[int]) -> bool:
        # The mark comes first: the number of a session that is over can be another's.
        said = self._mark(pid)
        return said == container if said else self._session[pid] in leaders

    def _mark(self, pid: int) -> str:
        if pid not in self._marks:
            self._marks[pid] = mark(pid)
        return self._marks[pid]

    def hidden(self, known: Container[str], leaders: Container[int]) -> list[int]:
        """Orphans that belong to no container that lives."""
        orphans = self.children.get(os.getpid(), ())
        return self.below(
            pid
            for pid in orphans
            if self._session[pid] not in leaders and self._mark(pid) not in known
        )


def own_children() -> list[int] | None:
    """The keeper's, without a look at all others; None where the kernel does not tell."""
    pid = os.getpid()
    path = f"/proc/{pid}/task/{pid}/children"
    return [int(each) for each in read(path).split()] if os.path.exists(path) else None


def mark(pid: int) -> str:
    """Of which container a process says it is; empty when it does not."""
    for each in read_bytes(f"/proc/{pid}/environ").split(b"\0"):
        if each.startswith(_MARK):
            return each[len(_MARK) :].decode(errors="replace")
    return ""


def marked(prefix: str) -> list[int]:
    """All processes whose mark begins so, wherever they are."""
    found = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in found if mark(pid).startswith(prefix)]


def threads_of(uid: int) -> int:
    """How many threads of a user there are now."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # it has just ended
    return total


def memory(pids: Iterable[int], limit: int | None = None) -> int:
    """Bytes that could not be reclaimed; shared ones count once where that matters.

    What the kernel has at hand counts shared pages for each who has them, so
    it is never too little. Only when that is over the limit are pages looked
    at one by one, which takes milliseconds.
    """
    pids = list(pids)
    total = sum(_resident(pid) for pid in pids)
    if limit is None or total <= limit:
        return total
    return sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    total = 0
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) * 1024
    return total


def _proportional(pid: int) -> int:
    total = 0
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            total += int(line.split()[1]) * 1024
    return total
