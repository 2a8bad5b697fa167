# SPDX-License-Identifier: Apache-2.0
"""A keeper kills what is left of a pod whose deadline has passed until nothing is left."""

import socket
from collections.abc import Callable
from typing import Any

from refloat.agent.keeper.server import KeeperServer


class Survivor:
    """A container that outlives some kills, as a process that hangs in the kernel."""

    def __init__(self, kills: int) -> None:
        self.left = kills
        self.kills = 0

    @property
    def has_ended(self) -> bool:
        return self.left <= 0

    def kill(self, reason: str, message: str) -> None:
        self.kills += 1
        self.left -= 1


class Loop:
    """Timers that a test lets pass."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], object]] = []

    def watch(self, *_: Any) -> None:
        """Nothing connects."""

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        assert seconds > 0
        self.timers.append(callback)


def test_a_fenced_pod_is_killed_again_until_nothing_of_it_lives() -> None:
    loop, survivor = Loop(), Survivor(kills=3)
    listener, _other = socket.socketpair()
    with listener, _other:
        keeper = KeeperServer(loop, None, listener)  # type: ignore[arg-type]
        keeper._attempts["uid"] = {"main": [survivor]}  # type: ignore[list-item]
        keeper._fence("uid")
        while loop.timers:
            loop.timers.pop(0)()
    assert survivor.kills == 3
