# SPDX-License-Identifier: Apache-2.0
"""Whole Tables, their columns, and objects reduced to their metadata."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refloat.api import kinds
from refloat.api.errors import StatusError
from refloat.apiserver.tables import render

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
CONFIG_MAPS = kinds.of("configmaps")

OBJECT = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {
        "name": "a",
        "namespace": "n",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T11:00:00Z",
    },
    "data": {"k": "v"},
}

PARTIAL = {
    "kind": "PartialObjectMetadata",
    "apiVersion": "meta.k8s.io/v1",
    "metadata": OBJECT["metadata"],
}

END = {"k8s.io/initial-events-end": "true"}
BOOKMARK = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"resourceVersion": "8", "annotations": END},
}

# name, wide, and where they are not the usual ones: type, format
EVENT_COLUMNS = (
    *("Last Seen", "Type", "Reason", "Object", "Subobject+", "Source+", "Message"),
    *("First Seen+", "Count+", "Name+:string:name"),
)
COLUMNS = {
    "/configmaps": ("Name:string:name", "Data", "Age"),
    "/events": EVENT_COLUMNS,
    "/namespaces": ("Name:string:name", "Status", "Age"),
    "/nodes": (
        *("Name:string:name", "Status", "Roles", "Age", "Version", "Internal-IP+"),
        *("External-IP+", "OS-Image+", "Kernel-Version+", "Container-Runtime+"),
    ),
    "/persistentvolumeclaims": (
        *("Name:string:name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass"),
        *("VolumeAttributesClass", "Age", "VolumeMode+"),
    ),
    "/persistentvolumes": (
        *("Name:string:name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim"),
        *("StorageClass", "VolumeAttributesClass", "Reason", "Age", "VolumeMode+"),
    ),
    "/pods": (
        *("Name:string:name", "Ready", "Status", "Restarts", "Age", "IP+", "Node+"),
        *("Nominated Node+", "Readiness Gates+"),
    ),
    "/secrets": ("Name:string:name", "Type", "Data", "Age"),
    "/serviceaccounts": ("Name:string:name", "Age"),
    "/services": (
        *("Name:string:name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector+"),
    ),
    "batch/jobs": (
        *("Name:string:name", "Status", "Completions", "Duration", "Age", "Containers+"),
        *("Images+", "Selector+"),
    ),
    "coordination.k8s.io/leases": ("Name:string:name", "Holder", "Age"),
    "events.k8s.io/events": EVENT_COLUMNS,
    "policy/poddisruptionbudgets": (
        *("Name:string:name", "Min Available", "Max Unavailable"),
        *("Allowed Disruptions:integer:", "Age"),
    ),
    "scheduling.k8s.io/priorityclasses": (
        *("Name:string:name", "Value:integer:", "Global-Default:boolean:", "Age"),
        "PreemptionPolicy",
    ),
    "storage.k8s.io/volumeattachments": (
        *("Name:string:name", "Attacher:string:name", "PV", "Node", "Attached:boolean:", "Age"),
    ),
}


def shown(column: dict[str, Any]) -> str:
    name = column["name"] + "+" * column["priority"]
    usual = (column["type"], column["format"]) == ("string", "")
    return name if usual else f"{name}:{column['type']}:{column['format']}"


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda of: f"{of.group}/{of.plural}")
def test_the_columns_of_a_kind_are_those_of_kubernetes(resource: kinds.Resource) -> None:
    columns = render.columns(resource)
    assert tuple(map(shown, columns)) == COLUMNS[f"{resource.group}/{resource.plural}"]
    assert all(column["description"] for column in columns)
    for column in columns:
        assert list(column) == ["name", "type", "format", "description", "priority"]


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda of: f"{of.group}/{of.plural}")
def test_there_is_a_cell_for_each_column(resource: kinds.Resource) -> None:
    cells = render.row(resource, {"metadata": {"name": "x"}}, NOW)
    assert len(cells) == len(render.columns(resource))


def test_a_table_carries_the_metadata_of_its_list() -> None:
    metadata = {"resourceVersion": "9", "continue": "more", "remainingItemCount": 3}
    table = render.table(CONFIG_MAPS, [OBJECT], metadata, now=NOW)
    assert table == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": render.columns(CONFIG_MAPS),
        "rows": [{"cells": ["a", 1, "60m"], "object": PARTIAL}],
    }
    assert list(table) == ["kind", "apiVersion", "metadata", "columnDefinitions", "rows"]


def test_a_table_of_one_object_carries_its_version() -> None:
    assert render.metadata_of(OBJECT) == {"resourceVersion": "7"}


def test_a_table_of_nothing_has_no_rows_but_columns() -> None:
    table = render.table(CONFIG_MAPS, [], {}, now=NOW)
    assert table["rows"] == []
    assert len(table["columnDefinitions"]) == 3


@pytest.mark.parametrize(
    ("include", "want"), [("", PARTIAL), ("Metadata", PARTIAL), ("Object", OBJECT), ("None", None)]
)
def test_a_row_includes_what_was_asked_for(include: str, want: Any) -> None:
    render.check_include(include)
    [row] = render.table(CONFIG_MAPS, [OBJECT], {}, now=NOW, include=include)["rows"]
    assert row["object"] == want


def test_anything_else_cannot_be_included() -> None:
    with pytest.raises(StatusError) as error:
        render.check_include("bogus")
    assert error.value.code == 400
    assert error.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "bogus": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_the_mark_of_the_initial_events_end_is_included_even_when_nothing_is() -> None:
    [row] = render.table(CONFIG_MAPS, [BOOKMARK], {}, now=NOW, include="None")["rows"]
    assert row["cells"] == ["", 0, "<unknown>"]
    assert row["object"]["metadata"] == {"resourceVersion": "8", "annotations": END}


def test_a_later_event_of_a_watch_has_no_columns() -> None:
    table = render.table(CONFIG_MAPS, [OBJECT], {}, now=NOW, headers=False)
    assert table["columnDefinitions"] is None


def test_the_older_version_of_a_table_goes_through_to_its_rows() -> None:
    table = render.table(CONFIG_MAPS, [OBJECT], {}, now=NOW, version="v1beta1")
    assert table["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_partial_metadata_is_the_metadata_alone() -> None:
    assert render.partial_metadata(OBJECT) == PARTIAL


def test_a_partial_list_names_the_kind_of_each_item() -> None:
    partial_list = render.partial_metadata_list([OBJECT], {"resourceVersion": "9"})
    assert partial_list == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9"},
        "items": [PARTIAL],
    }


def test_an_empty_partial_list_has_null_for_items() -> None:
    assert render.partial_metadata_list([], {})["items"] is None


@pytest.mark.parametrize(
    ("resource", "go_type"),
    [
        (kinds.of("configmaps"), "*core.ConfigMap"),
        (kinds.of("jobs", "batch"), "*batch.Job"),
        (kinds.of("events", "events.k8s.io"), "*core.Event"),
        (kinds.of("leases", "coordination.k8s.io"), "*coordination.Lease"),
        (kinds.of("poddisruptionbudgets", "policy"), "*policy.PodDisruptionBudget"),
        (kinds.of("priorityclasses", "scheduling.k8s.io"), "*scheduling.PriorityClass"),
        (kinds.of("volumeattachments", "storage.k8s.io"), "*storage.VolumeAttachment"),
    ],
)
def test_a_list_and_an_object_are_not_taken_for_each_other(
    resource: kinds.Resource, go_type: str
) -> None:
    a_list, not_a_list = render.is_a_list(resource), render.is_not_a_list(resource)
    assert (a_list.code, a_list.reason) == (406, "NotAcceptable")
    assert a_list.message == (
        f"you requested PartialObjectMetadata, but the requested object is a list ({go_type}List)"
    )
    assert not_a_list.message == (
        "you requested PartialObjectMetadataList, but the requested object is not a list "
        f"({go_type})"
    )
