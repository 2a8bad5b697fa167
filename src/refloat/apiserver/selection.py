# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors, without decoding whole objects.

The first selector decodes the labels and selectable fields of an entry, and keeps
them with the entry in the store.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from refloat.api import errors, kinds, selectors
from refloat.apiserver import storage_codec
from refloat.store.contract import Entry


class EntryFields(msgspec.Struct, gc=False):
    """The labels and fields of an entry; so many that the garbage collector skips them."""

    labels: dict[str, str]
    fields: dict[str, str]


class _MetadataFields(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

# The selectable fields of each kind besides the names, by label, with the value of an
# absent field.
_FIELDS: dict[str, dict[str, str | bool | int]] = {
    "pods": {
        "spec.nodeName": "",
        "spec.restartPolicy": "",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": False,
        "status.phase": "",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    },
    "nodes": {"spec.unschedulable": False},
    "namespaces": {"status.phase": ""},
    "jobs.batch": {"status.successful": 0},
    "secrets": {"type": ""},
    "services": {"spec.clusterIP": "", "spec.type": ""},
    "events": {
        **{f"involvedObject.{name}": "" for name in _REFERENCE},
        "reason": "",
        "reportingComponent": "",
        "type": "",
    },
}
_OTHER_PATHS = {"status.successful": "status.succeeded"}  # labels that are not the field's path
_PATHS = {
    stored_as: {label: _OTHER_PATHS.get(label, label).split(".") for label in labels}
    for stored_as, labels in _FIELDS.items()
}

_NEW_EVENT_LABELS = {
    **{f"regarding.{name}": f"involvedObject.{name}" for name in _REFERENCE},
    "reportingController": "reportingComponent",
}
_OLD_POD_LABELS = {"spec.host": "spec.nodeName"}
_EMPTY_POD_LABELS = ("status.podIPs",)  # a valid label without values


def _decoder(stored_as: str) -> msgspec.json.Decoder[Any]:
    """Decodes the metadata and the selectable fields, and skips the rest of an object."""
    members: dict[str, Any] = {"source": {"component": ""}} if stored_as == "events" else {}
    for label, path in _PATHS[stored_as].items():
        level = members
        for name in path[:-1]:
            level = level.setdefault(name, {})
        level[path[-1]] = _FIELDS[stored_as][label]
    return msgspec.json.Decoder(_struct(members, ("metadata", _MetadataFields)))


def _struct(members: dict[str, Any], *others: tuple[str, type]) -> type[msgspec.Struct]:
    fields = [
        (name, _struct(each)) if isinstance(each, dict) else (name, type(each), each)
        for name, each in members.items()
    ]
    return msgspec.defstruct("Partial", [*others, *fields], kw_only=True)


_DECODERS = {stored_as: _decoder(stored_as) for stored_as in _FIELDS}
_PLAIN_DECODER = msgspec.json.Decoder(_struct({}, ("metadata", _MetadataFields)))


def attributes(resource: kinds.Resource, entry: Entry) -> EntryFields:
    """The labels and fields of an entry."""
    derived: EntryFields | None = entry.derived
    if derived is not None:
        return derived
    partial: Any = _DECODERS.get(resource.stored_as, _PLAIN_DECODER).decode(entry.value)
    metadata: _MetadataFields = partial.metadata
    fields = {"metadata.name": metadata.name}
    if resource.namespaced:
        fields["metadata.namespace"] = metadata.namespace
    for label, path in _PATHS.get(resource.stored_as, {}).items():
        fields[label] = _text(partial, path)
    if resource.stored_as == "events":
        fields["source"] = partial.source.component or partial.reportingComponent
    entry.derived = derived = EntryFields(metadata.labels or {}, fields)
    return derived


def _text(partial: Any, path: list[str]) -> str:
    for name in path:
        partial = getattr(partial, name)
    if isinstance(partial, bool):
        return str(partial).lower()
    return str(partial)


@dataclass(frozen=True, slots=True)
class Selection:
    """The resource, namespace and selectors of a list or watch."""

    resource: kinds.Resource
    namespace: str
    labels: selectors.LabelSelector
    fields: selectors.FieldSelector

    @property
    def everything(self) -> bool:
        return self.labels.empty and self.fields.empty

    def matches(self, entry: Entry) -> bool:
        derived = attributes(self.resource, entry)
        return self.labels.matches(derived.labels) and self.fields.matches(derived.fields)

    @property
    def key(self) -> str:
        """The key of the only object that can match; empty if several can."""
        name = self.pinned("metadata.name")
        if not name or (self.resource.namespaced and not self.namespace):
            return ""
        return storage_codec.key(self.resource, self.namespace, name)

    def pinned(self, field: str) -> str:
        """The value that the selector requires of a field, or an empty text."""
        return self.fields.pinned(field)


def select(
    resource: kinds.Resource, namespace: str, *, label_text: str, field_text: str
) -> Selection:
    """Read the selectors of a request; raises 400 with Kubernetes' message."""
    fields = selectors.parse_fields(field_text)
    for label in fields.labels:
        if label not in _known(resource):
            raise errors.bad_request(_unknown_field(resource, label))
    if resource.group == "events.k8s.io":
        fields = fields.renamed(_NEW_EVENT_LABELS)
    elif resource.kind == "Pod":
        fields = fields.renamed(_OLD_POD_LABELS)
    return Selection(resource, namespace, selectors.parse_labels(label_text), fields)


@cache
def _known(resource: kinds.Resource) -> frozenset[str]:
    """The labels of the selectable fields."""
    labels = {"metadata.name"}
    if resource.namespaced or resource.stored_as not in _FIELDS:
        labels.add("metadata.namespace")
    labels.update(_FIELDS.get(resource.stored_as, {}))
    if resource.kind == "Pod":
        labels.update(_OLD_POD_LABELS, _EMPTY_POD_LABELS)
    if resource.group == "events.k8s.io":
        labels.difference_update(_NEW_EVENT_LABELS.values())
        labels.update(_NEW_EVENT_LABELS)
    elif resource.stored_as == "events":
        labels.add("source")
    return frozenset(labels)


def _unknown_field(resource: kinds.Resource, label: str) -> str:
    if resource.kind == "Job":
        return f'field label "{label}" not supported for Job'
    if resource.stored_as in _FIELDS:
        return f"field label not supported: {label}"
    served = '"metadata.name", "metadata.namespace"'
    return f'"{label}" is not a known field selector: only {served}'
