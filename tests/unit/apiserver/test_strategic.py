# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patches, on the real schema.

The results and error texts are a Kubernetes API server's; the engine was also
compared with that on some thousand generated patches.
"""

import copy
from typing import Any

import pytest

from refloat.api import schema
from refloat.api.errors import StatusError
from refloat.apiserver.patch import go_values, rejections, strategic, unstructured
from tests.cases import cases

POD = schema.struct("v1", "Pod")
NODE = schema.struct("v1", "Node")
SERVICE = schema.struct("v1", "Service")
CONFIG_MAP = schema.struct("v1", "ConfigMap")


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def containers(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pod(containers=list(items), **more)


def ordered(field: str, items: Any, **more: Any) -> dict[str, Any]:
    return {f"$setElementOrder/{field}": items, **more}


def gone(**key: Any) -> dict[str, Any]:
    return {"$patch": "delete", **key}


def meta(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata}


AB = containers({"name": "a", "image": "1"}, {"name": "b", "image": "1"})
ABC = pod(containers=named("a", "b", "c"))
ENV = containers({"name": "a", "env": [{"name": "E1", "value": "1"}, {"name": "E2", "value": "2"}]})
DNS = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
VOLUME = pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}])
F = ["a", "b", "c"]

POD_CASES: dict[str, tuple[Any, Any, Any]] = {
    "null is no change": (AB, None, AB),
    "an empty patch is no change": (AB, {}, AB),
    "an item is merged by its key and keeps its place": (
        AB,
        containers({"name": "b", "image": "2"}),
        containers({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
    ),
    "a new item comes before the live ones": (
        AB,
        containers({"name": "c"}),
        containers({"name": "c"}, *AB["spec"]["containers"]),
    ),
    "the patch's order wins among its own items": (
        ABC,
        pod(containers=named("c", "a")),
        pod(containers=named("b", "c", "a")),
    ),
    "a live item stays before the first named one that it was before": (
        pod(containers=named("a", "b", "c", "d")),
        pod(containers=named("d", "b", "x")),
        pod(containers=named("a", "c", "d", "b", "x")),
    ),
    "an item is deleted": (ABC, pod(containers=[gone(name="b")]), pod(containers=named("a", "c"))),
    "deleting a missing item is no change": (ABC, pod(containers=[gone(name="z")]), ABC),
    "an item is deleted and added again": (
        AB,
        containers(gone(name="a"), {"name": "a"}),
        containers({"name": "a"}, {"name": "b", "image": "1"}),
    ),
    "a list is replaced": (
        ABC,
        pod(containers=[{"$patch": "replace"}, {"name": "x"}, {"name": "a"}]),
        pod(containers=named("x", "a")),
    ),
    "a list is emptied": (ABC, pod(containers=[{"$patch": "replace"}]), pod(containers=[])),
    "null deletes a list": (ABC, pod(containers=None), pod()),
    "an empty list is no change": (ABC, pod(containers=[]), ABC),
    "lists in items are merged too": (
        ENV,
        containers({"name": "a", "env": [{"name": "E2", "value": "9"}, gone(name="E1")]}),
        containers({"name": "a", "env": [{"name": "E2", "value": "9"}]}),
    ),
    "null deletes a member of an item": (
        ENV,
        containers({"name": "a", "env": [{"name": "E1", "value": None}]}),
        containers({"name": "a", "env": [{"name": "E1"}, {"name": "E2", "value": "2"}]}),
    ),
    "an item that is new keeps its nulls and directives": (
        ENV,
        containers({"name": "a", "env": [{"name": "E3", "value": None, "$retainKeys": []}]}),
        containers(
            {
                "name": "a",
                "env": [
                    {"name": "E3", "value": None, "$retainKeys": []},
                    {"name": "E1", "value": "1"},
                    {"name": "E2", "value": "2"},
                ],
            }
        ),
    ),
    "a field that is new loses its nulls and deleted items": (
        containers({"name": "a"}),
        containers({"name": "a", "env": [gone(name="x"), {"name": "E", "value": None}]}),
        containers({"name": "a", "env": [{"name": "E"}]}),
    ),
    "of two ports with one number the first is merged": (
        containers({"name": "a", "ports": DNS}),
        containers({"name": "a", "ports": [{"containerPort": 53, "name": "x"}]}),
        containers({"name": "a", "ports": [DNS[0] | {"name": "x"}, DNS[1]]}),
    ),
    "both ports with one number are deleted": (
        containers({"name": "a", "ports": [{"containerPort": 80}, *DNS]}),
        containers({"name": "a", "ports": [gone(containerPort=53)]}),
        containers({"name": "a", "ports": [{"containerPort": 80}]}),
    ),
    "a list without a strategy is replaced": (
        pod(tolerations=[{"key": "a"}, {"key": "b"}]),
        pod(tolerations=[{"key": "c"}]),
        pod(tolerations=[{"key": "c"}]),
    ),
    "maps are merged": (
        pod(nodeSelector={"a": "1"}),
        pod(nodeSelector={"b": "2"}),
        pod(nodeSelector={"a": "1", "b": "2"}),
    ),
    "null deletes from a map": (
        pod(nodeSelector={"a": "1"}),
        pod(nodeSelector={"a": None}),
        pod(nodeSelector={}),
    ),
    "a map is replaced": (
        pod(securityContext={"runAsUser": 1, "fsGroup": 2}),
        pod(securityContext={"$patch": "replace", "fsGroup": 3}),
        pod(securityContext={"fsGroup": 3}),
    ),
    "a map is emptied": (
        pod(securityContext={"fsGroup": 2}),
        pod(securityContext={"$patch": "delete"}),
        pod(securityContext={}),
    ),
    "deleting a missing map is no change": (
        pod(),
        pod(securityContext={"$patch": "delete"}),
        pod(),
    ),
    "another type takes over": (
        pod(nodeSelector={"a": "1"}),
        pod(nodeSelector="x"),
        pod(nodeSelector="x"),
    ),
    "retained keys are all that stay": (
        VOLUME,
        pod(
            volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]
        ),
        pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    ),
    "nulls need not be retained": (
        VOLUME,
        pod(volumes=[{"name": "v", "$retainKeys": ["name"], "emptyDir": None}]),
        pod(volumes=named("v")),
    ),
    "scalars are united, the patch's first": (
        meta(finalizers=F),
        meta(finalizers=["z"]),
        meta(finalizers=["z", "a", "b", "c"]),
    ),
    "known scalars keep the patch's order": (
        meta(finalizers=F),
        meta(finalizers=["c", "a"]),
        meta(finalizers=["b", "c", "a"]),
    ),
    "scalars are deleted": (
        meta(finalizers=F),
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "z"]}},
        meta(finalizers=["a", "c"]),
    ),
    "deleting from a missing list is no change": (
        meta(),
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}},
        meta(),
    ),
    "scalars are put in order": (
        meta(finalizers=F),
        {"metadata": ordered("finalizers", ["c", "z", "a"])},
        meta(finalizers=["b", "c", "a"]),
    ),
    "the order says where new items go": (
        ABC,
        pod(containers=named("x"), **ordered("containers", named("a", "x", "b", "c"))),
        pod(containers=named("a", "x", "b", "c")),
    ),
    "an order without a patch sorts what is there": (
        ABC,
        {"spec": ordered("containers", named("c", "b", "a"))},
        pod(containers=named("c", "b", "a")),
    ),
    "what the order does not name keeps its place": (
        pod(containers=named("a", "s", "b", "c")),
        {"spec": ordered("containers", named("c", "b", "a"))},
        pod(containers=named("s", "c", "b", "a")),
    ),
    "an order with a deletion, as kubectl sends it": (
        ABC,
        pod(containers=[gone(name="b")], **ordered("containers", named("a", "c"))),
        pod(containers=named("a", "c")),
    ),
    "an order for a list that is new": (
        pod(),
        pod(containers=[{"name": "a"}, gone(name="b")], **ordered("containers", named("a"))),
        pod(containers=named("a")),
    ),
    "order for no list is no change": (pod(), {"spec": ordered("containers", named("a"))}, pod()),
    "a condition is merged by its type": (
        {
            "status": {
                "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
            }
        },
        {"status": {"conditions": [{"type": "B", "status": "False"}]}},
        {
            "status": {
                "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]
            }
        },
    ),
    "an unknown field is taken": (pod(), pod(x={"y": None, "z": 1}), pod(x={"z": 1})),
}


def check(doc: Any, patch: Any, struct: schema.Struct, want: Any) -> None:
    before = copy.deepcopy((doc, patch))
    assert strategic.apply(doc, patch, struct) == want
    assert (doc, patch) == before, "an input was changed"


@cases("doc patch want", POD_CASES)
def test_a_pod_is_patched(doc: Any, patch: Any, want: Any) -> None:
    check(doc, patch, POD, want)


def taint(key: str, effect: str) -> dict[str, str]:
    return {"key": key, "effect": effect}


OTHER_CASES: dict[str, tuple[schema.Struct, Any, Any, Any]] = {
    "taints have no merge key and are replaced": (
        NODE,
        {"spec": {"taints": [taint("a", "NoSchedule"), taint("b", "NoExecute")]}},
        {"spec": {"taints": [taint("b", "NoSchedule")]}},
        {"spec": {"taints": [taint("b", "NoSchedule")]}},
    ),
    "addresses of a node are merged by type": (
        NODE,
        {"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}},
        {"status": {"addresses": [{"type": "Hostname", "address": "h"}]}},
        {
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": "h"},
                    {"type": "InternalIP", "address": "1"},
                ]
            }
        },
    ),
    "pod CIDRs are a set": (
        NODE,
        {"spec": {"podCIDRs": ["a", "b"]}},
        {"spec": {"podCIDRs": ["b", "c"]}},
        {"spec": {"podCIDRs": ["a", "b", "c"]}},
    ),
    "ports of a service are merged by port": (
        SERVICE,
        {"spec": {"ports": [{"port": 80}, {"port": 443}]}},
        {"spec": {"ports": [{"port": 443, "name": "x"}, {"port": 1}]}},
        {"spec": {"ports": [{"port": 80}, {"port": 443, "name": "x"}, {"port": 1}]}},
    ),
    "data of a config map is merged": (
        CONFIG_MAP,
        {"data": {"a": "1", "b": "2"}},
        {"data": {"a": None, "c": "3"}},
        {"data": {"b": "2", "c": "3"}},
    ),
    "owner references are merged by uid": (
        CONFIG_MAP,
        meta(ownerReferences=[{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]),
        meta(ownerReferences=[gone(uid="1")]),
        meta(ownerReferences=[{"uid": "2", "name": "b"}]),
    ),
}


@cases("struct doc patch want", OTHER_CASES)
def test_other_kinds_are_patched(struct: schema.Struct, doc: Any, patch: Any, want: Any) -> None:
    check(doc, patch, struct, want)


MAP = "map[string]interface {}"
ERRORS: dict[str, tuple[Any, Any, int, str]] = {
    "list for a patch": ({}, [], 400, f"json: cannot unmarshal array into Go value of type {MAP}"),
    "a text for a patch": (
        {},
        "x",
        400,
        f"json: cannot unmarshal string into Go value of type {MAP}",
    ),
    "an item without its key": (
        ABC,
        containers({"image": "x", "tty": True}),
        500,
        "map: map[image:x tty:true] does not contain declared merge key: name",
    ),
    "a deletion without its key": (
        ABC,
        containers({"$patch": "delete", "image": "x"}),
        500,
        "map: map[$patch:delete image:x] does not contain declared merge key: name",
    ),
    "$patch: merge in a list": (
        ABC,
        containers({"$patch": "merge"}),
        500,
        "merging lists cannot yet be specified in the patch",
    ),
    "an unknown $patch in a list": (
        ABC,
        containers({"$patch": "bogus", "name": "a"}),
        500,
        "unknown patch type: bogus in map: map[$patch:bogus name:a]",
    ),
    "$patch: merge in a map": (
        pod(securityContext={}),
        pod(securityContext={"$patch": "merge", "fsGroup": 1}),
        500,
        "unknown patch type: merge in map: map[$patch:merge fsGroup:1]",
    ),
    "a number for $patch": (
        pod(securityContext={}),
        pod(securityContext={"$patch": 1}),
        500,
        "unknown patch type: %!s(int64=1) in map: map[$patch:1]",
    ),
    "mixed types in a set": (
        meta(finalizers=F),
        meta(finalizers=[1]),
        500,
        "list element types are not identical: [[a b c] [1]]",
    ),
    "null in a set": (
        meta(finalizers=F),
        meta(finalizers=[None]),
        500,
        "list element types are not identical: [[a b c] [<nil>]]",
    ),
    "a scalar among items": (
        ABC,
        pod(containers=["x"]),
        500,
        "list element types are not identical: [[map[name:a] map[name:b] map[name:c]] [x]]",
    ),
    "retained keys that are no list": (
        VOLUME,
        pod(volumes=[{"name": "v", "$retainKeys": "name"}]),
        400,
        "invalid patch format of retainKeys",
    ),
    "a member that is not retained": (
        VOLUME,
        pod(volumes=[{"name": "v", "$retainKeys": ["name"], "hostPath": {}}]),
        400,
        "invalid patch format of retainKeys",
    ),
    "a deletion of no list": (
        meta(),
        {"metadata": {"$deleteFromPrimitiveList": ["a"]}},
        400,
        "invalid patch format of primitive list",
    ),
    "an order of no list": (
        meta(),
        {"metadata": {"$setElementOrder": ["a"]}},
        400,
        "invalid patch format of setElementOrder list",
    ),
    "an order that is no list": (
        meta(finalizers=F),
        {"metadata": ordered("finalizers", "x")},
        500,
        "expected a []interface {}, but received a string",
    ),
    "an order of an unknown field": (
        pod(),
        {"spec": ordered("nope", [1])},
        500,
        'unable to find api field in struct PodSpec for the json field "nope"',
    ),
    "an order of what is no list": (
        pod(),
        {"spec": ordered("hostname", ["x"])},
        500,
        "expected slice or array type, but got: struct",
    ),
    "an order that lacks an item of the patch": (
        ABC,
        pod(containers=named("x", "a"), **ordered("containers", named("a", "x"))),
        500,
        (
            "The order in patch list:\n[map[name:x] map[name:a]]\n"
            " doesn't match $setElementOrder list:\n[map[name:a] map[name:x]]\n"
        ),
    ),
}


@cases("doc patch code message", ERRORS)
def test_a_patch_that_cannot_be_merged_is_refused(
    doc: Any, patch: Any, code: int, message: str
) -> None:
    with pytest.raises(StatusError) as error:
        strategic.apply(doc, patch, POD)
    assert (error.value.code, error.value.message) == (code, message)
    assert error.value.reason == {400: "BadRequest", 500: ""}[code]


def test_a_list_of_lists_is_unprocessable() -> None:
    with pytest.raises(StatusError) as error:
        strategic.apply(meta(finalizers=[]), meta(finalizers=[["a"]]), POD)
    assert (error.value.code, error.value.reason) == (422, "Invalid")


def test_what_is_not_touched_is_shared() -> None:
    doc = {"metadata": {"labels": {}}, **AB}
    result = strategic.apply(doc, containers({"name": "b", "image": "2"}), POD)
    assert result["metadata"] is doc["metadata"]
    assert result["spec"]["containers"][0] is doc["spec"]["containers"][0]


MISMATCHES: list[tuple[Any, str | None]] = [
    (pod(activeDeadlineSeconds="x"), "unrecognized type: int64"),
    (pod(activeDeadlineSeconds=1.5), "cannot convert float64 to int64"),
    (pod(activeDeadlineSeconds=2.0), None),
    (pod(activeDeadlineSeconds=None), None),
    (pod(hostNetwork="x"), "unrecognized type: bool"),
    (pod(hostNetwork=1), "unrecognized type: bool"),
    ({"spec": []}, "cannot restore struct from: slice"),
    ({"spec": True}, "cannot restore struct from: bool"),
    (meta(labels={"a": 1}), "cannot convert int64 to string"),
    (meta(labels={"a": 1.5}), "unrecognized type: string"),
    (meta(labels=[]), "cannot restore map from slice"),
    (pod(restartPolicy=2), "cannot convert int64 to v1.RestartPolicy"),
    (pod(restartPolicy=False), "unrecognized type: string"),
    (pod(containers={}), "cannot restore slice from map"),
    (pod(containers=[1]), "cannot restore struct from: int64"),
    (pod(x=1), None),
]


@pytest.mark.parametrize(("doc", "want"), MISMATCHES)
def test_a_mismatch_is_worded_as_by_the_conversion(doc: Any, want: str | None) -> None:
    assert unstructured.mismatch(doc, POD) == want


def test_bytes_are_no_number() -> None:
    secret = schema.struct("v1", "Secret")
    mismatch = unstructured.mismatch({"data": {"a": 1}}, secret)
    assert mismatch == "cannot restore slice from int64"


def test_a_mismatch_is_answered_with_the_patch_as_go_prints_it() -> None:
    patch = pod(b=["x", 1, 1.5, None], a={"d": True})
    status = rejections.undecodable(go_values.show(patch), "no").status()
    assert status["message"] == (
        ' "" is invalid: patch: Invalid value: "map[spec:map[a:map[d:true] b:[x 1 1.5 <nil>]]]": no'
    )
    assert status["code"] == 422
    assert status["details"] == {
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: "map[spec:map[a:map[d:true] b:[x 1 1.5 <nil>]]]": no',
                "field": "patch",
            }
        ]
    }


FLOATS = [
    (1.0, "1"),
    (1e20, "1e+20"),
    (1e21, "1e+21"),
    (1e5, "100000"),
    (123456789.0, "1.23456789e+08"),
    (0.0001, "0.0001"),
    (0.00001, "1e-05"),
    (2.5, "2.5"),
    (-1.25e-7, "-1.25e-07"),
]


@pytest.mark.parametrize(("value", "want"), FLOATS)
def test_floats_are_printed_as_go_prints_them(value: float, want: str) -> None:
    assert go_values.show(value) == want
