# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI documents equal those of Kubernetes, as far as Refloat serves them."""

import hashlib
import json
import re
from functools import cache
from typing import Any

import pytest
from tools.openapi import documents

from refloat.api import kinds
from refloat.apiserver import discovery, openapi
from tests.cases import cases
from tests.unit.apiserver import openapi_golden

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
GOLDEN = json.loads(openapi_golden.FILE.read_text())
PATHS = sorted(openapi.index()["paths"])
GROUP_VERSIONS = [path for path in PATHS if re.search(r"/v\d", path)]


@cache
def document(path: str) -> dict[str, Any]:
    body = openapi.document(path)
    assert body is not None
    parsed: dict[str, Any] = json.loads(body)
    return parsed


def types(path: str) -> dict[str, Any]:
    schemas: dict[str, Any] = document(path)["components"]["schemas"]
    return schemas


def operation(path: str, address: str, method: str) -> dict[str, Any]:
    description: dict[str, Any] = document(path)["paths"][address][method]
    return description


def parameter_names(holder: dict[str, Any]) -> list[str]:
    return [each["name"] for each in holder.get("parameters", [])]


def test_the_shipped_documents_are_those_of_the_builder() -> None:
    stale = "run `python -m tools.openapi` and commit the result"
    assert openapi.documents() == documents.build(), stale


# The index.


def test_the_index_has_a_document_for_every_group_version_and_for_discovery() -> None:
    want = {"api", "apis", "version", "api/v1"}
    want |= {f"apis/{group}" for group in discovery.groups()}
    want |= {f"apis/{group}/v1" for group in discovery.groups()}
    assert set(PATHS) == want


@pytest.mark.parametrize("path", PATHS)
def test_the_address_of_a_document_carries_the_hash_of_its_bytes(path: str) -> None:
    body = openapi.document(path)
    assert body is not None
    want = hashlib.sha512(body).hexdigest().upper()
    address = openapi.index()["paths"][path]["serverRelativeURL"]
    assert address == f"/openapi/v3/{path}?hash={want}"
    assert openapi.digest(path) == want


@pytest.mark.parametrize(
    "path", ["", "/", "apis/apps/v1", "apis/batch/v2", "api/v1/", "/api/v1", "v2"]
)
def test_there_is_no_document_for_what_is_not_in_the_index(path: str) -> None:
    assert openapi.document(path) is None


def test_a_document_is_made_once() -> None:
    assert openapi.document("apis/batch/v1") is openapi.document("apis/batch/v1")


# The structure, compared with Kubernetes' own documents.


@pytest.mark.parametrize("path", PATHS)
def test_types_are_built_as_in_kubernetes(path: str) -> None:
    assert openapi_golden.schemas(document(path)) == GOLDEN[path]["schemas"]


@pytest.mark.parametrize("path", PATHS)
def test_addresses_are_described_as_in_kubernetes(path: str) -> None:
    assert openapi_golden.items(document(path)) == GOLDEN[path]["items"]


@pytest.mark.parametrize("path", PATHS)
def test_every_reference_leads_to_a_type_and_every_type_is_referred_to(path: str) -> None:
    body = openapi.document(path)
    assert body is not None
    referred = set(re.findall(rb'#/components/schemas/([^"]+)', body))
    assert referred == {name.encode() for name in types(path)}


def test_the_head_is_that_of_kubernetes() -> None:
    head = {key: document("api/v1")[key] for key in ("openapi", "info")}
    assert head == {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1.36"}}


@cases(
    "struct field want",
    {
        "a pointer has no default": (
            "io.k8s.api.batch.v1.JobSpec",
            "parallelism",
            {"type": "integer", "format": "int32"},
        ),
        "a field that is never left out defaults to zero": (
            "io.k8s.api.core.v1.ContainerPort",
            "containerPort",
            {"type": "integer", "format": "int32", "default": 0},
        ),
        "a declared default and a list of values": (
            "io.k8s.api.core.v1.ContainerPort",
            "protocol",
            {"type": "string", "default": "TCP", "enum": ["SCTP", "TCP", "UDP"]},
        ),
        "a declared default that is zero": (
            "io.k8s.api.core.v1.LocalObjectReference",
            "name",
            {"type": "string", "default": ""},
        ),
        "a struct": (
            "io.k8s.api.batch.v1.Job",
            "spec",
            {
                "default": {},
                "allOf": [{"$ref": "#/components/schemas/io.k8s.api.batch.v1.JobSpec"}],
            },
        ),
        "a pointer to a struct": (
            "io.k8s.api.batch.v1.JobSpec",
            "podFailurePolicy",
            {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.batch.v1.PodFailurePolicy"}]},
        ),
        "a time": (
            f"{META}.ObjectMeta",
            "creationTimestamp",
            {"allOf": [{"$ref": f"#/components/schemas/{META}.Time"}]},
        ),
        "a map of quantities": (
            "io.k8s.api.core.v1.ResourceRequirements",
            "limits",
            {
                "type": "object",
                "additionalProperties": {
                    "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"
                },
            },
        ),
        "a list that merges by keys": (
            "io.k8s.api.core.v1.PodSpec",
            "topologySpreadConstraints",
            {
                "type": "array",
                "items": {
                    "default": {},
                    "allOf": [
                        {"$ref": "#/components/schemas/io.k8s.api.core.v1.TopologySpreadConstraint"}
                    ],
                },
                "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"],
                "x-kubernetes-list-type": "map",
                "x-kubernetes-patch-merge-key": "topologyKey",
                "x-kubernetes-patch-strategy": "merge",
            },
        ),
        "a map that is owned as a whole": (
            "io.k8s.api.core.v1.PodSpec",
            "nodeSelector",
            {
                "type": "object",
                "additionalProperties": {"type": "string", "default": ""},
                "x-kubernetes-map-type": "atomic",
            },
        ),
    },
)
def test_a_field_is_described_by_its_type(struct: str, field: str, want: dict[str, Any]) -> None:
    schema = dict(types("apis/batch/v1")[struct]["properties"][field])
    schema.pop("description", None)
    assert schema == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"oneOf": ["string", "number"]}),
        (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            {"format": "int-or-string", "oneOf": ["integer", "string"]},
        ),
        (f"{META}.Time", {"type": "string", "format": "date-time"}),
    ],
)
def test_a_type_with_a_form_of_its_own_is_that_form(name: str, want: dict[str, Any]) -> None:
    schema = {key: each for key, each in types("api/v1")[name].items() if key != "description"}
    if "oneOf" in schema:
        schema["oneOf"] = [each["type"] for each in schema["oneOf"]]
    assert schema == want


def test_every_group_takes_delete_options_under_its_own_name_too() -> None:
    names = types("apis/batch/v1")[f"{META}.DeleteOptions"]["x-kubernetes-group-version-kind"]
    assert [each["group"] for each in names] == ["", "batch"]


def test_refloats_reason_for_a_deletion_is_in_the_type_and_in_the_query() -> None:
    reason = types("api/v1")[f"{META}.DeleteOptions"]["properties"]["reason"]
    assert reason["type"] == "string"
    address = "/api/v1/namespaces/{namespace}/pods/{name}"
    assert "reason" in parameter_names(operation("api/v1", address, "delete"))


# The addresses.


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda of: f"{of.plural}.{of.group}")
def test_kubectl_finds_that_a_patch_of_each_kind_takes_field_validation(
    resource: kinds.Resource,
) -> None:
    path = f"apis/{resource.group}/v1" if resource.group else "api/v1"
    want = {"group": resource.group, "version": "v1", "kind": resource.kind}
    patches = [
        item["patch"]
        for item in document(path)["paths"].values()
        if item.get("patch", {}).get("x-kubernetes-group-version-kind") == want
    ]
    assert patches
    assert all("fieldValidation" in parameter_names(each) for each in patches)


def test_a_patch_takes_the_four_forms_of_patches() -> None:
    address = "/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status"
    assert sorted(operation("apis/batch/v1", address, "patch")["requestBody"]["content"]) == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ]


def test_only_verbs_that_are_served_are_described() -> None:
    namespaces = document("api/v1")["paths"]["/api/v1/namespaces"]
    assert set(namespaces) == {"get", "post", "parameters"}


def test_what_all_operations_of_an_address_take_is_said_once() -> None:
    item = document("apis/batch/v1")["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs"]
    assert parameter_names(item) == ["namespace", "pretty"]
    assert parameter_names(item["post"]) == ["dryRun", "fieldManager", "fieldValidation"]


def test_the_body_of_an_eviction_is_of_another_group() -> None:
    address = "/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    kind = operation("api/v1", address, "post")["x-kubernetes-group-version-kind"]
    assert kind == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_operations_have_names_of_their_own() -> None:
    names = [
        each["operationId"]
        for path in PATHS
        for item in document(path)["paths"].values()
        for method, each in item.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", GROUP_VERSIONS)
def test_nothing_is_said_of_protobuf(path: str) -> None:
    assert b"protobuf" not in (openapi.document(path) or b"")


# The texts.


@pytest.mark.parametrize("path", GROUP_VERSIONS)
def test_every_kind_has_a_text(path: str) -> None:
    silent = [
        name
        for name, each in types(path).items()
        if "x-kubernetes-group-version-kind" in each and not each.get("description")
    ]
    assert silent == []


@pytest.mark.parametrize(
    "struct",
    [
        *(name for name in types("apis/batch/v1") if name.startswith("io.k8s.api.batch.")),
        *(f"io.k8s.api.core.v1.{name}" for name in ("Container", "Toleration")),
        *(f"{META}.{name}" for name in ("ObjectMeta", "OwnerReference", "DeleteOptions")),
    ],
)
def test_every_field_around_jobs_has_a_text(struct: str) -> None:
    schema = types("apis/batch/v1")[struct]
    silent = [name for name, each in schema["properties"].items() if not each.get("description")]
    assert silent == []
    assert schema["description"]


@pytest.mark.parametrize("path", PATHS)
def test_every_operation_and_parameter_has_a_text(path: str) -> None:
    for item in document(path)["paths"].values():
        operations = [each for method, each in item.items() if method != "parameters"]
        parameters = [
            each for holder in (item, *operations) for each in holder.get("parameters", [])
        ]
        assert all(each["description"] for each in (*operations, *parameters))


# What only Refloat has.


def job_fields(*, gated: bool) -> dict[str, Any]:
    body = openapi.document("apis/batch/v1", gated=gated)
    assert body is not None
    schemas = json.loads(body)["components"]["schemas"]
    fields: dict[str, Any] = schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]
    return fields


def test_a_backoff_policy_is_described_behind_its_gate_only() -> None:
    assert "backoffPolicy" not in job_fields(gated=False)
    described = job_fields(gated=True)["backoffPolicy"]
    assert described["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.api.batch.v1.BackoffPolicy"}
    ]
    assert "RetriableAndNonRetriableFailures" in described["description"]
    assert set(job_fields(gated=True)) - set(job_fields(gated=False)) == {"backoffPolicy"}


def test_only_documents_with_gated_fields_differ() -> None:
    differing = [path for path in PATHS if openapi.digest(path) != openapi.digest(path, gated=True)]
    assert differing == ["apis/batch/v1"]
