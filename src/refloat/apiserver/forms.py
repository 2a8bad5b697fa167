# SPDX-License-Identifier: Apache-2.0
"""The form of an answer: which one a client accepts, and how it is made.

An object is served whole, as a row of a Table, or reduced to its metadata;
as JSON or, for single answers, as YAML.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal

import msgspec
import yaml

from refloat.api import codec, errors, kinds, schema
from refloat.api.meta import Object
from refloat.apiserver import stored, tables
from refloat.store.contract import Entry

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
SERVED = (JSON, YAML, PROTOBUF)  # as Kubernetes lists them; protobuf is read, not written

_STREAMED = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")

Shape = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Form:
    """What a client accepts."""

    media: Literal["application/json", "application/yaml"] = JSON
    shape: Shape = ""
    version: str = "v1"
    include: str = ""  # of a Table's rows: which part of the object

    @property
    def key(self) -> str:
        """Watchers with equal keys can share encoded events."""
        return f"{self.shape}/{self.version}/{self.include}"


PLAIN = Form()


def accepted(header: str, include: str, *, streams: bool = False) -> Form:
    """The first form in an Accept header that is served here.

    `streams` says whether the address also serves watches, for the message.
    """
    if not header or header in (JSON, "*/*"):
        return PLAIN
    known = False
    for media, parameters in _clauses(header):
        form = _form(media, parameters, include)
        if form is not None:
            return form
        known = known or media in SERVED
    if known:  # the media type is served, but not in such a shape
        raise errors.not_acceptable(SERVED)
    listed = ", ".join((*SERVED, *_STREAMED) if streams else SERVED)
    message = f"406: Not Acceptable\n\nAvailable representations: {listed}"
    raise errors.StatusError(406, "NotAcceptable", message, details={})


def _clauses(header: str) -> list[tuple[str, dict[str, str]]]:
    """What a header accepts, what it likes best first."""
    found = []
    for part in header.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        found.append((media, dict(map(_parameter, parameters))))
    # Of two that are liked alike, a wildcard comes last.
    return sorted(found, key=lambda clause: (-_weight(clause[1]), clause[0] == "*/*"))


def _weight(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", 1))
    except ValueError:
        return 1.0


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _form(media: str, parameters: dict[str, str], include: str) -> Form | None:
    if media == "*/*":
        media = JSON
    if media not in (JSON, YAML):
        return None
    if "as" not in parameters:
        return Form(media)  # type: ignore[arg-type] # checked above
    shape, version = parameters["as"], parameters.get("v", "")
    if parameters.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    if shape not in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
        return None
    return Form(media, shape, version, include)  # type: ignore[arg-type] # checked above


def check(form: Form) -> None:
    """Refuse a Table that cannot be made; Kubernetes does so when it would make it."""
    if form.shape == "Table":
        tables.check_include(form.include)


def encode(document: Object, form: Form) -> bytes:
    """A document as the bytes of an answer."""
    if form.media == YAML:
        return as_yaml(document)
    return _ENCODER.encode(document)


def as_yaml(document: Any) -> bytes:
    """A document as YAML, in the styles that Kubernetes writes."""
    if not isinstance(document, dict | list) or _weight_of(document) <= _YAML_VALUES:
        return _dumped(document).encode()
    return "".join(_yaml_pieces(document, 0)).encode()


# Values that the library writes at once; it lets no other thread run meanwhile.
_YAML_VALUES = 1000

# Where the library begins a new line.
_YAML_WIDTH = 80


def _yaml_pieces(value: Any, indent: int) -> Iterator[str]:
    """The document in pieces, each indented as it stands in the whole.

    Members and items are gathered up to a number of values; what is larger by
    itself is written below its key or dash in pieces of its own.
    """
    if not isinstance(value, dict | list) or _weight_of(value) <= _YAML_VALUES:
        yield _part(value, indent)
        return
    gathered: Any = type(value)()
    weight = 0
    for key, item in sorted(value.items()) if isinstance(value, dict) else enumerate(value):
        heavy = _weight_of(item)
        if gathered and weight + heavy > _YAML_VALUES:
            yield _part(gathered, indent)
            gathered, weight = type(value)(), 0
        if heavy > _YAML_VALUES:
            below = _below_key(key, item, indent) if isinstance(value, dict) else None
            yield from below or _below_dash(item, indent)
        else:
            weight += heavy
            gathered.update({key: item}) if isinstance(value, dict) else gathered.append(item)
    if gathered:
        yield _part(gathered, indent)


def _below_key(key: Any, item: Any, indent: int) -> Iterator[str]:
    yield _part({key: ""}, indent).removesuffix(' ""\n') + "\n"
    yield from _yaml_pieces(item, indent if isinstance(item, list) else indent + 2)


def _below_dash(item: Any, indent: int) -> Iterator[str]:
    for number, piece in enumerate(_yaml_pieces(item, indent + 2)):
        yield piece if number else piece[:indent] + "- " + piece[indent + 2 :]


def _weight_of(value: Any) -> int:
    """How many values there are, as far as it matters."""
    left = [value]
    count = 0
    while left and count <= _YAML_VALUES:
        each = left.pop()
        count += 1
        if isinstance(each, dict | list):
            if len(each) > _YAML_VALUES:
                return len(each) + 1
            left.extend(each.values() if isinstance(each, dict) else each)
    return count + len(left)


def _part(value: Any, indent: int) -> str:
    text = _dumped(value, _YAML_WIDTH - indent)
    if text.endswith("\n...\n"):  # after a text that ends in empty lines
        text = text[:-4]
    return textwrap.indent(text, " " * indent) if indent else text


def _dumped(value: Any, width: int = _YAML_WIDTH) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=width)
    return text


class _Dumper(yaml.CSafeDumper):
    """Quotes text that a reader could take for something else; keeps lines as lines."""

    # `=` and `<<` are text to Kubernetes.
    yaml_implicit_resolvers = {  # noqa: RUF012 - yaml's own name for it
        first: found
        for first, found in yaml.CSafeDumper.yaml_implicit_resolvers.items()
        if first not in ("=", "<")
    }


# What a reader of YAML 1.1 takes for a boolean, nothing, a number or a time.
_NOT_TEXT = re.compile(
    r"~?|null|Null|NULL|y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"
    r"|true|True|TRUE|false|False|FALSE|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"([Tt ][0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?(Z| ?[-+:0-9]+)?)?"
)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if _NOT_TEXT.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def one(resource: kinds.Resource, entry: Entry, form: Form, now: datetime) -> bytes:
    """The answer that is one object."""
    if form == PLAIN:
        return stored.body(resource, entry)
    if form.shape == "PartialObjectMetadataList":
        raise tables.is_not_a_list(resource)
    check(form)
    return encode(_shaped(resource, stored.unpack(resource, entry), form, now), form)


def _shaped(
    resource: kinds.Resource, obj: Object, form: Form, now: datetime, *, headers: bool = True
) -> Object:
    if form.shape == "Table":
        return tables.table(
            resource,
            [obj],
            tables.metadata_of(obj),
            now=now,
            include=form.include,
            headers=headers,
            version=form.version,
        )
    if form.shape:
        return tables.partial_metadata(obj, version=form.version)
    return obj


def event_object(
    resource: kinds.Resource, entry: Entry, form: Form, now: datetime, *, headers: bool
) -> bytes:
    """The object of a watch event."""
    if not form.shape:
        return stored.body(resource, entry)
    obj = stored.unpack(resource, entry)
    return _ENCODER.encode(_shaped(resource, obj, form, now, headers=headers))


def bookmark(
    resource: kinds.Resource,
    form: Form,
    revision: int,
    *,
    now: datetime,
    initial_end: bool = False,
    headers: bool = False,
) -> bytes:
    """The line that tells a watcher how far it has seen everything."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj = {**_nothing(resource), "metadata": metadata}
    shaped = _shaped(resource, obj, form, now, headers=headers)
    return b'{"type":"BOOKMARK","object":%s}\n' % _ENCODER.encode(shaped)


@cache
def _nothing(resource: kinds.Resource) -> Object:
    """An object of this kind with nothing in it; nobody changes it."""
    bare: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    return codec.convert(bare, schema.struct(resource.api_version, resource.kind)).obj


def list_head(
    resource: kinds.Resource, form: Form, list_metadata: dict[str, Any]
) -> tuple[bytes, bytes]:
    """What stands before and behind the items of a JSON list."""
    if form.shape == "PartialObjectMetadata":
        raise tables.is_a_list(resource)
    check(form)
    if form.shape == "Table":
        whole = tables.table(resource, [], list_metadata, now=_NO_TIME, version=form.version)
    elif form.shape:
        whole = tables.partial_metadata_list([], list_metadata, version=form.version)
    else:
        whole = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": list_metadata,
        }
    whole.pop("rows", None)
    whole.pop("items", None)
    items = b"rows" if form.shape == "Table" else b"items"
    return _ENCODER.encode(whole)[:-1] + b',"%s":[' % items, b"]}"


_NO_TIME = datetime.min  # noqa: DTZ901 - no row asks for it


def items(resource: kinds.Resource, entries: Iterable[Entry], form: Form, now: datetime) -> bytes:
    """The items of a list, joined."""
    if not form.shape:
        return b",".join([stored.item(resource, entry) for entry in entries])
    objects = [stored.unpack(resource, entry) for entry in entries]
    if form.shape == "Table":
        whole = tables.table(
            resource, objects, {}, now=now, include=form.include, version=form.version
        )
        return _ENCODER.encode(whole["rows"])[1:-1]
    whole = tables.partial_metadata_list(objects, {}, version=form.version)
    return _ENCODER.encode(whole["items"] or [])[1:-1]
