# SPDX-License-Identifier: Apache-2.0
"""The stored form of objects, and answers from it without decoding.

A value is an object's JSON without kind, apiVersion and resourceVersion. The key has
the first two, and the third is the store's revision, which exists only after the
write. Metadata is the first member, so joining bytes makes a whole object, an item
of a list or a watch event.
"""

import msgspec

from refloat.api import event_conversion, kinds
from refloat.api.meta import Object
from refloat.store.contract import Entry

_HEAD = b'{"metadata":{'
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


class _LabelsOfMetadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    """The labels of an object."""

    metadata: _LabelsOfMetadata


_LABELS_DECODER = msgspec.json.Decoder(_Labelled)


def key(resource: kinds.Resource, namespace: str, name: str) -> str:
    """The key of an object."""
    if resource.namespaced:
        return f"{resource.stored_as}/{namespace}/{name}"
    return f"{resource.stored_as}/{name}"


def prefix(resource: kinds.Resource, namespace: str = "") -> str:
    """The prefix of the keys of a collection."""
    return f"{resource.stored_as}/{namespace}/" if namespace else f"{resource.stored_as}/"


def pack(resource: kinds.Resource, obj: Object) -> bytes:
    """The stored value of an object; does not change the object."""
    if resource.group == "events.k8s.io":
        obj = event_conversion.to_core(obj)
    rest = {name: part for name, part in obj.items() if name not in _NOT_STORED}
    metadata = {name: part for name, part in obj["metadata"].items() if name != "resourceVersion"}
    return _ENCODER.encode({"metadata": metadata, **rest})


_NOT_STORED = ("kind", "apiVersion", "metadata")


def unpack(resource: kinds.Resource, entry: Entry) -> Object:
    """The object, as a new dictionary."""
    obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version}
    obj.update(_DECODER.decode(entry.value))
    if entry.revision:  # zero in a dry run
        obj["metadata"]["resourceVersion"] = str(entry.revision)
    return event_conversion.to_events(obj) if resource.group == "events.k8s.io" else obj


def labels(entry: Entry) -> dict[str, str]:
    """The object's labels, without decoding the rest."""
    return _LABELS_DECODER.decode(entry.value).metadata.labels or {}


def body(resource: kinds.Resource, entry: Entry) -> bytes:
    """The object's JSON, as in the answer to a get."""
    if resource.group == "events.k8s.io":
        return _ENCODER.encode(unpack(resource, entry))
    return b'{"kind":"%s","apiVersion":"%s",%s' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        item(resource, entry)[1:],
    )


def item(resource: kinds.Resource, entry: Entry) -> bytes:
    """The object's JSON without kind and apiVersion, as in a list."""
    if resource.group == "events.k8s.io":
        obj = unpack(resource, entry)
        del obj["kind"], obj["apiVersion"]
        return _ENCODER.encode(obj)
    if not entry.revision:  # a dry run stores nothing
        return entry.value
    return b'{"metadata":{"resourceVersion":"%d",%s' % (entry.revision, entry.value[len(_HEAD) :])
