# SPDX-License-Identifier: Apache-2.0
"""The one source of chance, and of the ids made from it.

A `Rand` with a seed repeats itself exactly: for the simulator and tests. One
without a seed asks the operating system each time. Its ids (of objects,
requests, agents, candidates for a lease) can then not be foretold from ids
that were seen before, as those of a seeded generator can. Tokens never repeat
themselves (see `token`).
"""

import random
import secrets
import uuid
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# No vowels and no look-alikes, so that no word and no misreading comes out:
# the letters that Kubernetes draws its name suffixes from.
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

SUFFIX_LENGTH = 5


class Rand:
    """A source of chance: the system's, or one that repeats itself."""

    def __init__(self, seed: int | None = None) -> None:
        # 600 ids of the seeded one tell all that follow: it is for simulations alone.
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
        """`seconds` raised by up to `fraction` of itself."""
        return seconds * (1 + fraction * self._random.random())

    def suffix(self) -> str:
        """Five characters for a generated name."""
        return "".join(self._random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))

    def uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def token() -> str:
    """A secret that nobody can guess, never repeatable."""
    return secrets.token_urlsafe(32)
