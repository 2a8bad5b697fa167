# SPDX-License-Identifier: Apache-2.0
"""Discovery, with the documents that a Kubernetes 1.36 API server gives for the same kinds."""

import re
from typing import Any

import pytest

import refloat
from refloat.api import kinds
from refloat.apiserver import discovery

GROUPS = [
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
]

ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def resources(group: str, version: str = "v1") -> dict[str, dict[str, Any]]:
    document = discovery.api_resource_list(group, version)
    return {each["name"]: each for each in document["resources"]}


def test_the_core_group_names_its_versions_and_the_server() -> None:
    assert discovery.api_versions("127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}
        ],
    }


def test_the_groups_are_in_the_order_of_kubernetes() -> None:
    assert discovery.groups() == GROUPS
    assert [each["name"] for each in discovery.api_group_list()["groups"]] == GROUPS
    assert discovery.group_versions() == [("", "v1"), *((group, "v1") for group in GROUPS)]


def test_a_group_names_its_versions_and_the_preferred_one() -> None:
    version = {"groupVersion": "batch/v1", "version": "v1"}
    assert discovery.api_group("batch") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "batch",
        "versions": [version],
        "preferredVersion": version,
    }


def test_a_group_version_lists_its_resources() -> None:
    assert discovery.api_resource_list("batch", "v1") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "batch/v1",
        "resources": [
            {
                "name": "jobs",
                "singularName": "job",
                "namespaced": True,
                "kind": "Job",
                "verbs": ALL_VERBS,
                "categories": ["all"],
                "storageVersionHash": "mudhfqk/qZY=",
            },
            {
                "name": "jobs/status",
                "singularName": "",
                "namespaced": True,
                "kind": "Job",
                "verbs": ["get", "patch", "update"],
            },
        ],
    }


def test_the_core_groups_list_says_no_api_version() -> None:
    assert list(discovery.api_resource_list("", "v1")) == ["kind", "groupVersion", "resources"]


def test_the_core_resources_are_listed_by_name_with_their_parts() -> None:
    names = list(resources(""))
    assert names == sorted(names)
    assert "pods/eviction" in names
    assert "namespaces/finalize" in names


def test_a_part_of_another_group_says_which() -> None:
    assert resources("")["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }


def test_a_resource_lists_its_short_names() -> None:
    assert resources("")["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ALL_VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
        "storageVersionHash": "xPOwRZ+Yhw8=",
    }


def test_namespaces_cannot_be_deleted_together() -> None:
    assert "deletecollection" not in resources("")["namespaces"]["verbs"]


def test_both_kinds_of_event_are_stored_as_one() -> None:
    old, new = resources("")["events"], resources("events.k8s.io")["events"]
    assert old["storageVersionHash"] == new["storageVersionHash"] == "r2yiGXH7wu8="


def test_a_question_is_only_created_and_never_stored() -> None:
    assert resources("authentication.k8s.io") == {
        "selfsubjectreviews": {
            "name": "selfsubjectreviews",
            "singularName": "selfsubjectreview",
            "namespaced": False,
            "kind": "SelfSubjectReview",
            "verbs": ["create"],
        }
    }


def test_the_aggregated_form_of_a_group() -> None:
    document = discovery.aggregated_groups()
    assert {**document, "items": []} == {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [],
    }
    [batch] = [each for each in document["items"] if each["metadata"] == {"name": "batch"}]
    kind = {"group": "", "version": "", "kind": "Job"}
    part = {"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}
    job = {
        "resource": "jobs",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "job",
        "verbs": ALL_VERBS,
        "categories": ["all"],
        "subresources": [part],
    }
    version = {"version": "v1", "resources": [job], "freshness": "Current"}
    assert batch == {"metadata": {"name": "batch"}, "versions": [version]}


def test_the_aggregated_form_of_the_core_group_has_no_name() -> None:
    [core] = discovery.aggregated_core()["items"]
    assert core["metadata"] == {}


def test_a_resource_without_parts_has_none_in_the_aggregated_form() -> None:
    [core] = discovery.aggregated_core()["items"]
    resources = {each["resource"]: each for each in core["versions"][0]["resources"]}
    assert "subresources" not in resources["configmaps"]
    assert resources["nodes"]["scope"] == "Cluster"


def flattened(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Group and name of everything in an aggregated document."""
    names: set[tuple[str, str]] = set()
    for group in document["items"]:
        for version in group["versions"]:
            for each in version["resources"]:
                parts = [part["subresource"] for part in each.get("subresources", ())]
                name = group["metadata"].get("name", "")
                names |= {(name, each["resource"])}
                names |= {(name, f"{each['resource']}/{part}") for part in parts}
    return names


def test_both_forms_tell_the_same() -> None:
    older = {(group, name) for group in ["", *GROUPS] for name in resources(group)}
    newer = flattened(discovery.aggregated_core()) | flattened(discovery.aggregated_groups())
    assert older == newer


@pytest.mark.parametrize(
    "resource", [*kinds.RESOURCES, *kinds.VIRTUAL], ids=lambda of: f"{of.group}/{of.plural}"
)
def test_every_kind_is_discovered(resource: kinds.Resource) -> None:
    assert resource.plural in resources(resource.group, resource.version)


def test_the_version_is_one_that_clients_parse() -> None:
    version = discovery.version()
    assert (version["major"], version["minor"]) == ("1", "36")
    assert re.fullmatch(r"v\d+\.\d+\.\d+\+[0-9A-Za-z.-]+", version["gitVersion"])


def test_the_version_says_that_this_is_refloat() -> None:
    assert discovery.version()["gitVersion"].endswith(f"+refloat-{refloat.__version__}")


def test_the_version_claims_no_go_program() -> None:
    version = discovery.version("linux/amd64")
    assert version["goVersion"] == version["compiler"] == ""
    assert version["platform"] == "linux/amd64"
