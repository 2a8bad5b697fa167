# SPDX-License-Identifier: Apache-2.0
"""Objects as a Table, or reduced to their metadata, as clients may ask for.

`kubectl get` requests a Table and prints the cells; caches that need only labels and
owners request PartialObjectMetadata. The other modules of this package make the
cells. `negotiation` chooses the form from the Accept header.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from refloat.api import errors, meta
from refloat.api.fields import invalid
from refloat.api.kinds import Resource
from refloat.api.meta import Object
from refloat.apiserver.tables import (
    config,
    events,
    jobs,
    nodes,
    pods,
    scheduling,
    services,
    storage,
)
from refloat.apiserver.tables.columns import Cells, Column, Printer

_GROUP = "meta.k8s.io"

_PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "configmaps"): config.CONFIG_MAPS,
    ("", "events"): events.CORE_EVENTS,
    ("", "namespaces"): config.NAMESPACES,
    ("", "nodes"): nodes.NODES,
    ("", "persistentvolumeclaims"): storage.CLAIMS,
    ("", "persistentvolumes"): storage.VOLUMES,
    ("", "pods"): pods.PODS,
    ("", "secrets"): config.SECRETS,
    ("", "serviceaccounts"): config.SERVICE_ACCOUNTS,
    ("", "services"): services.SERVICES,
    ("batch", "jobs"): jobs.JOBS,
    ("coordination.k8s.io", "leases"): config.LEASES,
    ("events.k8s.io", "events"): events.EVENTS,
    ("policy", "poddisruptionbudgets"): scheduling.DISRUPTION_BUDGETS,
    ("scheduling.k8s.io", "priorityclasses"): scheduling.PRIORITY_CLASSES,
    ("storage.k8s.io", "volumeattachments"): storage.ATTACHMENTS,
}

INCLUDE_NONE = "None"
INCLUDE_METADATA = "Metadata"
INCLUDE_OBJECT = "Object"

# Marks the bookmark after the initial objects of a watch. Clients need the
# annotation, whatever `includeObject` they send.
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


def columns(resource: Resource) -> list[Column]:
    """The column definitions of a kind's Table."""
    return list(_printer(resource).columns)


def row(resource: Resource, obj: Object, now: datetime) -> Cells:
    """The cells of one object, one for each column."""
    return _printer(resource).cells(obj, now)


def _printer(resource: Resource) -> Printer:
    return _PRINTERS[resource.group, resource.plural]


def check_include(include: str) -> None:
    """Raise 400 for an invalid `includeObject`."""
    if include in ("", INCLUDE_NONE, INCLUDE_METADATA, INCLUDE_OBJECT):
        return
    detail = "must be 'Metadata', 'Object', 'None', or empty"
    mistake = invalid("includeObject", include, detail)
    raise errors.bad_request(f"Unable to convert to Table as requested: {mistake}")


def table(
    resource: Resource,
    objects: Iterable[Object],
    list_metadata: dict[str, Any],
    *,
    now: datetime,
    include: str = "",
    headers: bool = True,
    version: str = "v1",
) -> Object:
    """A whole Table.

    `list_metadata` is that of the list, or for a single object `metadata_of`.
    `headers` is False for all events of a watch but the first.
    """
    printer = _printer(resource)
    return {
        "kind": "Table",
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": list_metadata,
        "columnDefinitions": list(printer.columns) if headers else None,
        "rows": [
            full_row(resource, each, now=now, include=include, version=version) for each in objects
        ],
    }


def metadata_of(obj: Object) -> dict[str, Any]:
    """The metadata of a Table with a single object."""
    version = obj["metadata"].get("resourceVersion")
    return {"resourceVersion": version} if version else {}


def full_row(
    resource: Resource, obj: Object, *, now: datetime, include: str = "", version: str = "v1"
) -> dict[str, Any]:
    """A row of a Table, for answers in pieces."""
    printer = _printer(resource)
    fields: dict[str, Any] = {"cells": printer.cells(obj, now)}
    if printer.conditions and (row_conditions := printer.conditions(obj)):
        fields["conditions"] = row_conditions
    is_bookmark = meta.annotations(obj).get(_INITIAL_EVENTS_END) == "true"
    if include == INCLUDE_OBJECT:
        fields["object"] = obj
    elif include == INCLUDE_NONE and not is_bookmark:
        fields["object"] = None
    else:
        fields["object"] = partial_metadata(obj, version=version)
    return fields


def partial_metadata(obj: Object, *, version: str = "v1") -> Object:
    """An object with only its metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": obj["metadata"],
    }


def partial_metadata_list(
    objects: Iterable[Object], list_metadata: dict[str, Any], *, version: str = "v1"
) -> Object:
    """A list with only the metadata of its items; null without items."""
    items = [partial_metadata(each, version=version) for each in objects]
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": list_metadata,
        "items": items or None,
    }


def is_a_list(resource: Resource) -> errors.StatusError:
    """The error for a request of PartialObjectMetadata if the answer is a list."""
    return _not_acceptable(
        "you requested PartialObjectMetadata, but the requested object is a list "
        f"({_go_type(resource)}List)"
    )


def is_not_a_list(resource: Resource) -> errors.StatusError:
    """The error for a request of PartialObjectMetadataList if the answer is an object."""
    return _not_acceptable(
        "you requested PartialObjectMetadataList, but the requested object is not a list "
        f"({_go_type(resource)})"
    )


def _not_acceptable(message: str) -> errors.StatusError:
    return errors.StatusError(406, "NotAcceptable", message)


def _go_type(resource: Resource) -> str:
    """The Go type of Kubernetes in both messages."""
    package = "core" if resource.plural == "events" else resource.group.partition(".")[0] or "core"
    return f"*{package}.{resource.kind}"
