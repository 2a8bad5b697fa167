# SPDX-License-Identifier: Apache-2.0
"""What a call to a cluster can come back with instead of an answer.

RefloatError
├── UsageError
│   └── KubeconfigError the files that say where the cluster is are wrong or missing
└── ClientError         carries code, reason, message, causes, retry_after
    ├── NotFound        404: it is gone; often as good as done
    ├── AlreadyExists   409: somebody was faster; read it
    ├── Conflict        409: it changed under us; read again and decide anew
    ├── Invalid         422, 400: our mistake; the causes name the fields
    ├── Forbidden       403: a right is missing; retrying does not help
    ├── Unauthorized    401: the credentials are not accepted
    ├── Expired         410: the resourceVersion is too old; list anew
    ├── TooManyRequests 429: wait for `retry_after` seconds
    ├── Timeout         no answer in time, or 504: it may have happened
    └── Unavailable     5xx or a broken connection: it may have happened
        └── Unreachable no connection: it did not happen
"""

from refloat.base.errors import RefloatError, UsageError


class KubeconfigError(UsageError):
    """Raised before the first call; its text names the file and the field."""


class ClientError(RefloatError):
    """The root of this package's errors."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[tuple[str, str, str], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes  # (type, field, message)
        self.retry_after = retry_after


class NotFound(ClientError):
    pass


class AlreadyExists(ClientError):
    pass


class Conflict(ClientError):
    pass


class Invalid(ClientError):
    pass


class Forbidden(ClientError):
    pass


class Unauthorized(ClientError):
    pass


class Expired(ClientError):
    pass


class TooManyRequests(ClientError):
    pass


class Timeout(ClientError):
    pass


class Unavailable(ClientError):
    pass


class Unreachable(Unavailable):
    pass
