# SPDX-License-Identifier: Apache-2.0
"""From the bytes of an answer to structs and typed errors.

An object is decoded once, straight into its Kind's struct. What is not JSON,
or not of the expected shape, is `Unavailable`: somebody between us and the
API server answered, and asking again may help.
"""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from refloat.client import errors
from refloat.client.contract import EventType, Kind, Page, WatchEvent

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
def _list_decoder(of: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_List[of])  # type: ignore[valid-type]


def one(kind: Kind[T], body: Body) -> T:
    """An object."""
    try:
        return kind.decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected(f"a {kind.resource.kind}", body, error) from error


def page(kind: Kind[T], body: Body) -> tuple[Page[T], str]:
    """A chunk of a list, and the token that leads to the next one."""
    try:
        found: _List[T] = _list_decoder(_key(kind)).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected(f"a list of {kind.resource.plural}", body, error) from error
    meta = found.metadata or _ListMeta()
    token = meta.continue_ or ""
    return Page(found.items or [], meta.resourceVersion or "", last=not token), token


class _Told(msgspec.Struct, Generic[T], gc=False):
    """An event whose object is one of its kind."""

    type: EventType
    object: T


@cache
def _told_decoder(of: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_Told[of])  # type: ignore[valid-type]


# How the lines begin that need no second look at what their object is.
_ORDINARY = (b'{"type":"ADDED"', b'{"type":"MODIFIED"', b'{"type":"DELETED"')


def event(kind: Kind[T], line: Body) -> WatchEvent[T]:
    """A line of a watch; raises what an ERROR event says."""
    if line.startswith(_ORDINARY):
        try:
            told: _Told[T] = _told_decoder(_key(kind)).decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unexpected("a watch event", line, error) from error
        return WatchEvent(told.type, told.object, _version_in(kind, told.object, line))
    return _careful(kind, line)


def _version_in(kind: Kind[T], obj: T, line: Body) -> str:
    read = _version_reader(_key(kind))
    if read is _version_from_bytes:
        return read(obj, _event.decode(line).object)
    return read(obj, _NO_BYTES)


_NO_BYTES = msgspec.Raw(b"")


def _careful(kind: Kind[T], line: Body) -> WatchEvent[T]:
    """An event that may be of any type, and may have its fields in any order."""
    try:
        found = _event.decode(line)
        if found.type in _OBJECT_EVENTS:
            obj = kind.decoder.decode(found.object)
            version = _version_reader(_key(kind))(obj, found.object)
            return WatchEvent(cast("EventType", found.type), obj, version)
        if found.type == "BOOKMARK":
            return _bookmark(found.object)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected("a watch event", line, error) from error
    if found.type == "ERROR":
        raise failure(0, bytes(found.object), what="watch")
    raise _unexpected("a watch event", line, f"of type {found.type!r}")


def _bookmark(raw: msgspec.Raw) -> WatchEvent[Any]:
    meta = _metadata.decode(raw).metadata or _Meta()
    ends = (meta.annotations or {}).get(INITIAL_END) == "true"
    return WatchEvent("BOOKMARK", None, meta.resourceVersion or "", initial_end=ends)


_VersionReader = Callable[[Any, msgspec.Raw], str]


@cache
def _version_reader(of: Hashable) -> _VersionReader:
    """How to find the resourceVersion: in the struct, or else in the bytes once more."""
    outer = _attribute(of, "metadata")
    if outer is None:
        return _version_from_bytes
    inner = _attribute(_struct_of(outer[1]), "resourceVersion")
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
    """The attribute that holds a field of the wire, and its type."""
    if not (isinstance(of, type) and issubclass(of, msgspec.Struct)):
        return None
    for each in msgspec.structs.fields(of):
        if each.encode_name == name:
            return each.name, each.type
    return None


def _struct_of(hint: object) -> object:
    """The struct in `T | None`."""
    for each in (hint, *getattr(hint, "__args__", ())):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _unexpected(wanted: str, body: Body, problem: object) -> errors.Unavailable:
    return errors.Unavailable(f"the answer is not {wanted}: {problem}; it was: {shown(body)}")


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
    """The error of an answer that is none of 2xx, or of an ERROR event."""
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
    found = _BY_REASON.get(reason) or _BY_CODE.get(code)
    if found is not None:
        return found
    return errors.Invalid if 400 <= code < 500 else errors.Unavailable
