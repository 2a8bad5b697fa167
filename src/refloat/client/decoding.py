# SPDX-License-Identifier: Apache-2.0
"""Decodes the bytes of an answer to structs and typed errors.

An object is decoded once, straight into its Kind's struct. An answer of another
shape raises `Unavailable`: something between Refloat and the API server has
answered, and a retry may help.
"""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from refloat.client import errors
from refloat.client.contract import EventType, Kind, ListPage, WatchEvent

T = TypeVar("T")

Body = bytes | bytearray

# How much of an unexpected answer an error shows.
MAX_SHOWN = 200

INITIAL_END = "k8s.io/initial-events-end"

_OBJECT_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})


class _Meta(msgspec.Struct, gc=False):
    resourceVersion: str | None = None  # noqa: N815 - named as on the wire
    annotations: dict[str, str] | None = None


class _Anything(msgspec.Struct, gc=False):
    metadata: _Meta | None = None


class _ListMeta(msgspec.Struct, gc=False):
    resourceVersion: str | None = None  # noqa: N815
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct, Generic[T]):
    items: list[T] | None
    metadata: _ListMeta | None = None


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Cause(msgspec.Struct):
    reason: str | None = None
    field: str | None = None
    message: str | None = None


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None
    retryAfterSeconds: int | None = None  # noqa: N815


class _Status(msgspec.Struct):
    kind: str
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


_metadata = msgspec.json.Decoder(_Anything)
_event = msgspec.json.Decoder(_Event)
_status = msgspec.json.Decoder(_Status)


def _key(kind: Kind[Any]) -> Hashable:
    return cast("Hashable", kind.type)


@cache
def _decoder(struct: Any, of: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct[of])


def one(kind: Kind[T], body: Body) -> T:
    """An object."""
    try:
        return kind.decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected(f"a {kind.resource.kind}", body, error) from error


def page(kind: Kind[T], body: Body) -> tuple[ListPage[T], str]:
    """A chunk of a list, and the token for the next chunk."""
    try:
        chunk: _List[T] = _decoder(_List, _key(kind)).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected(f"a list of {kind.resource.plural}", body, error) from error
    meta = chunk.metadata or _ListMeta()
    token = meta.continue_ or ""
    return ListPage(chunk.items or [], meta.resourceVersion or "", last=not token), token


class _ObjectEvent(msgspec.Struct, Generic[T], gc=False):
    """An event whose object is one of its kind."""

    type: EventType
    object: T


# The lines with these starts are events with an object, and are decoded in one step.
_OBJECT_STARTS = (b'{"type":"ADDED"', b'{"type":"MODIFIED"', b'{"type":"DELETED"')

_NO_BYTES = msgspec.Raw(b"")


def event(kind: Kind[T], line: Body) -> WatchEvent[T]:
    """A line of a watch; raises the error of an ERROR event."""
    reader = _version_reader(_key(kind))
    try:
        if line.startswith(_OBJECT_STARTS):
            change: _ObjectEvent[T] = _decoder(_ObjectEvent, _key(kind)).decode(line)
            raw = _event.decode(line).object if reader is _version_from_bytes else _NO_BYTES
            return WatchEvent(change.type, change.object, reader(change.object, raw))
        event = _event.decode(line)
        if event.type in _OBJECT_EVENTS:
            obj = kind.decoder.decode(event.object)
            return WatchEvent(cast("EventType", event.type), obj, reader(obj, event.object))
        if event.type == "BOOKMARK":
            meta = _metadata.decode(event.object).metadata or _Meta()
            ends = (meta.annotations or {}).get(INITIAL_END) == "true"
            return WatchEvent("BOOKMARK", None, meta.resourceVersion or "", initial_end=ends)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected("a watch event", line, error) from error
    if event.type == "ERROR":
        raise failure(0, bytes(event.object), what="watch")
    raise _unexpected("a watch event", line, f"of type {event.type!r}")


_VersionReader = Callable[[Any, msgspec.Raw], str]


@cache
def _version_reader(of: Hashable) -> _VersionReader:
    """The function that finds the resourceVersion: in the struct, else in the bytes."""
    outer = _attribute(of, "metadata")
    if outer is None:
        return _version_from_bytes
    hints = (outer[1], *getattr(outer[1], "__args__", ()))  # the struct in `T | None`
    inner = next(filter(None, (_attribute(hint, "resourceVersion") for hint in hints)), None)
    if inner is None:
        return _version_from_bytes
    metadata, version = outer[0], inner[0]

    def read(obj: Any, _raw: msgspec.Raw) -> str:
        return getattr(getattr(obj, metadata, None), version, None) or ""

    return read


def _version_from_bytes(_obj: object, raw: msgspec.Raw) -> str:
    meta = _metadata.decode(raw).metadata
    return (meta.resourceVersion if meta else None) or ""


def _attribute(of: object, name: str) -> tuple[str, object] | None:
    """The attribute for a field of the wire, and the type of the attribute."""
    if not (isinstance(of, type) and issubclass(of, msgspec.Struct)):
        return None
    for each in msgspec.structs.fields(of):
        if each.encode_name == name:
            return each.name, each.type
    return None


def _unexpected(expectation: str, body: Body, problem: object) -> errors.Unavailable:
    return errors.Unavailable(f"the answer is not {expectation}: {problem}; it was: {shown(body)}")


def shown(body: Body) -> str:
    """The beginning of an answer, on one line."""
    text = " ".join(bytes(body[: 4 * MAX_SHOWN]).decode(errors="replace").split())
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")


_BY_REASON: dict[str, type[errors.ClientError]] = {
    "AlreadyExists": errors.AlreadyExists,
    "BadRequest": errors.Invalid,
    "Conflict": errors.Conflict,
    "Expired": errors.Expired,
    "Forbidden": errors.Forbidden,
    "Gone": errors.Expired,
    "Invalid": errors.Invalid,
    "NotFound": errors.NotFound,
    "ServerTimeout": errors.Timeout,
    "Timeout": errors.Timeout,
    "TooManyRequests": errors.TooManyRequests,
    "Unauthorized": errors.Unauthorized,
}

_BY_CODE: dict[int, type[errors.ClientError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.Timeout,
    409: errors.Conflict,
    410: errors.Expired,
    429: errors.TooManyRequests,
    504: errors.Timeout,
}


def failure(
    code: int, body: Body, *, what: str, retry_after: float | None = None
) -> errors.ClientError:
    """The error for an answer other than 2xx, or for an ERROR event."""
    try:
        status = _status.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if status is None or status.kind != "Status":
        text = shown(body) if body else "without a body"
        return _class("", code)(f"{what}: {code}: {text}", code=code, retry_after=retry_after)
    code, reason = status.code or code, status.reason or ""
    details = status.details or _Details()
    causes = tuple(
        (each.reason or "", each.field or "", each.message or "") for each in details.causes or ()
    )
    return _class(reason, code)(
        status.message or f"{what}: {code} {reason}".rstrip(),
        code=code,
        reason=reason,
        causes=causes,
        retry_after=retry_after or details.retryAfterSeconds,
    )


def _class(reason: str, code: int) -> type[errors.ClientError]:
    error = _BY_REASON.get(reason) or _BY_CODE.get(code)
    if error is not None:
        return error
    return errors.Invalid if 400 <= code < 500 else errors.Unavailable
