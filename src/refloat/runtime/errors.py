# SPDX-License-Identifier: Apache-2.0
"""The errors with which a reconcile decides what comes next, and of the runtime's end.

RefloatError
├── UsageError
│   └── BadElection     times that cannot keep two leaders apart
└── RuntimeFailure
    ├── Retry           a reconcile's: not yet; try again after so many seconds
    ├── Terminal        a reconcile's: no retry will help; wait for a change
    ├── ShutDown        the queue has no more keys
    ├── LeadershipLost  another process may lead: this one must not write, and must end
    └── SyncTimeout     the caches were not filled in time

After any other error, the controller tries again with back-off.
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
