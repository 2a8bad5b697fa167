# SPDX-License-Identifier: Apache-2.0
"""Fair shares of scarce things: places for requests, bytes, turns of the loop.

As long as there is enough, requests do not wait and the accounting costs next to
nothing. Otherwise a free share goes to the user that holds the least. So a user
with a thousand requests delays its own requests and not those of others.
"""

import asyncio
from collections import deque
from dataclasses import dataclass


class Full(Exception):
    """Too many requests of this user already wait."""


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
        """Take the amount if it is free and no other request waits for it."""
        if not self._fits(user, amount):
            return False
        if user in self._waiting or any(
            self._held.get(other, 0) + queue[0].amount <= self._per_user
            for other, queue in self._waiting.items()
        ):
            return False  # a request that came earlier can take it
        self._add(user, amount)
        return True

    async def take(self, user: str, amount: int = 1) -> None:
        """Take the amount, or wait until it is free; raises `Full`."""
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
        """Give an amount back."""
        self._add(user, -amount)
        if self._waiting:
            self._grant()

    def _fits(self, user: str, amount: int) -> bool:
        share = self._held.get(user, 0)
        return self.used + amount <= self._total and share + amount <= self._per_user

    def _add(self, user: str, amount: int) -> None:
        self.used += amount
        share = self._held.get(user, 0) + amount
        if share:
            self._held[user] = share
        else:
            self._held.pop(user, None)

    def _grant(self) -> None:
        """Grant what is free to waiting requests, each time to the user that holds the least."""
        while True:
            for user in sorted(self._waiting, key=lambda each: self._held.get(each, 0)):
                queue = self._waiting[user]
                while queue and queue[0].granted.done():  # its request was cancelled
                    queue.popleft()
                if not queue:
                    del self._waiting[user]
                elif self._fits(user, queue[0].amount):
                    waiter = queue.popleft()
                    self._add(user, waiter.amount)
                    waiter.granted.set_result(None)
                    del self._waiting[user]
                    if queue:
                        self._waiting[user] = queue  # behind users that hold as little
                    break
            else:
                return

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
    """Bounds how many requests begin in one turn of the loop; more wait for the next turn.

    Otherwise a thousand requests that come at once would be one turn, and a later
    request would wait for all of them.
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
        """Begin a turn of the loop: waiting users alternate, one request each."""
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
