# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI documents say what Kubernetes' own say, as far as Refloat serves it."""

import hashlib
import json
import re
from functools import cache
from typing import Any

import pytest

from refloat.api import additions, descriptions, kinds, schema
from refloat.apiserver import discovery, openapi
from refloat.apiserver.openapi import answers, enums
from tests.unit.apiserver import openapi_golden

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
GOLDEN = json.loads(openapi_golden.FILE.read_text())
PATHS = sorted(openapi.index()["paths"])
GROUP_VERSIONS = [path for path in PATHS if re.search(r"/v\d", path)]


@cache
def document(path: str) -> dict[str, Any]:
    body = openapi.document(path)
    assert body is not None
    made: dict[str, Any] = json.loads(body)
    return made


def types(path: str) -> dict[str, Any]:
    found: dict[str, Any] = document(path)["components"]["schemas"]
    return found


def operation(path: str, address: str, method: str) -> dict[str, Any]:
    found: dict[str, Any] = document(path)["paths"][address][method]
    return found


def parameter_names(holder: dict[str, Any]) -> list[str]:
    return [each["name"] for each in holder.get("parameters", [])]


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


@pytest.mark.parametrize(
    ("struct", "field", "want"),
    [
        pytest.param(
            "io.k8s.api.batch.v1.JobSpec",
            "parallelism",
            {"type": "integer", "format": "int32"},
            id="a pointer has no default",
        ),
        pytest.param(
            "io.k8s.api.core.v1.ContainerPort",
            "containerPort",
            {"type": "integer", "format": "int32", "default": 0},
            id="a field that is never left out defaults to zero",
        ),
        pytest.param(
            "io.k8s.api.core.v1.ContainerPort",
            "protocol",
            {"type": "string", "default": "TCP", "enum": ["SCTP", "TCP", "UDP"]},
            id="a declared default and a list of values",
        ),
        pytest.param(
            "io.k8s.api.core.v1.LocalObjectReference",
            "name",
            {"type": "string", "default": ""},
            id="a declared default that is zero",
        ),
        pytest.param(
            "io.k8s.api.batch.v1.Job",
            "spec",
            {
                "default": {},
                "allOf": [{"$ref": "#/components/schemas/io.k8s.api.batch.v1.JobSpec"}],
            },
            id="a struct",
        ),
        pytest.param(
            "io.k8s.api.batch.v1.JobSpec",
            "podFailurePolicy",
            {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.batch.v1.PodFailurePolicy"}]},
            id="a pointer to a struct",
        ),
        pytest.param(
            f"{META}.ObjectMeta",
            "creationTimestamp",
            {"allOf": [{"$ref": f"#/components/schemas/{META}.Time"}]},
            id="a time",
        ),
        pytest.param(
            "io.k8s.api.core.v1.ResourceRequirements",
            "limits",
            {
                "type": "object",
                "additionalProperties": {
                    "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"
                },
            },
            id="a map of quantities",
        ),
        pytest.param(
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
            id="a list that merges by keys",
        ),
        pytest.param(
            "io.k8s.api.core.v1.PodSpec",
            "nodeSelector",
            {
                "type": "object",
                "additionalProperties": {"type": "string", "default": ""},
                "x-kubernetes-map-type": "atomic",
            },
            id="a map that is owned as a whole",
        ),
    ],
)
def test_a_field_is_described_by_its_type(struct: str, field: str, want: dict[str, Any]) -> None:
    found = dict(types("apis/batch/v1")[struct]["properties"][field])
    found.pop("description", None)
    assert found == want


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
    found = {key: each for key, each in types("api/v1")[name].items() if key != "description"}
    if "oneOf" in found:
        found["oneOf"] = [each["type"] for each in found["oneOf"]]
    assert found == want


def test_every_group_takes_delete_options_under_its_own_name_too() -> None:
    listed = types("apis/batch/v1")[f"{META}.DeleteOptions"]["x-kubernetes-group-version-kind"]
    assert [each["group"] for each in listed] == ["", "batch"]


def test_refloats_reason_for_a_deletion_is_in_the_type_and_in_the_query() -> None:
    reason = types("api/v1")[f"{META}.DeleteOptions"]["properties"]["reason"]
    assert reason["type"] == "string"
    address = "/api/v1/namespaces/{namespace}/pods/{name}"
    assert "reason" in parameter_names(operation("api/v1", address, "delete"))


# The addresses.


@pytest.mark.parametrize(
    "resource", kinds.RESOURCES, ids=lambda each: f"{each.plural}.{each.group}"
)
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


def known_structs() -> dict[str, schema.Struct]:
    found: dict[str, schema.Struct] = {}
    waiting = [*schema.kinds().values(), additions.struct("batch/v1", "Job")]
    waiting += [each for each in vars(answers).values() if isinstance(each, schema.Struct)]
    while waiting:
        struct = waiting.pop()
        if struct.name in found:
            continue
        found[struct.name] = struct
        for field in struct.fields.values():
            inner = field.type
            while isinstance(inner, schema.ListOf | schema.MapOf):
                inner = inner.element
            if isinstance(inner, schema.Struct):
                waiting.append(inner)
    return found


def test_no_text_is_of_a_field_that_there_is_not() -> None:
    known = known_structs()
    leaves = ("api.", "apis.", "runtime.", "util.")
    lost = [
        f"{struct}.{field}"
        for struct, texts in descriptions.texts().items()
        if not struct.startswith(leaves)
        for field in texts
        if struct not in known or (field and field not in known[struct].fields)
    ]
    assert lost == []


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
    found = types("apis/batch/v1")[struct]
    silent = [name for name, each in found["properties"].items() if not each.get("description")]
    assert silent == []
    assert found["description"]


@pytest.mark.parametrize("path", PATHS)
def test_every_operation_and_parameter_has_a_text(path: str) -> None:
    for item in document(path)["paths"].values():
        operations = [each for method, each in item.items() if method != "parameters"]
        taken = [each for holder in (item, *operations) for each in holder.get("parameters", [])]
        assert all(each["description"] for each in (*operations, *taken))


def test_texts_are_sentences() -> None:
    odd = [
        text
        for texts in descriptions.texts().values()
        for text in texts.values()
        if text != text.strip() or not text.endswith((".", "...")) or not text[0].isupper()
    ]
    assert odd == []


# The lists of values.


def test_listed_values_are_of_types_that_fields_have() -> None:
    used = set()
    for struct in known_structs().values():
        for field in struct.fields.values():
            inner = field.type
            while isinstance(inner, schema.ListOf | schema.MapOf):
                inner = inner.element
            if isinstance(inner, schema.Scalar):
                used.add(inner.go)
    assert set(enums.VALUES) <= used


def test_where_empty_is_a_value_it_is_listed() -> None:
    assert enums.VALUES["v1.HostPathType"][0] == ""
    assert "" not in enums.VALUES["v1.RestartPolicy"]


# What only Refloat has.


def job_fields(*, added: bool) -> dict[str, Any]:
    body = openapi.document("apis/batch/v1", added=added)
    assert body is not None
    schemas = json.loads(body)["components"]["schemas"]
    found: dict[str, Any] = schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]
    return found


def test_a_backoff_policy_is_described_behind_its_gate_only() -> None:
    assert "backoffPolicy" not in job_fields(added=False)
    described = job_fields(added=True)["backoffPolicy"]
    assert described["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.api.batch.v1.BackoffPolicy"}
    ]
    assert "RetriableAndNonRetriableFailures" in described["description"]
    assert set(job_fields(added=True)) - set(job_fields(added=False)) == {"backoffPolicy"}


def test_only_documents_with_added_fields_differ() -> None:
    differing = [path for path in PATHS if openapi.digest(path) != openapi.digest(path, added=True)]
    assert differing == ["apis/batch/v1"]
