# SPDX-License-Identifier: Apache-2.0
"""What a reconcile can raise to say what comes next, and how the runtime ends.

RefloatError
├── UsageError
│   └── BadElection     times that cannot keep two leaders apart
└── RuntimeFailure
    ├── Retry           a reconcile's: not yet; try again after so many seconds
    ├── Terminal        a reconcile's: no retry will help; wait for a change
    ├── ShutDown        the queue gives out nothing any more
    ├── LeadershipLost  somebody else may lead: nothing may be written, the process must end
    └── SyncTimeout     the caches were not filled in time

Whatever else a reconcile raises is tried again with back-off.
"""

from refloat.base.errors import RefloatError, UsageError


class BadElection(UsageError):
    pass


class RuntimeFailure(RefloatError):
    """The root of this package's errors."""


class Retry(RuntimeFailure):
    """An expected "not yet". Without `after` the key's own back-off decides."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Terminal(RuntimeFailure):
    pass


class ShutDown(RuntimeFailure):
    pass


class LeadershipLost(RuntimeFailure):
    pass


class SyncTimeout(RuntimeFailure):
    pass
