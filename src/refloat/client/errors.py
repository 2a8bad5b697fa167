# SPDX-License-Identifier: Apache-2.0
"""The errors of calls to a cluster.

RefloatError
├── UsageError
│   └── KubeconfigError a kubeconfig file is missing or wrong
└── ClientError         carries code, reason, message, causes, retry_after
    ├── NotFound        404: the object is gone; often as good as done
    ├── AlreadyExists   409: another process was faster; read the object
    ├── Conflict        409: the object has changed; read again and decide anew
    ├── Invalid         422, 400: our mistake; the causes name the fields
    ├── Forbidden       403: a right is missing; retrying does not help
    ├── Unauthorized    401: the server refuses the credentials
    ├── Expired         410: the resourceVersion is too old; list anew
    ├── TooManyRequests 429: wait for `retry_after` seconds
    ├── Timeout         no answer in time, or 504: the write may have happened
    └── Unavailable     5xx or a broken connection: the write may have happened
        └── Unreachable no connection: the write did not happen
"""

from refloat.base.errors import RefloatError, UsageError


class KubeconfigError(UsageError):
    """Raised before the first call; the message names the file and the field."""


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
