# SPDX-License-Identifier: Apache-2.0
"""Configurations that cannot be applied; the texts are a Kubernetes API server's."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refloat.api import schema
from refloat.api.errors import StatusError
from refloat.apiserver import apply
from refloat.apiserver.apply import checks

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def applied(config: Any, kind: str) -> dict[str, Any]:
    return apply.apply(
        None,
        config,
        manager="m",
        force=False,
        struct=schema.struct("v1", kind),
        api_version="v1",
        subresource="",
        now=NOW,
    )


def config_map(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **more}


def metadata(**more: Any) -> dict[str, Any]:
    return config_map(metadata={"name": "a", **more})


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


BAD_REQUESTS = [
    (None, "invalid object type: /, Kind="),
    ({}, "invalid object type: /, Kind="),
    ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
    ({"apiVersion": "v1"}, "invalid object type: /v1, Kind="),
    ({"apiVersion": "a/b/c", "kind": "Pod"}, "invalid object type: /, Kind="),
    (config_map(kind="Secret"), "invalid object type: /v1, Kind=Secret"),
    (config_map(apiVersion="apps/v1", kind="Foo"), "invalid object type: apps/v1, Kind=Foo"),
    (metadata(managedFields=[]), "metadata.managedFields must be nil"),
    (metadata(managedFields=[{}]), "metadata.managedFields must be nil"),
]


@pytest.mark.parametrize(("config", "want"), BAD_REQUESTS)
def test_what_is_no_configuration_of_the_kind_is_a_bad_request(config: Any, want: str) -> None:
    with pytest.raises(StatusError) as error:
        applied(config, "ConfigMap")
    assert (error.value.code, error.value.reason, error.value.message) == (400, "BadRequest", want)


STRING = "expected string, got &value.valueUnstructured{Value:"
SET = ".metadata.finalizers: element 0: "
NO_KEYS = f"{SET}associative list without keys has an element that's "
WITH_KEYS = ".spec.containers: element 0: associative list with keys may not have "
MISFITS = [
    (config_map(foo=1), ".foo: field not declared in schema"),
    (metadata(foo=1), ".metadata.foo: field not declared in schema"),
    (config_map(data={"a": 1}), f".data.a: {STRING}1}}"),
    (config_map(data={"a": 1.5}), f".data.a: {STRING}1.5}}"),
    (config_map(data={"a": True}), f".data.a: {STRING}true}}"),
    (config_map(data={"a": {}}), f".data.a: {STRING}map[string]interface {{}}{{}}}}"),
    (config_map(data={"a": []}), f".data.a: {STRING}[]interface {{}}{{}}}}"),
    (config_map(data=[]), ".data: expected map, got &{[]}"),
    (config_map(data="x"), ".data: expected map, got &{x}"),
    (config_map(data=5), ".data: expected map, got &{5}"),
    (config_map(immutable="x"), ".immutable: expected boolean, got &{x}"),
    (config_map(immutable=1), ".immutable: expected boolean, got &{1}"),
    (metadata(finalizers="x"), ".metadata.finalizers: expected list, got &{x}"),
    (
        metadata(finalizers=["x/a", "x/a"]),
        '.metadata.finalizers: duplicate entries for key [="x/a"]',
    ),
    (metadata(finalizers=[None]), f"{NO_KEYS}an explicit null"),
    (metadata(finalizers=[{}]), f"{NO_KEYS}a map type"),
    (metadata(finalizers=[["x"]]), f"{SET}not supported: associative list with lists as elements"),
    (
        metadata(deletionTimestamp=[1]),
        ".metadata.deletionTimestamp: expected any scalar, got &{[1]}",
    ),
    (pod(hostNetwork="x"), ".spec.hostNetwork: expected boolean, got &{x}"),
    (
        pod(activeDeadlineSeconds="x"),
        ".spec.activeDeadlineSeconds: expected numeric (int or float), got string",
    ),
    (
        pod(containers=[{"name": "c"}, {"name": "c"}]),
        '.spec.containers: duplicate entries for key [name="c"]',
    ),
    (pod(containers=[None]), f"{WITH_KEYS}a null element"),
    (pod(containers=["x"]), f"{WITH_KEYS}non-map elements"),
    (pod(containers={}), ".spec.containers: expected list, got &{map[]}"),
    (
        pod(containers=[{"name": "c", "ports": [{"containerPort": 8}, {"containerPort": 8}]}]),
        (
            '.spec.containers[name="c"].ports: '
            'duplicate entries for key [containerPort=8,protocol="TCP"]'
        ),
    ),
    (pod(tolerations=[{"foo": 1}]), ".spec.tolerations[0].foo: field not declared in schema"),
    (pod(tolerations=["x"]), ".spec.tolerations[0]: expected map, got &{x}"),
    (
        pod(containers=[{"name": "c", "resources": {"limits": {"cpu": {}}}}]),
        '.spec.containers[name="c"].resources.limits.cpu: expected any scalar, got &{map[]}',
    ),
    (
        pod(hostNetwork=3, a=1),
        (
            "errors:\n  .spec.hostNetwork: expected boolean, got &{3}\n"
            "  .spec.a: field not declared in schema"
        ),
    ),
]


@pytest.mark.parametrize(("config", "want"), MISFITS)
def test_what_does_not_fit_the_schema_is_refused(config: dict[str, Any], want: str) -> None:
    kind = config["kind"]
    with pytest.raises(StatusError) as error:
        applied(config, kind)
    assert (error.value.code, error.value.reason) == (500, "")
    assert error.value.message == (
        f"failed to create typed patch object (/a; /v1, Kind={kind}): {want}"
    )


FITTING = [
    metadata(managedFields=None),
    config_map(data=None),
    config_map(data={"a": None}),
    pod(containers=[{"image": "x"}]),
    pod(containers=[{"name": "c", "ports": [{"name": "x"}]}]),
    pod(containers=[{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]),
    pod(terminationGracePeriodSeconds=1.5),
    pod(topologySpreadConstraints=[{"maxSkew": 1}]),
]


@pytest.mark.parametrize("config", FITTING)
def test_what_the_schema_allows_is_left_to_validation(config: dict[str, Any]) -> None:
    applied(config, config["kind"])


def test_a_missing_key_is_its_zero() -> None:
    done = applied(pod(containers=[{"image": "x"}]), "Pod")
    fields = done["metadata"]["managedFields"][0]["fieldsV1"]
    assert fields == {"f:spec": {"f:containers": {'k:{"name":""}': {".": {}, "f:image": {}}}}}


def test_a_merged_object_that_is_none_of_its_kind_is_named() -> None:
    status = checks.unconvertible(pod(), "a fraction")
    assert status.code == 500
    assert status.message == (
        "failed to convert new object (/a; /v1, Kind=Pod) to proper version: "
        "unable to convert unstructured object to /v1, Kind=Pod: a fraction"
    )


def account(*secrets: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "a", "namespace": "ns"},
        "secrets": list(secrets),
    }


NAMELESS = (
    ".secrets: element 0: associative list with keys has an element that omits all key fields "
    '["name"] (and doesn\'t have default values for any key fields)'
)


def test_nothing_is_applied_to_an_object_with_items_that_nobody_could_own() -> None:
    struct = schema.struct("v1", "ServiceAccount")
    with pytest.raises(StatusError) as error:
        checks.check_live(account({"namespace": "x"}), struct)
    assert error.value.message == (
        "failed to create manager for existing fields: "
        f"failed to convert new object (ns/a; /v1, Kind=ServiceAccount) to smd typed: {NAMELESS}"
    )


def test_a_key_that_is_null_is_a_key() -> None:
    checks.check_live(account({"name": None}), schema.struct("v1", "ServiceAccount"))


def test_ownership_is_no_longer_told_once_an_item_has_no_key() -> None:
    live = applied(account({"name": "x"}), "ServiceAccount")
    new = {**account({"namespace": "x"}), "metadata": live["metadata"]}
    tracked = apply.track_update(
        live,
        new,
        manager="m",
        struct=schema.struct("v1", "ServiceAccount"),
        api_version="v1",
        subresource="",
        now=NOW,
    )
    assert "managedFields" in live["metadata"]
    assert "managedFields" not in tracked["metadata"]
