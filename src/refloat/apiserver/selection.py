# SPDX-License-Identifier: Apache-2.0
"""Which objects a selector picks, without decoding whole objects.

The labels and the selectable fields of an entry are decoded once, when a
selector first asks for them, and kept beside it in the store.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from refloat.api import errors, kinds, selectors
from refloat.apiserver import stored
from refloat.store.contract import Entry


class Attributes(msgspec.Struct, gc=False):
    """What selectors look at; one for each entry, so without the garbage collector's care."""

    labels: dict[str, str]
    fields: dict[str, str]


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _PodSpec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the wire's names
    restartPolicy: str = ""  # noqa: N815
    schedulerName: str = ""  # noqa: N815
    serviceAccountName: str = ""  # noqa: N815
    hostNetwork: bool = False  # noqa: N815


class _PodStatus(msgspec.Struct):
    phase: str = ""
    podIP: str = ""  # noqa: N815
    nominatedNodeName: str = ""  # noqa: N815


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _NodeSpec


class _NamespaceStatus(msgspec.Struct):
    phase: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Metadata
    status: _NamespaceStatus


class _JobStatus(msgspec.Struct):
    succeeded: int = 0


class _Job(msgspec.Struct):
    metadata: _Metadata
    status: _JobStatus


class _Secret(msgspec.Struct):
    metadata: _Metadata
    type: str = ""


class _ServiceSpec(msgspec.Struct):
    clusterIP: str = ""  # noqa: N815
    type: str = ""


class _Service(msgspec.Struct):
    metadata: _Metadata
    spec: _ServiceSpec


class _Reference(msgspec.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    apiVersion: str = ""  # noqa: N815
    resourceVersion: str = ""  # noqa: N815
    fieldPath: str = ""  # noqa: N815


class _Source(msgspec.Struct):
    component: str = ""


class _Event(msgspec.Struct):
    metadata: _Metadata
    involvedObject: _Reference  # noqa: N815
    source: _Source
    reason: str = ""
    reportingComponent: str = ""  # noqa: N815
    type: str = ""


class _Plain(msgspec.Struct):
    metadata: _Metadata


# For each kind with more than names to select on: the field's label, and the
# way to it in the partial struct.
_FIELDS: dict[str, tuple[type[msgspec.Struct], dict[str, tuple[str, ...]]]] = {
    "pods": (
        _Pod,
        {
            "spec.nodeName": ("spec", "nodeName"),
            "spec.restartPolicy": ("spec", "restartPolicy"),
            "spec.schedulerName": ("spec", "schedulerName"),
            "spec.serviceAccountName": ("spec", "serviceAccountName"),
            "spec.hostNetwork": ("spec", "hostNetwork"),
            "status.phase": ("status", "phase"),
            "status.podIP": ("status", "podIP"),
            "status.nominatedNodeName": ("status", "nominatedNodeName"),
        },
    ),
    "nodes": (_Node, {"spec.unschedulable": ("spec", "unschedulable")}),
    "namespaces": (_Namespace, {"status.phase": ("status", "phase")}),
    "jobs.batch": (_Job, {"status.successful": ("status", "succeeded")}),
    "secrets": (_Secret, {"type": ("type",)}),
    "services": (
        _Service,
        {"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
    ),
    "events": (
        _Event,
        {
            **{
                f"involvedObject.{name}": ("involvedObject", name)
                for name in _Reference.__struct_fields__
            },
            "reason": ("reason",),
            "reportingComponent": ("reportingComponent",),
            "type": ("type",),
        },
    ),
}

_NEW_EVENT_LABELS = {
    **{f"regarding.{name}": f"involvedObject.{name}" for name in _Reference.__struct_fields__},
    "reportingController": "reportingComponent",
}
_OLD_POD_LABELS = {"spec.host": "spec.nodeName"}
_EMPTY_POD_LABELS = ("status.podIPs",)  # can be asked for, and no pod has it
_DECODERS = {stored_as: msgspec.json.Decoder(struct) for stored_as, (struct, _) in _FIELDS.items()}
_PLAIN_DECODER = msgspec.json.Decoder(_Plain)


def attributes(resource: kinds.Resource, entry: Entry) -> Attributes:
    """The labels and fields of an entry."""
    found: Attributes | None = entry.derived
    if found is None:
        found = entry.derived = _derive(resource, entry.value)
    return found


def _derive(resource: kinds.Resource, value: bytes) -> Attributes:
    decoder = _DECODERS.get(resource.stored_as, _PLAIN_DECODER)
    partial: Any = decoder.decode(value)
    metadata: _Metadata = partial.metadata
    fields = {"metadata.name": metadata.name}
    if resource.namespaced:
        fields["metadata.namespace"] = metadata.namespace
    if resource.stored_as in _FIELDS:
        for label, way in _FIELDS[resource.stored_as][1].items():
            fields[label] = _text(partial, way)
    if resource.stored_as == "events":
        fields["source"] = partial.source.component or partial.reportingComponent
    return Attributes(metadata.labels or {}, fields)


def _text(partial: Any, way: tuple[str, ...]) -> str:
    for name in way:
        partial = getattr(partial, name)
    if isinstance(partial, bool):
        return str(partial).lower()
    return str(partial)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch asked for."""

    resource: kinds.Resource
    namespace: str
    labels: selectors.LabelSelector
    fields: selectors.FieldSelector

    @property
    def everything(self) -> bool:
        return self.labels.empty and self.fields.empty

    def matches(self, entry: Entry) -> bool:
        found = attributes(self.resource, entry)
        return self.labels.matches(found.labels) and self.fields.matches(found.fields)

    @property
    def key(self) -> str:
        """Where the one object lies that can be meant; empty when several can be."""
        name = self.pinned("metadata.name")
        if not name or (self.resource.namespaced and not self.namespace):
            return ""
        return stored.key(self.resource, self.namespace, name)

    def pinned(self, field: str) -> str:
        """The value that a field must have, when the selector asks for one."""
        return self.fields.pinned(field)


def select(
    resource: kinds.Resource, namespace: str, *, label_text: str, field_text: str
) -> Selection:
    """Read the selectors of a request; raises 400 in Kubernetes' words."""
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
    """The labels of the fields that can be selected on."""
    known = {"metadata.name"}
    if resource.namespaced or resource.stored_as not in _FIELDS:
        known.add("metadata.namespace")
    known.update(_FIELDS.get(resource.stored_as, (None, {}))[1])
    if resource.kind == "Pod":
        known.update(_OLD_POD_LABELS, _EMPTY_POD_LABELS)
    if resource.group == "events.k8s.io":
        known.difference_update(_NEW_EVENT_LABELS.values())
        known.update(_NEW_EVENT_LABELS)
    elif resource.stored_as == "events":
        known.add("source")
    return frozenset(known)


def _unknown_field(resource: kinds.Resource, label: str) -> str:
    if resource.kind == "Job":
        return f'field label "{label}" not supported for Job'
    if resource.stored_as in _FIELDS:
        return f"field label not supported: {label}"
    served = '"metadata.name", "metadata.namespace"'
    return f'"{label}" is not a known field selector: only {served}'
