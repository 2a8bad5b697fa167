# SPDX-License-Identifier: Apache-2.0
"""JSON patches: every answer below is one that a Kubernetes API server gave."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api.errors import StatusError
from refloat.apiserver.patch import json_patch
from tests.cases import cases
from tests.refusals import refusal

REJECTED = "the server rejected our request due to an error in our request"


def document() -> dict[str, Any]:
    return {
        "metadata": {"annotations": {"a/b": "s", "m~n": "t"}, "finalizers": ["a", "b", "c"]},
        "data": {"a": "1", "b": "2"},
        "spec": {"n": 1, "on": True},
    }


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **{key.rstrip("_"): each for key, each in more.items()}}


F = "/metadata/finalizers"

FITS = {
    "add a member": (op("add", "/data/c", value="3"), "/data", {"a": "1", "b": "2", "c": "3"}),
    "add over a member": (op("add", "/data/a", value="9"), "/data", {"a": "9", "b": "2"}),
    "add without a value adds null": (op("add", "/data/a"), "/data", {"a": None, "b": "2"}),
    "add what the path names before its slash": (op("add", "x/z", value=1), "/z", 1),
    "add a member with an empty name": (op("add", "/", value=1), "/", 1),
    "add at the end": (op("add", F + "/-", value="z"), F, ["a", "b", "c", "z"]),
    "add at an index": (op("add", F + "/0", value="z"), F, ["z", "a", "b", "c"]),
    "add right behind": (op("add", F + "/3", value="z"), F, ["a", "b", "c", "z"]),
    "add at -1 appends": (op("add", F + "/-1", value="z"), F, ["a", "b", "c", "z"]),
    "add at -2": (op("add", F + "/-2", value="z"), F, ["a", "b", "z", "c"]),
    "add at -4 is first": (op("add", F + "/-4", value="z"), F, ["z", "a", "b", "c"]),
    "an index may have a plus": (op("add", F + "/+1", value="z"), F + "/1", "z"),
    "an index may have zeros": (op("add", F + "/01", value="z"), F + "/1", "z"),
    "remove a member": (op("remove", "/data/a"), "/data", {"b": "2"}),
    "remove an item": (op("remove", F + "/1"), F, ["a", "c"]),
    "remove the last item": (op("remove", F + "/-1"), F, ["a", "b"]),
    "remove an escaped slash": (
        op("remove", "/metadata/annotations/a~1b"),
        "/metadata/annotations",
        {"m~n": "t"},
    ),
    "remove an escaped tilde": (
        op("remove", "/metadata/annotations/m~0n"),
        "/metadata/annotations",
        {"a/b": "s"},
    ),
    "replace a member": (op("replace", "/data/a", value="9"), "/data", {"a": "9", "b": "2"}),
    "replace a missing member adds it": (op("replace", "/data/c", value="3"), "/data/c", "3"),
    "replace an item": (op("replace", F + "/2", value="z"), F, ["a", "b", "z"]),
    "replace the third from the end": (op("replace", F + "/-3", value="z"), F, ["z", "b", "c"]),
    "replace the whole document": (op("replace", "", value={"a": 1}), "", {"a": 1}),
    "move a member": (op("move", "/data/q", from_="/data/a"), "/data", {"b": "2", "q": "1"}),
    "move onto itself": (op("move", "/data/a", from_="/data/a"), "/data", {"a": "1", "b": "2"}),
    "move an item back": (op("move", F + "/2", from_=F + "/0"), F, ["b", "c", "a"]),
    "move an item to the end": (op("move", F + "/-", from_=F + "/0"), F, ["b", "c", "a"]),
    "copy a member": (op("copy", "/data/q", from_="/data/a"), "/data/q", "1"),
    "copy a missing member gives null": (op("copy", "/data/q", from_="/data/z"), "/data/q", None),
    "copy an item": (op("copy", F + "/1", from_=F + "/0"), F, ["a", "a", "b", "c"]),
    "test a member": (op("test", "/data/a", value="1"), "/data/a", "1"),
    "test a map in another order": (
        op("test", "/data", value={"b": "2", "a": "1"}),
        "/data/a",
        "1",
    ),
    "test a list": (op("test", F, value=["a", "b", "c"]), "/data/a", "1"),
    "test the last item": (op("test", F + "/-1", value="c"), "/data/a", "1"),
    "test a missing member against null": (op("test", "/data/z", value=None), "/data/a", "1"),
    "test a missing member without a value": (op("test", "/data/z"), "/data/a", "1"),
    "test the whole document": (op("test", "", value=document()), "/data/a", "1"),
}


def found(doc: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        doc = doc[int(part)] if isinstance(doc, list) else doc[part]
    return doc


@cases("operation where want", FITS)
def test_operation_that_fits_is_applied(operation: dict[str, Any], where: str, want: Any) -> None:
    doc = document()
    assert found(json_patch.apply(doc, [operation]), where) == want
    assert doc == document(), "the input was changed"


UNFIT = {
    "an unknown operation": op("bogus", "/data/a"),
    "an operation in capitals": op("ADD", "/data/a", value="2"),
    "no operation": {"path": "/data/a"},
    "an empty operation": {},
    "null for an operation": None,
    "no path": {"op": "add", "value": 1},
    "a path without a slash": op("add", "data", value="2"),
    "adding below what is missing": op("add", "/nope/a", value="2"),
    "adding below a text": op("add", "/data/a/b", value="2"),
    "adding the whole document": op("add", "", value={}),
    "adding past the end": op("add", F + "/4", value="z"),
    "adding before the start": op("add", F + "/-5", value="z"),
    "adding at an index that is none": op("add", F + "/x", value="z"),
    "adding at an index with an underscore": op("add", F + "/1_0", value="z"),
    "removing the whole document": op("remove", ""),
    "removing a missing member": op("remove", "/data/z"),
    "removing below a text": op("remove", "/data/a/b"),
    "removing at the dash": op("remove", F + "/-"),
    "removing past the end": op("remove", F + "/3"),
    "removing before the start": op("remove", F + "/-4"),
    "removing at an index of thousands of digits": op("remove", f"{F}/{'9' * 5000}"),
    "replacing at the dash": op("replace", F + "/-", value="z"),
    "replacing past the end": op("replace", F + "/3", value="z"),
    "replacing below what is missing": op("replace", "/nope/a", value="z"),
    "replacing the document by a text": op("replace", "", value="z"),
    "moving a missing member": op("move", "/data/q", from_="/data/z"),
    "moving without from": op("move", "/data/q"),
    "moving into itself": op("move", "/data/x", from_="/data"),
    "moving the whole document": op("move", "/data/x", from_=""),
    "copying without from": op("copy", "/data/q"),
    "copying below what is missing": op("copy", "/nope/a", from_="/data/a"),
    "testing another value": op("test", "/data/a", value="2"),
    "testing for null": op("test", "/data/a", value=None),
    "testing a part of a map": op("test", "/data", value={"a": "1"}),
    "testing below what is missing": op("test", "/nope/x", value=None),
    "testing past the end": op("test", F + "/7", value=None),
    "testing a number against its float": op("test", "/spec/n", value=1.0),
    "testing a number against its text": op("test", "/spec/n", value="1"),
    "testing true against one": op("test", "/spec/on", value=1),
}


@cases("operation", UNFIT)
def test_an_operation_that_does_not_fit_is_refused(operation: dict[str, Any] | None) -> None:
    with pytest.raises(StatusError) as error:
        json_patch.apply(document(), [operation])
    assert error.value.status() | {"metadata": {}} == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": REJECTED,
        "reason": "Invalid",
        "details": {},
        "code": 422,
    }


OF_TYPE = "of type string"
FIELD = f"cannot unmarshal {{}} into Go struct field jsonPatchOp.{{}} {OF_TYPE}"
MALFORMED = [
    ({}, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    ("x", "cannot unmarshal string into Go value of type []handlers.jsonPatchOp"),
    (True, "cannot unmarshal bool into Go value of type []handlers.jsonPatchOp"),
    ([1], "cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    ([[]], "cannot unmarshal array into Go value of type handlers.jsonPatchOp"),
    ([{"op": 1, "path": 2}], FIELD.format("number", "op")),
    ([{"path": {}, "op": 1}], FIELD.format("object", "path")),
    ([{"op": "move", "from": []}], FIELD.format("array", "from")),
]


@pytest.mark.parametrize(("operations", "want"), MALFORMED)
def test_what_is_no_list_of_operations_is_a_bad_request(operations: Any, want: str) -> None:
    with pytest.raises(StatusError) as error:
        json_patch.apply(document(), operations)
    assert (error.value.code, error.value.reason) == (400, "BadRequest")
    assert error.value.message == f"error decoding patch: json: {want}"


@pytest.mark.parametrize("operations", [None, []])
def test_no_operations_change_nothing(operations: Any) -> None:
    assert json_patch.apply(document(), operations) == document()


def test_ten_thousand_operations_are_applied() -> None:
    operations = [op("add", "/data/a", value="x")] * json_patch.MAX_OPERATIONS
    assert json_patch.apply(document(), operations)["data"]["a"] == "x"


def test_more_than_ten_thousand_operations_are_too_large() -> None:
    operations = [op("add", "/data/a", value="x")] * (json_patch.MAX_OPERATIONS + 1)
    with pytest.raises(StatusError) as error:
        json_patch.apply(document(), operations)
    assert (error.value.code, error.value.reason) == (413, "RequestEntityTooLarge")
    assert error.value.message == (
        "Request entity too large: "
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_what_was_copied_does_not_change_with_its_origin() -> None:
    operations = [
        op("add", "/data/m", value={}),
        op("copy", "/data/n", from_="/data/m"),
        op("add", "/data/m/x", value=1),
    ]
    data = json_patch.apply(document(), operations)["data"]
    assert (data["m"], data["n"]) == ({"x": 1}, {})


def test_the_patch_itself_is_not_changed() -> None:
    operations = [op("add", "/data/m", value={}), op("add", "/data/m/x", value=1)]
    before = copy.deepcopy(operations)
    json_patch.apply(document(), operations)
    assert operations == before


def test_what_is_not_touched_is_shared() -> None:
    doc = document()
    assert json_patch.apply(doc, [op("remove", "/data/a")])["metadata"] is doc["metadata"]


names = st.sampled_from(["a", "b", "c~", "d/", "0"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(names, each, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(names, values, max_size=4)


@given(objects, objects)
def test_a_computed_patch_leads_from_one_document_to_the_other(
    source: dict[str, Any], target: dict[str, Any]
) -> None:
    before = copy.deepcopy(source)
    operations = jsonpatch.make_patch(source, target).patch
    assert json_patch.apply(source, operations) == target
    assert source == before


def test_copies_may_add_up_to_three_mebibytes_and_no_more() -> None:
    """A string of 1,000 is 1,002 bytes of JSON: 3,139 of them fit into 3,145,728."""
    doc = {"data": {"k": "v" * 1000}}
    copies = [{"op": "copy", "from": "/data/k", "path": f"/data/q{i}"} for i in range(3140)]
    assert len(json_patch.apply(doc, copies[:-1])["data"]) == 3140
    with pytest.raises(StatusError) as error:
        json_patch.apply(doc, copies)
    assert error.value.code == 422


def test_a_document_cannot_be_copied_into_itself_without_end() -> None:
    doc = {"data": {"k": "v" * 1000}}
    copies = [{"op": "copy", "from": "/data", "path": f"/data/k{i}"} for i in range(30)]
    with pytest.raises(StatusError) as error:
        json_patch.apply(doc, copies)
    assert error.value.code == 422


@cases(
    "operations code message",
    {
        "a map": ({}, 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        "a number for an operation": (
            [1],
            400,
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        "a number for a path": ([{"op": "remove", "path": 1}], 422, REJECTED),
    },
)
def test_a_patch_that_nobody_validates_is_decoded_once(
    operations: Any, code: int, message: str
) -> None:
    with refusal(code, message):
        json_patch.check_shape(operations, decodes_twice=False)
