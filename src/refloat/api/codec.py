# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a body to an object in normal form, and back.

What an API server does with a body before anything else looks at it: parse
it, see that it is of the kind that the address takes, check the types of all
fields, note those that nobody knows, and bring it into the form in which Go
would write it. Errors have Kubernetes' words. Defaults and validation come
later and rely on the types.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from refloat.api import errors, gojson, goyaml, normal, protobuf, schema, unmarshal
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
    """An object in normal form, and what was wrong with it but can be passed over."""

    obj: Object
    problems: list[str]  # one warning each
    strict: str = ""  # the same as one text, where nothing is passed over


class Unreadable(Exception):
    """The body is not of the type; it says its kind where that could be read."""

    def __init__(self, reason: str, api_version: str = "", kind: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.api_version = api_version
        self.kind = kind


class _NoVersion(Unreadable):
    """A group without a version; the message shows the whole body."""


def decode(body: bytes, struct: schema.Struct, *, media: Media = "json") -> Decoded:
    """A body that was sent to an address which takes this kind; a Status error if it cannot be."""
    try:
        return _decode(body, struct, media)
    except RecursionError:
        raise errors.bad_request(_too_deep(body, struct)) from None
    except Unreadable as error:
        raise errors.bad_request(_told(error, body, struct)) from None


def decode_options(body: bytes, struct: schema.Struct, *, media: Media = "json") -> Decoded:
    """The same for DeleteOptions, whose errors are told without the kind."""
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
        return Decoded(_named(normal.convert(value, struct), struct), [])
    except normal.Odd:
        known, problems = unmarshal.read(value, struct)
    return _decoded(known, struct, problems)


def identify(value: Any, struct: schema.Struct) -> str:
    """The version that a patched document says it is of, "" where it says none.

    Its kind may be left out. `Unreadable` when it is no object, or of another kind.
    """
    if isinstance(value, dict):
        value = {name: value.get(name) for name in ("apiVersion", "kind")}
    said, kind = _identified(value)
    api_version, kind = _with_defaults(said, kind, struct)
    if said.rpartition("/")[2]:
        _check_taken(api_version, kind, struct)
        return said
    if kind != struct.kind:
        raise _other_internal_kind(api_version, kind, struct)
    return ""


def strict_error(decoded: Decoded, struct: schema.Struct) -> errors.StatusError:
    """What is told where unknown and duplicate fields are not passed over."""
    version = struct.api_version.rpartition("/")[2]
    return errors.bad_request(
        f'{struct.kind} in version "{version}" cannot be handled as a {struct.kind}: '
        f"strict decoding error: {decoded.strict}"
    )


def _decode(body: bytes, struct: schema.Struct, media: Media) -> Decoded:
    if media == "yaml":
        return _decode_yaml(body, struct)
    if media == "protobuf":
        return _decode_protobuf(body, struct)
    try:
        value = _decode_json(body)
        _check_expected(value, struct)
        made = normal.convert(value, struct)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, normal.Odd):
        return _decode_slowly(body, struct)
    if may_repeat_keys(body, value):
        return _decode_slowly(body, struct)
    return Decoded(_named(made, struct), [])


def may_repeat_keys(body: bytes, value: Any) -> bool:
    """Whether a key may stand twice in one object; true now and then without need.

    Each key has its colon, and a colon within a text comes back when the
    value is written anew, unless it was escaped: if the count differs, a key
    was lost. It costs much less than a second parse.
    """
    return b"\\u003" in body or body.count(b":") != encode(value).count(b":")


def _decode_slowly(body: bytes, struct: schema.Struct) -> Decoded:
    try:
        value = gojson.parse(body)
    except gojson.SyntaxProblem as problem:
        raise _no_kind(str(problem)) from None
    return _read(value, struct)


def _decode_yaml(body: bytes, struct: schema.Struct) -> Decoded:
    try:
        value, repeated = goyaml.parse(body)
    except goyaml.YamlProblem as problem:
        raise Unreadable(str(problem)) from None
    made = _read(value, struct)
    if repeated:
        told = "yaml: unmarshal errors:\n  " + "\n  ".join(repeated)
        made.strict = ", ".join(filter(None, (told, made.strict)))
        made.problems[:0] = repeated
    return made


def _decode_protobuf(body: bytes, struct: schema.Struct) -> Decoded:
    """Kind and version stand outside of the object, and no field is odd."""
    try:
        sent = protobuf.unwrap(body)
    except protobuf.Malformed as problem:
        raise Unreadable(str(problem)) from None
    api_version, kind = _sent_as(sent, struct)
    try:
        _check_sent(sent, api_version, kind, struct)
        value = sent.read(struct)
    except protobuf.Malformed as problem:
        raise Unreadable(str(problem), api_version, kind) from None
    return convert(value, struct)


def _sent_as(sent: protobuf.Envelope, struct: schema.Struct) -> tuple[str, str]:
    """Kind and version; a version that is none counts as left out."""
    group, _, version = sent.api_version.rpartition("/")
    if not version or "/" in group:
        return _default_version(struct), sent.kind or struct.kind
    return f"{group}/{version}" if group else version, sent.kind or struct.kind


def _check_sent(
    sent: protobuf.Envelope, api_version: str, kind: str, struct: schema.Struct
) -> None:
    try:
        _check_taken(api_version, kind, struct)
    except (Unreadable, errors.StatusError):
        # Kubernetes reads an object of another kind before it refuses it.
        known = schema.kinds().get(f"{api_version} {kind}")
        if known is not None and struct.kind not in _OF_EVERY_VERSION:
            sent.read(known)
        raise


def _read(value: Any, struct: schema.Struct) -> Decoded:
    if value is None:
        value = {}
    api_version, kind = _check_kind(value, struct)
    try:
        known, problems = unmarshal.read(value, struct)
    except unmarshal.Mismatch as error:
        raise Unreadable(str(error), api_version, kind) from None
    return _decoded(known, struct, problems)


def _decoded(known: Object, struct: schema.Struct, problems: list[str]) -> Decoded:
    made = _named(normal.convert(known, struct), struct)
    return Decoded(made, problems, ", ".join(problems))


def _named(made: Object, struct: schema.Struct) -> Object:
    """With kind and version first, and always those of the address."""
    if not struct.kind:
        return made
    made.pop("kind", None)
    made.pop("apiVersion", None)
    return {"kind": struct.kind, "apiVersion": struct.api_version, **made}


def _no_kind(reason: str) -> Unreadable:
    return Unreadable(f"couldn't get version/kind; json parse error: {reason}")


def _too_deep(body: bytes, struct: schema.Struct) -> str:
    return _told(_no_kind(_TOO_DEEP), body, struct)


def _reason(error: Unreadable, body: bytes) -> str:
    if isinstance(error, _NoVersion):
        return f"Object 'apiVersion' is missing in '{body.decode(errors='replace')}'"
    return error.reason


def _told(error: Unreadable, body: bytes, struct: schema.Struct) -> str:
    if error.kind:
        version = error.api_version.rpartition("/")[2]
        return (
            f"{error.kind} in version {gojson.quoted(version)} cannot be handled as a "
            f"{struct.kind}: {_reason(error, body)}"
        )
    return (
        f"the object provided is unrecognized (must be of type {struct.kind}): "
        f"{error.reason} ({_shown(body)})"
    )


def _shown(body: bytes) -> str:
    """The beginning of a body: as it is if it looks like JSON, else in hexadecimal."""
    if not body:
        return "<empty>"
    more = " ..." if len(body) > _SHOWN else ""
    start = body[:_SHOWN]
    return (start.decode(errors="replace") if body[0] == ord("{") else start.hex()) + more


def _check_expected(value: Any, struct: schema.Struct) -> None:
    """The ordinary case of `_check_kind`: the kind is the expected one, or is left out."""
    if type(value) is not dict:
        raise normal.Odd
    if value.get("kind", struct.kind) != struct.kind:
        raise normal.Odd
    if value.get("apiVersion", struct.api_version) != struct.api_version:
        raise normal.Odd


def _check_kind(value: Any, struct: schema.Struct) -> tuple[str, str]:
    """The version and kind of a body, once they are known to be those of the address."""
    api_version, kind = _identified(value)
    api_version, kind = _with_defaults(api_version, kind, struct)
    _check_taken(api_version, kind, struct)
    return api_version, kind


def _check_taken(api_version: str, kind: str, struct: schema.Struct) -> None:
    if (api_version, kind) == (struct.api_version, struct.kind):
        return
    if kind == struct.kind and kind in _OF_EVERY_VERSION:
        return
    if _ALSO_TAKEN.get((api_version, kind)) == struct.api_version and kind == struct.kind:
        return
    raise _other_kind(api_version, kind, struct)


def _identified(value: Any) -> tuple[str, str]:
    """What a body says of itself; here, and only here, Go ignores the case of names."""
    members = gojson.members(value)
    if members is None:
        found = gojson.kind(value)
        raise _no_kind(f"json: cannot unmarshal {found} into Go value of type {_TYPE_META}")
    said = {"apiversion": "", "kind": ""}
    for key, item in members:
        folded = key.casefold()
        if folded not in said or item is None:
            continue
        if gojson.kind(item) != "string":
            name = "kind" if folded == "kind" else "apiVersion"
            found = gojson.kind(item)
            raise _no_kind(
                f"json: cannot unmarshal {found} into Go struct field .{name} of type string"
            )
        said[folded] = gojson.text(item)
    return said["apiversion"], said["kind"]


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


def _other_kind(api_version: str, kind: str, struct: schema.Struct) -> Exception:
    if kind == struct.kind == "Event" and api_version in _EVENTS:
        return errors.bad_request(
            f"the API version in the data ({api_version}) does not match "
            f"the expected API version ({struct.api_version})"
        )
    if not schema.is_registered(api_version, kind) or struct.kind in _OF_EVERY_VERSION:
        said = gojson.quoted(kind), gojson.quoted(api_version)
        reason = f"no kind {said[0]} is registered for version {said[1]}"
        return Unreadable(f'{reason} in scheme "{_REGISTRY}"', api_version, kind)
    version = api_version.rpartition("/")[2]
    reason = f"converting ({version}.{kind}) to ({_package(struct)}.{struct.kind})"
    return Unreadable(f"{reason}: unknown conversion", api_version, kind)


def _other_internal_kind(api_version: str, kind: str, struct: schema.Struct) -> Unreadable:
    """Without a version it is one of the types that Kubernetes keeps for itself."""
    if schema.is_registered(api_version, kind):
        package = _package(struct)
        reason = f"converting ({package}.{kind}) to ({package}.{struct.kind})"
        return Unreadable(f"{reason}: unknown conversion", api_version, kind)
    group = gojson.quoted(api_version.rpartition("/")[0])
    reason = f"no kind {gojson.quoted(kind)} is registered for the internal version of group"
    return Unreadable(f'{reason} {group} in scheme "{_REGISTRY}"', api_version, kind)


def _package(struct: schema.Struct) -> str:
    return "core" if struct.kind == "Event" else struct.name.partition(".")[0]
