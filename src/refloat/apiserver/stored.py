# SPDX-License-Identifier: Apache-2.0
"""How objects lie in the store, and how they come out without being decoded.

A value is an object's JSON without kind, apiVersion and resourceVersion: the
first two are known from the key, the third is the store's revision, which
nobody knows before the write. Metadata stands first, so a whole object, an
item of a list or a watch event is made by joining bytes.
"""

import msgspec

from refloat.api import event_conversion, kinds
from refloat.api.meta import Object
from refloat.store.contract import Entry

_HEAD = b'{"metadata":{'
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    """As much of an object as leads to its labels."""

    metadata: _Metadata


_LABELS_DECODER = msgspec.json.Decoder(_Labelled)


def key(resource: kinds.Resource, namespace: str, name: str) -> str:
    """Where an object lies."""
    if resource.namespaced:
        return f"{resource.stored_as}/{namespace}/{name}"
    return f"{resource.stored_as}/{name}"


def prefix(resource: kinds.Resource, namespace: str = "") -> str:
    """Where a collection lies."""
    return f"{resource.stored_as}/{namespace}/" if namespace else f"{resource.stored_as}/"


def pack(resource: kinds.Resource, obj: Object) -> bytes:
    """The value to store for an object; the object is left as it is."""
    if resource.group == "events.k8s.io":
        obj = event_conversion.to_core(obj)
    rest = {name: part for name, part in obj.items() if name not in _NOT_STORED}
    metadata = {name: part for name, part in obj["metadata"].items() if name != "resourceVersion"}
    return _ENCODER.encode({"metadata": metadata, **rest})


_NOT_STORED = ("kind", "apiVersion", "metadata")


def unpack(resource: kinds.Resource, entry: Entry) -> Object:
    """The object, as a copy of the caller's own."""
    obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version}
    obj.update(_DECODER.decode(entry.value))
    if entry.revision:  # what a dry run made has none
        obj["metadata"]["resourceVersion"] = str(entry.revision)
    return event_conversion.to_events(obj) if resource.group == "events.k8s.io" else obj


def labels(entry: Entry) -> dict[str, str]:
    """The object's labels; the rest of it is passed over and not decoded."""
    return _LABELS_DECODER.decode(entry.value).metadata.labels or {}


def body(resource: kinds.Resource, entry: Entry) -> bytes:
    """The object's JSON, as a get answers it."""
    if resource.group == "events.k8s.io":
        return _ENCODER.encode(unpack(resource, entry))
    return b'{"kind":"%s","apiVersion":"%s",%s' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        item(resource, entry)[1:],
    )


def item(resource: kinds.Resource, entry: Entry) -> bytes:
    """The object's JSON without kind and apiVersion, as a list carries it."""
    if resource.group == "events.k8s.io":
        obj = unpack(resource, entry)
        del obj["kind"], obj["apiVersion"]
        return _ENCODER.encode(obj)
    if not entry.revision:  # made by a dry run, not stored
        return entry.value
    return b'{"metadata":{"resourceVersion":"%d",%s' % (entry.revision, entry.value[len(_HEAD) :])
