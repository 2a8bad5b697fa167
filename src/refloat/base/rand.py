# SPDX-License-Identifier: Apache-2.0
"""The one source of chance, and of ids.

A `Rand` with a seed repeats itself exactly, for the simulator and tests. A `Rand`
without a seed reads the operating system's generator, so that earlier ids (of
objects, requests, agents, candidates for a lease) do not reveal later ones, as those
of a seeded generator do. Tokens never repeat (see `token`).
"""

import random
import secrets
import uuid
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# Kubernetes' letters for name suffixes: no vowels and no look-alikes, so that there are
# no words and no misreadings.
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

SUFFIX_LENGTH = 5


class Rand:
    """Random numbers and ids, from the system or from a seed."""

    def __init__(self, seed: int | None = None) -> None:
        # 600 ids of a seeded generator reveal all later ones: use seeds only in simulations.
        self._random = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311

    def random(self) -> float:
        return self._random.random()

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def choice(self, items: Sequence[T]) -> T:
        return self._random.choice(items)

    def shuffle(self, items: list[T]) -> None:
        self._random.shuffle(items)

    def jitter(self, seconds: float, fraction: float) -> float:
        """`seconds`, plus a random part of up to `fraction` of them."""
        return seconds * (1 + fraction * self._random.random())

    def suffix(self) -> str:
        """Five characters for a generated name."""
        return "".join(self._random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))

    def uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def token() -> str:
    """A new secret from the system's generator."""
    return secrets.token_urlsafe(32)
