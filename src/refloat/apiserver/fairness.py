# SPDX-License-Identifier: Apache-2.0
"""How users share what there is not enough of: places, bytes, turns of the loop.

Nobody waits as long as there is enough, and then these cost next to nothing.
When there is not, what comes free goes to the user that holds the least, so
that one with a thousand requests delays its own and not another's.
"""

import asyncio
from collections import deque
from dataclasses import dataclass


class Full(Exception):
    """Too many requests of this user wait already."""


@dataclass(slots=True, eq=False)
class _Waiter:
    amount: int
    granted: "asyncio.Future[None]"


class FairShare:
    """A number of places, or of bytes, that users take and give back."""

    def __init__(self, total: int, *, per_user: int, waiting: int) -> None:
        """`per_user` is the most that one user may hold, `waiting` how many of it may wait."""
        self._total = total
        self._per_user = per_user
        self._most_waiting = waiting
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[_Waiter]] = {}
        self.used = 0

    def try_take(self, user: str, amount: int = 1) -> bool:
        """Take it if it is there and no other request waits for it."""
        if not self._fits(user, amount) or (self._waiting and self._is_awaited(user)):
            return False
        self._note(user, amount)
        return True

    async def take(self, user: str, amount: int = 1) -> None:
        """Take it, or wait until it is there; raises `Full`."""
        if self.try_take(user, amount):
            return
        queue = self._waiting.setdefault(user, deque())
        if len(queue) >= self._most_waiting or amount > min(self._total, self._per_user):
            if not queue:
                del self._waiting[user]
            raise Full
        waiter = _Waiter(amount, asyncio.get_running_loop().create_future())
        queue.append(waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            self._leave(user, waiter)
            raise

    def give(self, user: str, amount: int = 1) -> None:
        """Give back what was taken."""
        self._note(user, -amount)
        if self._waiting:
            self._grant()

    def _fits(self, user: str, amount: int) -> bool:
        held = self._held.get(user, 0)
        return self.used + amount <= self._total and held + amount <= self._per_user

    def _is_awaited(self, user: str) -> bool:
        """Does a request wait that comes before this user's?"""
        return user in self._waiting or any(
            self._held.get(each, 0) + queue[0].amount <= self._per_user
            for each, queue in self._waiting.items()
        )

    def _note(self, user: str, amount: int) -> None:
        self.used += amount
        held = self._held.get(user, 0) + amount
        if held:
            self._held[user] = held
        else:
            self._held.pop(user, None)

    def _grant(self) -> None:
        """Hand out what is there, one after the other to the user that holds the least."""
        while any(self._grant_one(user) for user in self._by_need()):
            pass

    def _by_need(self) -> list[str]:
        return sorted(self._waiting, key=lambda each: self._held.get(each, 0))

    def _grant_one(self, user: str) -> bool:
        queue = self._waiting[user]
        while queue and queue[0].granted.done():  # it has left, and does not know yet
            queue.popleft()
        granted = bool(queue) and self._fits(user, queue[0].amount)
        if granted:
            waiter = queue.popleft()
            self._note(user, waiter.amount)
            waiter.granted.set_result(None)
        if not queue:
            del self._waiting[user]
        elif granted:
            self._waiting[user] = self._waiting.pop(user)  # behind those that hold as little
        return granted

    def _leave(self, user: str, waiter: _Waiter) -> None:
        if waiter.granted.done() and not waiter.granted.cancelled():
            self.give(user, waiter.amount)
            return
        queue = self._waiting.get(user)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[user]
        self._grant()


class Turns:
    """So many requests begin in one turn of the loop; more wait for the next one.

    Otherwise a thousand requests that came at once would be one turn, and
    whatever came after them would wait for all of it.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._begun = 0
        self._scheduled = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, user: str) -> None:
        if not self._scheduled:
            self._schedule()
        if self._begun < self._per_turn and not self._waiting:
            self._begun += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        await turn

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A new turn of the loop: each user that waits begins one request after the other."""
        self._begun = 0
        self._scheduled = False
        if not self._waiting:
            return
        while self._waiting and self._begun < self._per_turn:
            user = next(iter(self._waiting))
            queue = self._waiting.pop(user)
            turn = queue.popleft()
            if queue:
                self._waiting[user] = queue  # behind the others
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        self._schedule()
