# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a body to an object in normal form, and back.

The API server does this first with a body: parse it, check that the address takes the
kind, check the types of all fields, note unknown fields, and convert the object to the
form of Go's output. Errors have Kubernetes' words. Defaults and validation come later
and rely on the types.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from refloat.api import errors, fields, go_normalize, gojson, goyaml, protobuf, schema, unmarshal
from refloat.api.meta import Object

Media: TypeAlias = Literal["json", "yaml", "protobuf"]

# So much of a body that could not be read is shown in the message.
_SHOWN = 30

_TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)

# Kubernetes names the place in its own source where kinds are registered.
_REGISTRY = "pkg/runtime/scheme.go:111"

# Other versions of a kind that have the same fields and are taken as well.
_ALSO_TAKEN = {("policy/v1beta1", "Eviction"): "policy/v1"}
_OF_EVERY_VERSION = ("DeleteOptions",)
_EVENTS = ("v1", "events.k8s.io/v1")

_TOO_DEEP = "exceeded max depth"

_decode_json = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode
"""An object as compact JSON."""


@dataclass(slots=True)
class Decoded:
    """An object in normal form, and the problems that the server may ignore."""

    obj: Object
    problems: list[str]  # one warning each
    strict: str = ""  # the same as one text, where nothing is passed over


class Unreadable(Exception):
    """The body is not of the type; the error has the body's kind, if known."""

    def __init__(self, reason: str, api_version: str = "", kind: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.api_version = api_version
        self.kind = kind


class _NoVersion(Unreadable):
    """A group without a version; the message shows the whole body."""


def decode(body: bytes, struct: schema.Struct, *, media: Media = "json") -> Decoded:
    """The object in a request's body for this kind; a Status error for another body."""
    try:
        return _decode(body, struct, media)
    except RecursionError:
        raise errors.bad_request(_told(_no_kind(_TOO_DEEP), body, struct)) from None
    except Unreadable as error:
        raise errors.bad_request(_told(error, body, struct)) from None


def decode_options(body: bytes, struct: schema.Struct, *, media: Media = "json") -> Decoded:
    """The same for DeleteOptions, whose errors do not name the kind."""
    try:
        return _decode(body, struct, media)
    except RecursionError:
        raise errors.bad_request(str(_no_kind(_TOO_DEEP))) from None
    except Unreadable as error:
        raise errors.bad_request(_reason(error, body)) from None


def convert(value: Object, struct: schema.Struct) -> Decoded:
    """The same for an object that is parsed already, such as a patched one.

    `unmarshal.Mismatch` when a field is of a wrong type.
    """
    try:
        return Decoded(_named(go_normalize.convert(value, struct), struct), [])
    except go_normalize.NeedsSlowPath:
        content, problems = unmarshal.read(value, struct)
    return _decoded(content, struct, problems)


def identify(value: Any, struct: schema.Struct) -> str:
    """The version that a patched document has, or "" for none.

    The kind may be missing. `Unreadable` for another kind, or for no object.
    """
    if isinstance(value, dict):
        value = {name: value.get(name) for name in ("apiVersion", "kind")}
    version, kind = _identified(value)
    api_version, kind = _with_defaults(version, kind, struct)
    if version.rpartition("/")[2]:
        _check_taken(api_version, kind, struct)
        return version
    if kind == struct.kind:
        return ""
    # A kind without a version is one of Kubernetes' internal types.
    if schema.is_registered(api_version, kind):
        package = _package(struct)
        reason = f"converting ({package}.{kind}) to ({package}.{struct.kind}): unknown conversion"
    else:
        group = fields.quote(api_version.rpartition("/")[0])
        reason = f"no kind {fields.quote(kind)} is registered for the internal version of group"
        reason = f'{reason} {group} in scheme "{_REGISTRY}"'
    raise Unreadable(reason, api_version, kind)


def strict_error(decoded: Decoded, struct: schema.Struct) -> errors.StatusError:
    """The error for unknown and duplicate fields under strict validation."""
    version = struct.api_version.rpartition("/")[2]
    return errors.bad_request(
        f'{struct.kind} in version "{version}" cannot be handled as a {struct.kind}: '
        f"strict decoding error: {decoded.strict}"
    )


def _decode(body: bytes, struct: schema.Struct, media: Media) -> Decoded:
    if media == "protobuf":
        return _decode_protobuf(body, struct)
    if media == "yaml":
        try:
            value, repeated = goyaml.parse(body)
        except goyaml.YamlProblem as problem:
            raise Unreadable(str(problem)) from None
        decoded = _read(value, struct)
        if repeated:
            warning = "yaml: unmarshal errors:\n  " + "\n  ".join(repeated)
            decoded.strict = ", ".join(filter(None, (warning, decoded.strict)))
            decoded.problems[:0] = repeated
        return decoded
    try:
        value = _decode_json(body)
        # The ordinary case of `_check_taken`: the body has the expected kind, or none.
        if (
            type(value) is not dict
            or value.get("kind", struct.kind) != struct.kind
            or value.get("apiVersion", struct.api_version) != struct.api_version
        ):
            raise go_normalize.NeedsSlowPath
        obj = go_normalize.convert(value, struct)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, go_normalize.NeedsSlowPath):
        return _decode_slowly(body, struct)
    if may_repeat_keys(body, value):
        return _decode_slowly(body, struct)
    return Decoded(_named(obj, struct), [])


def may_repeat_keys(body: bytes, value: Any) -> bool:
    """Whether a key may stand twice in one object; true now and then without need.

    Each key has a colon, and a colon within a text is there again when the value is
    encoded, unless it was escaped. So if the counts differ, a key was lost. This costs
    much less than a second parse.
    """
    return b"\\u003" in body or body.count(b":") != encode(value).count(b":")


def _decode_slowly(body: bytes, struct: schema.Struct) -> Decoded:
    try:
        value = gojson.parse(body)
    except gojson.SyntaxProblem as problem:
        raise _no_kind(str(problem)) from None
    return _read(value, struct)


def _decode_protobuf(body: bytes, struct: schema.Struct) -> Decoded:
    """Kind and version stand outside of the object, and no field is odd."""
    try:
        envelope = protobuf.unwrap(body)
    except protobuf.Malformed as problem:
        raise Unreadable(str(problem)) from None
    kind = envelope.kind or struct.kind
    group, _, version = envelope.api_version.rpartition("/")
    api_version = f"{group}/{version}" if group else version
    if not version or "/" in group:  # an invalid version counts as missing
        api_version = _default_version(struct)
    try:
        try:
            _check_taken(api_version, kind, struct)
        except (Unreadable, errors.StatusError):
            # Kubernetes reads an object of another kind before it refuses the object.
            other = schema.kinds().get(f"{api_version} {kind}")
            if other is not None and struct.kind not in _OF_EVERY_VERSION:
                envelope.read(other)
            raise
        value = envelope.read(struct)
    except protobuf.Malformed as problem:
        raise Unreadable(str(problem), api_version, kind) from None
    return convert(value, struct)


def _read(value: Any, struct: schema.Struct) -> Decoded:
    if value is None:
        value = {}
    api_version, kind = _identified(value)
    api_version, kind = _with_defaults(api_version, kind, struct)
    _check_taken(api_version, kind, struct)
    try:
        content, problems = unmarshal.read(value, struct)
    except unmarshal.Mismatch as error:
        raise Unreadable(str(error), api_version, kind) from None
    return _decoded(content, struct, problems)


def _decoded(content: Object, struct: schema.Struct, problems: list[str]) -> Decoded:
    obj = _named(go_normalize.convert(content, struct), struct)
    return Decoded(obj, problems, ", ".join(problems))


def _named(obj: Object, struct: schema.Struct) -> Object:
    """With kind and version first, and always those of the address."""
    if not struct.kind:
        return obj
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return {"kind": struct.kind, "apiVersion": struct.api_version, **obj}


def _no_kind(reason: str) -> Unreadable:
    return Unreadable(f"couldn't get version/kind; json parse error: {reason}")


def _reason(error: Unreadable, body: bytes) -> str:
    if isinstance(error, _NoVersion):
        return f"Object 'apiVersion' is missing in '{body.decode(errors='replace')}'"
    return error.reason


def _told(error: Unreadable, body: bytes, struct: schema.Struct) -> str:
    if error.kind:
        version = error.api_version.rpartition("/")[2]
        return (
            f"{error.kind} in version {fields.quote(version)} cannot be handled as a "
            f"{struct.kind}: {_reason(error, body)}"
        )
    return (
        f"the object provided is unrecognized (must be of type {struct.kind}): "
        f"{error.reason} ({_shown(body)})"
    )


def _shown(body: bytes) -> str:
    """The beginning of a body: as text if the body looks like JSON, else in hexadecimal."""
    if not body:
        return "<empty>"
    more = " ..." if len(body) > _SHOWN else ""
    start = body[:_SHOWN]
    return (start.decode(errors="replace") if body[0] == ord("{") else start.hex()) + more


def _check_taken(api_version: str, kind: str, struct: schema.Struct) -> None:
    if (api_version, kind) == (struct.api_version, struct.kind):
        return
    if kind == struct.kind and kind in _OF_EVERY_VERSION:
        return
    if _ALSO_TAKEN.get((api_version, kind)) == struct.api_version and kind == struct.kind:
        return
    if kind == struct.kind == "Event" and api_version in _EVENTS:
        raise errors.bad_request(
            f"the API version in the data ({api_version}) does not match "
            f"the expected API version ({struct.api_version})"
        )
    if not schema.is_registered(api_version, kind) or struct.kind in _OF_EVERY_VERSION:
        quotes = fields.quote(kind), fields.quote(api_version)
        reason = f"no kind {quotes[0]} is registered for version {quotes[1]}"
        raise Unreadable(f'{reason} in scheme "{_REGISTRY}"', api_version, kind)
    version = api_version.rpartition("/")[2]
    reason = f"converting ({version}.{kind}) to ({_package(struct)}.{struct.kind})"
    raise Unreadable(f"{reason}: unknown conversion", api_version, kind)


def _identified(value: Any) -> tuple[str, str]:
    """A body's version and kind; only here Go ignores the case of names."""
    members = gojson.members(value)
    if members is None:
        go_kind = gojson.kind(value)
        raise _no_kind(f"json: cannot unmarshal {go_kind} into Go value of type {_TYPE_META}")
    identity = {"apiversion": "", "kind": ""}
    for key, item in members:
        folded = key.casefold()
        if folded not in identity or item is None:
            continue
        if gojson.kind(item) != "string":
            name = "kind" if folded == "kind" else "apiVersion"
            go_kind = gojson.kind(item)
            raise _no_kind(
                f"json: cannot unmarshal {go_kind} into Go struct field .{name} of type string"
            )
        identity[folded] = gojson.text(item)
    return identity["apiversion"], identity["kind"]


def _with_defaults(api_version: str, kind: str, struct: schema.Struct) -> tuple[str, str]:
    """What is left out is taken from the address."""
    if api_version.count("/") > 1:
        raise Unreadable(f"unexpected GroupVersion string: {api_version}")
    group, _, version = api_version.rpartition("/")
    own_group, _, own_version = _default_version(struct).rpartition("/")
    if not version and group in ("", own_group):
        group, version = own_group, own_version
    kind = kind or struct.kind
    if not version:
        raise _NoVersion("", "", kind)
    return f"{group}/{version}" if group else version, kind


def _default_version(struct: schema.Struct) -> str:
    return "meta.k8s.io/v1" if struct.kind in _OF_EVERY_VERSION else struct.api_version


def _package(struct: schema.Struct) -> str:
    return "core" if struct.kind == "Event" else struct.name.partition(".")[0]
