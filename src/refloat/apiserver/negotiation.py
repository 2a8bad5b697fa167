# SPDX-License-Identifier: Apache-2.0
"""The form of an answer: what the client accepts, and how to make that.

The server answers with whole objects, with the rows of a Table, or with metadata
only; as JSON or, for single answers, as YAML.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, Final, Literal

import msgspec
import yaml

from refloat.api import codec, errors, kinds, schema
from refloat.api.meta import Object
from refloat.apiserver import storage_codec
from refloat.apiserver.tables import render
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
    """The first form in an Accept header that the server has.

    With `streams` the address also serves watches, which the message lists.
    """
    if not header or header in (JSON, "*/*"):
        return PLAIN
    clauses: list[tuple[float, bool, str, dict[str, str]]] = []
    for part in header.split(","):
        media, *texts = (piece.strip() for piece in part.split(";"))
        pairs = (text.partition("=") for text in texts)
        parameters = {name.strip(): value.strip() for name, _, value in pairs}
        try:
            weight = float(parameters.get("q", 1))
        except ValueError:
            weight = 1.0
        clauses.append((-weight, media == "*/*", media, parameters))
    is_served = False
    # At equal preference a wildcard comes last.
    for _, _, media, parameters in sorted(clauses, key=itemgetter(0, 1)):
        is_served = is_served or media in SERVED
        if media == "*/*":
            media = JSON
        if media not in (JSON, YAML):
            continue
        if "as" not in parameters:
            return Form(media)  # type: ignore[arg-type] # checked above
        shape, version = parameters["as"], parameters.get("v", "")
        is_known = shape in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
        if is_known and parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return Form(media, shape, version, include)  # type: ignore[arg-type] # checked above
    if is_served:  # the server has the media type, but not the shape
        raise errors.not_acceptable(SERVED)
    media_types = ", ".join((*SERVED, *_STREAMED) if streams else SERVED)
    message = f"406: Not Acceptable\n\nAvailable representations: {media_types}"
    raise errors.StatusError(406, "NotAcceptable", message, details={})


def check(form: Form) -> None:
    """Refuse an invalid Table; Kubernetes does so only when it makes the Table."""
    if form.shape == "Table":
        render.check_include(form.include)


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


# Values that the library writes at once; no other thread runs meanwhile.
_YAML_VALUES = 1000

# Where the library begins a new line.
_YAML_WIDTH = 80


def _yaml_pieces(value: Any, indent: int) -> Iterator[str]:
    """The document in pieces, each indented as in the whole.

    A piece has members or items up to a number of values. A larger member or item
    follows below its key or dash in pieces of its own.
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
            if isinstance(value, dict):
                yield _part({key: ""}, indent).removesuffix(' ""\n') + "\n"
                yield from _yaml_pieces(item, indent if isinstance(item, list) else indent + 2)
                continue
            for number, piece in enumerate(_yaml_pieces(item, indent + 2)):
                yield piece if number else piece[:indent] + "- " + piece[indent + 2 :]
        else:
            weight += heavy
            gathered.update({key: item}) if isinstance(value, dict) else gathered.append(item)
    if gathered:
        yield _part(gathered, indent)


def _weight_of(value: Any) -> int:
    """The number of values; the count stops beyond `_YAML_VALUES`."""
    pending = [value]
    count = 0
    while pending and count <= _YAML_VALUES:
        each = pending.pop()
        count += 1
        if isinstance(each, dict | list):
            if len(each) > _YAML_VALUES:
                return len(each) + 1
            pending.extend(each.values() if isinstance(each, dict) else each)
    return count + len(pending)


def _part(value: Any, indent: int) -> str:
    text = _dumped(value, _YAML_WIDTH - indent)
    if text.endswith("\n...\n"):  # follows a string that ends in empty lines
        text = text[:-4]
    return textwrap.indent(text, " " * indent) if indent else text


def _dumped(value: Any, width: int = _YAML_WIDTH) -> str:
    text: str = yaml.dump(
        value, Dumper=_YamlDumper, sort_keys=True, allow_unicode=True, width=width
    )
    return text


class _YamlDumper(yaml.CSafeDumper):
    """Quotes strings that look like another type; writes several lines as a block."""

    # `=` and `<<` are text to Kubernetes.
    yaml_implicit_resolvers = {  # noqa: RUF012 - yaml's own name for it
        first: resolvers
        for first, resolvers in yaml.CSafeDumper.yaml_implicit_resolvers.items()
        if first not in ("=", "<")
    }


# Strings that YAML 1.1 reads as a boolean, null, a number or a time.
_NOT_TEXT = re.compile(
    r"~?|null|Null|NULL|y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"
    r"|true|True|TRUE|false|False|FALSE|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"([Tt ][0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?(Z| ?[-+:0-9]+)?)?"
)


_YamlDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str",
        text,
        style="|" if "\n" in text else '"' if _NOT_TEXT.fullmatch(text) else None,
    ),
)


def encode_entry(resource: kinds.Resource, entry: Entry, form: Form, now: datetime) -> bytes:
    """The answer that is one object."""
    if form == PLAIN:
        return storage_codec.body(resource, entry)
    if form.shape == "PartialObjectMetadataList":
        raise render.is_not_a_list(resource)
    check(form)
    return encode(_shaped(resource, storage_codec.unpack(resource, entry), form, now), form)


def _shaped(
    resource: kinds.Resource, obj: Object, form: Form, now: datetime, *, headers: bool = True
) -> Object:
    if form.shape == "Table":
        return render.table(
            resource,
            [obj],
            render.metadata_of(obj),
            now=now,
            include=form.include,
            headers=headers,
            version=form.version,
        )
    if form.shape:
        return render.partial_metadata(obj, version=form.version)
    return obj


def event_object(
    resource: kinds.Resource, entry: Entry, form: Form, now: datetime, *, headers: bool
) -> bytes:
    """The object of a watch event."""
    if not form.shape:
        return storage_codec.body(resource, entry)
    obj = storage_codec.unpack(resource, entry)
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
    """The bookmark line: the watcher has every change up to this revision."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj = {**_nothing(resource), "metadata": metadata}
    shaped = _shaped(resource, obj, form, now, headers=headers)
    return b'{"type":"BOOKMARK","object":%s}\n' % _ENCODER.encode(shaped)


@cache
def _nothing(resource: kinds.Resource) -> Object:
    """An empty object of this kind; shared, so do not change it."""
    bare: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    return codec.convert(bare, schema.struct(resource.api_version, resource.kind)).obj


def list_head(
    resource: kinds.Resource, form: Form, list_metadata: dict[str, Any]
) -> tuple[bytes, bytes]:
    """The bytes before and after the items of a JSON list."""
    if form.shape == "PartialObjectMetadata":
        raise render.is_a_list(resource)
    check(form)
    if form.shape == "Table":
        whole = render.table(resource, [], list_metadata, now=_NO_TIME, version=form.version)
    elif form.shape:
        whole = render.partial_metadata_list([], list_metadata, version=form.version)
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


_NO_TIME = datetime.min  # noqa: DTZ901 - an empty Table has no ages


def items(resource: kinds.Resource, entries: Iterable[Entry], form: Form, now: datetime) -> bytes:
    """The items of a list, joined."""
    if not form.shape:
        return b",".join([storage_codec.item(resource, entry) for entry in entries])
    objects = [storage_codec.unpack(resource, entry) for entry in entries]
    if form.shape == "Table":
        whole = render.table(
            resource, objects, {}, now=now, include=form.include, version=form.version
        )
        return _ENCODER.encode(whole["rows"])[1:-1]
    whole = render.partial_metadata_list(objects, {}, version=form.version)
    return _ENCODER.encode(whole["items"] or [])[1:-1]
