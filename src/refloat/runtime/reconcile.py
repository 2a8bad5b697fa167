# SPDX-License-Identifier: Apache-2.0
"""What a controller promises, and what it may answer.

A reconcile is told a key and nothing about why: it looks at what is, reads
`clock.now()` once, and does what is missing. It says "again after" with a
`Result`, "not yet" with `errors.Retry`, "never like this" with
`errors.Terminal`; whatever else it raises is tried again with back-off. It
may be cancelled at every await, and is called again for the same key only
after it has ended.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, TypeVar

K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


@dataclass(frozen=True, slots=True)
class Result:
    """A reconcile that went well."""

    requeue_after: float | None = None  # seconds; None: when something changes


DONE = Result()


class Reconciler(Protocol[K_contra]):
    """One controller's work. It is made of a Client, a Clock, a Rand and settings."""

    async def reconcile(self, key: K_contra) -> Result: ...
