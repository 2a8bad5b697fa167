# SPDX-License-Identifier: Apache-2.0
"""The budget's memory: which slots are used, and which pods wait for one.

The bound on the rate is exact: no window of the budget's length has more
failed pods than the budget allows. Times come from a clock that never steps.
"""

from collections import deque
from collections.abc import Iterable

from refloat.policy.recovery.failure_recovery import Budget

# How long the ledger remembers a spent slot without a budget. A budget that is set later must
# count pods whose failure the watch does not show yet.
_UNSEEN_SECONDS = 60.0

# The error of adding up fractions of seconds.
_ROUNDING = 1e-6


class BudgetLedger:
    """When Refloat marked pods Failed, as far back as the budget's window.

    A write takes a slot before it is sent and spends the slot when the answer
    arrives. So no window has more failed pods than allowed, however long a
    write takes.
    """

    def __init__(self, budget: Budget | None, slots: Iterable[float] = ()) -> None:
        """`slots`: when other processes spent slots, in any order."""
        self._budget = budget
        self._spent = deque(sorted(slots))
        self._taken = 0

    def change(self, budget: Budget | None, now: float, visible: Iterable[float]) -> None:
        """Use another budget: spent slots stay spent, and taken slots stay taken.

        `visible` are the spent slots that the pods show. They count only if
        they are older than the old window. Within this window the ledger knows
        more: some pods may be gone, and the watch may not show others yet.
        """
        since, times = now - self.window, sorted(visible)
        recent = [each for each in self._spent if each > since]
        if self._budget is None:
            # Another process may have spent some of the visible slots; only this process knows
            # the others.
            recent = max(recent, [each for each in times if each > since], key=len)
        self._spent = deque(sorted([*(each for each in times if each <= since), *recent]))
        self._budget = budget

    def add(self, slots: Iterable[float]) -> None:
        """Count slots that another process has spent since."""
        self._spent = deque(sorted([*self._spent, *slots]))

    def wait(self, now: float) -> float | None:
        """Seconds until a slot is free; None while writes under way have all slots."""
        if self._budget is None:
            return 0.0
        self._drop_old(now)
        over = len(self._spent) + self._taken - self._budget.max_pods
        if over < 0:
            return 0.0
        return self._spent[over] + self.window - now if over < len(self._spent) else None

    @property
    def window(self) -> float:
        """For how many seconds the ledger remembers a spent slot."""
        return _UNSEEN_SECONDS if self._budget is None else self._budget.window.total_seconds()

    def _drop_old(self, now: float) -> None:
        while self._spent and self._spent[0] + self.window <= now + _ROUNDING:
            self._spent.popleft()

    def take(self, now: float) -> bool:
        """Take a free slot, if any; the caller must spend the slot or give it back."""
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


class NamespaceQueue:
    """The keys of pods that wait for the budget. Namespaces take turns, each in its own order.

    A user of one namespace can bind thousands of pods to a lost node and delete them. In one
    queue for all, the pods of other namespaces would wait behind those.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, None]] = {}  # by namespace; the next one first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: str) -> None:
        keys = self._waiting.setdefault(key.partition("/")[0], {})
        self._size += key not in keys
        keys[key] = None

    def discard(self, key: str) -> None:
        namespace = key.partition("/")[0]
        keys = self._waiting.get(namespace, {})
        if key not in keys:
            return
        del keys[key]
        self._size -= 1
        if not keys:
            del self._waiting[namespace]

    def next(self) -> str:
        """Remove and return the next key; its namespace goes to the end."""
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
