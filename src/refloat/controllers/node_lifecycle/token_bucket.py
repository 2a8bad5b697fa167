# SPDX-License-Identifier: Apache-2.0
"""How many nodes of a zone may be tainted per second, one at a time."""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """A bucket of one token. It stores the time of the next token, so it needs no timer."""

    rate: float
    """Tokens per second."""

    next_at: float = 0.0

    def take(self, now: float) -> bool:
        if self.rate <= 0 or now < self.next_at - 1e-6:
            return False
        self.next_at = now + 1 / self.rate
        return True

    def wait(self, now: float) -> float | None:
        """Seconds until the next token; None while the rate is 0."""
        return None if self.rate <= 0 else max(0.0, self.next_at - now)

    def change(self, rate: float, now: float) -> None:
        """Use another rate from now on; a wait that is under way starts again."""
        if rate == self.rate:
            return
        has_token = self.take(now)
        self.rate = rate
        self.next_at = now if has_token or rate <= 0 else now + 1 / rate
