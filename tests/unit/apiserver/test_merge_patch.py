# SPDX-License-Identifier: Apache-2.0
"""Merge patches: RFC 7386's own examples, and where Kubernetes departs."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api.errors import StatusError
from refloat.apiserver.patch import merge_patch

CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": {"b": 1}}, {"a": []}, {"a": []}),
    ({"a": 1}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
    ({}, {"a": None}, {}),
    # Kubernetes drops null members inside of new lists, and keeps null items.
    ({}, {"a": [{"b": None, "c": 1}, None]}, {"a": [{"c": 1}, None]}),
    ({"a": "x"}, {"a": [{"b": None}]}, {"a": [{}]}),
    # Over a map the list stays unchanged.
    ({"a": {"b": 1}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
]


@pytest.mark.parametrize(("doc", "patch", "want"), CASES)
def test_a_patch_is_merged(doc: dict[str, Any], patch: dict[str, Any], want: Any) -> None:
    before = copy.deepcopy((doc, patch))
    assert merge_patch.apply(doc, patch) == want
    assert (doc, patch) == before


REFUSED = [
    (None, "Invalid JSON Patch"),
    ([], "array"),
    ([1], "array"),
    (1, "number"),
    (1.5, "number"),
    ("x", "string"),
    (False, "bool"),
]


@pytest.mark.parametrize(("patch", "want"), REFUSED)
def test_what_is_no_object_is_a_bad_request(patch: Any, want: str) -> None:
    if patch is not None:
        want = (
            f"error decoding patch: json: cannot unmarshal {want} into Go value "
            "of type map[string]interface {}"
        )
    with pytest.raises(StatusError) as error:
        merge_patch.apply({}, patch)
    assert (error.value.code, error.value.reason, error.value.message) == (400, "BadRequest", want)


def test_what_is_not_touched_is_shared() -> None:
    doc = {"a": {"x": 1}, "b": {"x": 1}}
    assert merge_patch.apply(doc, {"a": {"y": 2}})["b"] is doc["b"]


names = st.sampled_from("abc")
values = st.recursive(
    st.integers(0, 3),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(names, each, max_size=3),
    max_leaves=6,
)


def difference(source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in source if key not in target}
    for key, value in target.items():
        old: Any = source.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        if both:
            patch[key] = difference(old, value)
        elif old != value:
            patch[key] = value
    return patch


@given(st.dictionaries(names, values), st.dictionaries(names, values))
def test_a_computed_patch_leads_from_one_document_to_the_other(
    source: dict[str, Any], target: dict[str, Any]
) -> None:
    assert merge_patch.apply(source, difference(source, target)) == target
