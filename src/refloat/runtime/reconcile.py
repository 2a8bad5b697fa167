# SPDX-License-Identifier: Apache-2.0
"""The interface of a reconciler, and its results.

A reconcile gets a key and no reason: it reads the present state, reads
`clock.now()` once, and makes the missing changes. A `Result` means "again
after", `errors.Retry` means "not yet", `errors.Terminal` means "never in this
state"; after any other error the controller tries again with back-off. A
reconcile may be cancelled at every await. Two reconciles of one key never
overlap.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, TypeVar

K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful reconcile."""

    requeue_after: float | None = None  # seconds; None: when something changes


DONE = Result()


class Reconciler(Protocol[K_contra]):
    """The work of one controller."""

    async def reconcile(self, key: K_contra) -> Result: ...
