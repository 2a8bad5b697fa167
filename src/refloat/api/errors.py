# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' Status errors: one class, and a constructor for each reason.

RefloatError
└── StatusError     an answer that is a failure: code, reason, message, details

The constructors word their messages as Kubernetes does; clients and people
compare these texts.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from refloat.api.fields import FieldError, cut, quote
from refloat.api.meta import Object
from refloat.base.errors import RefloatError

# The errors in one answer. Kubernetes' decoder lists as many unknown fields, and
# Kubernetes' validation lists any number.
MAX_CAUSES = 100

# Characters of a message, and of all causes together: encoded twice, and with
# six bytes for each, an answer stays below 10 MB.
MAX_MESSAGE = 512 * 1024


class StatusError(RefloatError):
    """A request that failed, with the Status for the client."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: dict[str, Any] = {}

    def status(self) -> Object:
        """The Status object of the answer's body."""
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": cut(self.message, MAX_MESSAGE),
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}

    @property
    def retry_after(self) -> int | None:
        return (self.details or {}).get("retryAfterSeconds")


def qualified(group: str, resource: str) -> str:
    """`jobs.batch`, or plain `pods` for the core group."""
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in details.items() if value}


def not_found(group: str, resource: str, name: str) -> StatusError:
    message = f"{qualified(group, resource)} {quote(name)} not found"
    return StatusError(404, "NotFound", message, details=_details(group, resource, name))


def page_not_found() -> StatusError:
    """Nothing is served at this address."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def already_exists(group: str, resource: str, name: str) -> StatusError:
    message = f'{qualified(group, resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(group, resource, name))


def conflict(group: str, resource: str, name: str, cause: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {cause}'
    return StatusError(409, "Conflict", message, details=_details(group, resource, name))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def modified(group: str, resource: str, name: str) -> StatusError:
    return conflict(group, resource, name, MODIFIED)


def invalid(group: str, kind: str, name: str, mistakes: Sequence[FieldError]) -> StatusError:
    causes: list[dict[str, str]] = []
    texts: list[str] = []
    size = 0
    for mistake in mistakes[:MAX_CAUSES]:
        body = cut(mistake.body, MAX_MESSAGE)
        size += len(body) + len(mistake.path)
        if causes and size > MAX_MESSAGE:
            break
        causes.append({"reason": mistake.type, "message": body, "field": mistake.path})
        texts.append(f"{mistake.path}: {body}")
    if (rest := len(mistakes) - len(causes)) > 0:
        texts.append(f"and {rest} more")
    message = f'{qualified(group, kind)} "{name}" is invalid'
    if mistakes:
        message += f": {_joined(texts)}"
    details = _details(group, kind, name, causes=causes)
    return StatusError(422, "Invalid", message, details=details)


def _joined(texts: Iterable[str]) -> str:
    """One text bare, several as `[a, b]`, repeated ones once."""
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, resource: str, name: str, cause: str) -> StatusError:
    object_name = f' "{name}"' if name else ""
    message = f"{qualified(group, resource)}{object_name} is forbidden: {cause}"
    return StatusError(403, "Forbidden", message, details=_details(group, resource, name))


def method_not_supported() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(served: Sequence[str]) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(served)}"
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(served: Sequence[str]) -> StatusError:
    message = (
        "the body of the request was in an unknown format - "
        f"accepted media types include: {', '.join(served)}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_many_requests(
    message: str, retry_after: int, causes: Sequence[dict[str, str]] = ()
) -> StatusError:
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return StatusError(429, "TooManyRequests", message, details=details)


def internal(message: str) -> StatusError:
    cause = {"message": message}
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, details={"causes": [cause]})


def not_implemented(message: str) -> StatusError:
    return StatusError(501, "NotImplemented", message)
