# SPDX-License-Identifier: Apache-2.0
"""How many pods may be made to fail, and when none at all.

A budget bounds the rate, exactly: in no window of its length are there more.
The hold bounds the blast: when much of a cluster is out of reach, it is rather
the one who looks that is cut off. Times are of a clock that never steps.
"""

from collections import deque
from collections.abc import Iterable

from refloat.policy.failure_recovery import Budget

# So few unreachable nodes never hold anything, whatever part of a cluster they
# are: as Kubernetes has it for a zone (behaviour C3.13).
FEW_NODES = 2

HELD = "FailureRecoveryHeld"
"""The reason of the event on a node whose pods have to wait, for whoever explains."""

# How long a spent slot is remembered without a budget: a budget that comes then must count pods
# whose end the watch does not show yet.
_UNSEEN_SECONDS = 60.0

# What adding up fractions of seconds leaves behind.
_ROUNDING = 1e-6


class Ledger:
    """When pods were made to fail, as far back as the budget looks, and who may be next.

    A slot is taken before a write and spent after it, at the time of the
    answer: so however long a write takes, no window has more than it may.
    """

    def __init__(self, budget: Budget | None, spent: Iterable[float] = ()) -> None:
        """`spent` is what another process has spent already, in any order."""
        self._budget = budget
        self._spent = deque(sorted(spent))
        self._taken = 0

    def change(self, budget: Budget | None, now: float, noted: Iterable[float]) -> None:
        """Go by another budget: what is spent stays spent, and slots that are taken stay so.

        `noted` is what can be seen of what was spent. It counts only as far as
        the old budget did not look back: of what is in its window more is known
        here, because some of it may be gone by now, or not to be seen yet.
        """
        since, seen = now - self.window, sorted(noted)
        recent = [each for each in self._spent if each > since]
        if self._budget is None:
            # Another process may have spent some of what can be seen; what cannot is known here.
            shown = [each for each in seen if each > since]
            recent = max(recent, shown, key=len)
        self._spent = deque(sorted([*(each for each in seen if each <= since), *recent]))
        self._budget = budget

    def add(self, spent: Iterable[float]) -> None:
        """Count what another process has spent meanwhile."""
        self._spent = deque(sorted([*self._spent, *spent]))

    def wait(self, now: float) -> float | None:
        """Seconds until there is a slot, 0 if now; none if all are taken by writes under way."""
        if self._budget is None:
            return 0.0
        window = self.window
        self._drop_old(now)
        over = len(self._spent) + self._taken - self._budget.max_pods
        if over < 0:
            return 0.0
        return self._spent[over] + window - now if over < len(self._spent) else None

    @property
    def window(self) -> float:
        """For how many seconds a spent slot is remembered."""
        return _UNSEEN_SECONDS if self._budget is None else self._budget.window.total_seconds()

    def _drop_old(self, now: float) -> None:
        while self._spent and self._spent[0] + self.window <= now + _ROUNDING:
            self._spent.popleft()

    def take(self, now: float) -> bool:
        """A slot, if there is one; it must be spent or given back."""
        if self.wait(now) != 0.0:
            return False
        self._taken += 1
        return True

    def spend(self, now: float) -> None:
        self._taken -= 1
        self._spent.append(now)
        self._drop_old(now)

    def give_back(self) -> None:
        self._taken -= 1


class Line:
    """The keys of pods that wait for the budget. Namespaces take turns, each in its own order.

    A user of one namespace can bind thousands of pods to a lost node and delete them. In one
    line for all, the pods of other namespaces would wait behind those.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, None]] = {}  # by namespace; the next one first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: str) -> None:
        keys = self._waiting.setdefault(_namespace(key), {})
        self._size += key not in keys
        keys[key] = None

    def discard(self, key: str) -> None:
        namespace = _namespace(key)
        keys = self._waiting.get(namespace, {})
        if key not in keys:
            return
        del keys[key]
        self._size -= 1
        if not keys:
            del self._waiting[namespace]

    def next(self) -> str:
        """Take the next one out; its namespace comes last then."""
        namespace, keys = next(iter(self._waiting.items()))
        key = next(iter(keys))
        del self._waiting[namespace], keys[key]
        self._size -= 1
        if keys:
            self._waiting[namespace] = keys
        return key

    def clear(self) -> None:
        self._waiting.clear()
        self._size = 0


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def holds(unreachable: int, nodes: int, above_percent: int) -> bool:
    """Whether too many nodes are unreachable for anything to be forced."""
    return unreachable > FEW_NODES and unreachable * 100 > nodes * above_percent
