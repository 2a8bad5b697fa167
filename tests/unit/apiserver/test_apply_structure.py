# SPDX-License-Identifier: Apache-2.0
"""Sets of paths and the structure of values: encodings, order of lists, names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import schema
from refloat.apiserver.apply import elements, field_sets, managed_fields, shapes, structure
from refloat.apiserver.apply.field_sets import PathSet

CONFIG_MAP = shapes.of(schema.struct("v1", "ConfigMap"))
POD = shapes.of(schema.struct("v1", "Pod"))


def test_fields_are_encoded_in_canonical_order() -> None:
    encoded: dict[str, Any] = {
        "f:a": {".": {}, "f:b": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {}},
        "f:c": {'v:"x"': {}, "v:2": {}},
        "f:d": {},
    }
    mixed: dict[str, Any] = {
        "f:d": {},
        "f:c": {'v:"x"': {}, "v:2": {}},
        "f:a": {'k:{"protocol": "TCP", "containerPort": 80}': {}, "f:b": {}, ".": {}},
    }
    assert list(field_sets.encode(field_sets.decode(mixed))) == ["f:a", "f:c", "f:d"]
    assert field_sets.encode(field_sets.decode(mixed)) == encoded
    assert list(field_sets.encode(field_sets.decode(mixed))["f:c"]) == ["v:2", 'v:"x"']


def test_keys_are_ordered_by_number_not_by_text() -> None:
    ports = [elements.keyed({"containerPort": port}) for port in (443, 80, 8080)]
    assert sorted(ports, key=elements.order) == [
        'k:{"containerPort":80}',
        'k:{"containerPort":443}',
        'k:{"containerPort":8080}',
    ]


def test_elements_are_escaped_as_go_escapes_them() -> None:
    assert elements.keyed({"name": "<é>"}) == 'k:{"name":"\\u003cé\\u003e"}'


def test_paths_are_shown_as_kubernetes_shows_them() -> None:
    path = ("f:spec", 'k:{"name":"a","port":1}', 'v:"x"', "f:k8s.io/l")
    assert field_sets.show(path) == '.spec[name="a",port=1][="x"].k8s.io/l'


steps = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
path_lists = st.lists(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=6)


def as_plain(paths: PathSet) -> set[tuple[str, ...]]:
    return set(paths.paths())


@given(path_lists, path_lists)
def test_sets_of_paths_behave_as_sets(left: list[Any], right: list[Any]) -> None:
    one, other = field_sets.of(*left), field_sets.of(*right)
    assert as_plain(one.union(other)) == set(left) | set(right)
    assert as_plain(one.intersection(other)) == set(left) & set(right)
    assert as_plain(one.difference(other)) == set(left) - set(right)
    below = {path for path in left if any(path[: len(each)] == each for each in right)}
    assert as_plain(one.without(other)) == set(left) - below
    assert field_sets.decode(field_sets.encode(one)) == one


def finalizers(text: str) -> dict[str, Any]:
    return {"metadata": {"finalizers": list(text)}}


ORDERS = [
    ("abc", "abc", "abc"),
    ("abc", "cba", "cba"),
    ("abc", "c", "abc"),
    ("abc", "x", "abcx"),
    ("abc", "xb", "axbc"),
    ("abc", "bx", "abcx"),
    ("abcd", "db", "acdb"),
    ("abcd", "dxa", "bcdxa"),
    ("", "ba", "ba"),
    ("ab", "", "ab"),
    ("abc", "ca", "bca"),
    ("abcde", "ec", "abdec"),
]


@pytest.mark.parametrize(("live", "config", "want"), ORDERS)
def test_a_merged_list_keeps_the_configurations_order(live: str, config: str, want: str) -> None:
    merged = structure.merge(finalizers(live), finalizers(config), CONFIG_MAP)
    assert "".join(merged["metadata"]["finalizers"]) == want


def container(name: str, *ports: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "ports": list(ports)}]}}


def test_repeated_items_are_owned_together() -> None:
    port = {"containerPort": 53, "name": "a"}
    once = container("c", port)
    twice = container("c", port, {"containerPort": 53, "name": "b"})
    element = ("f:spec", "f:containers", 'k:{"name":"c"}', "f:ports")
    both = (*element, 'k:{"containerPort":53,"protocol":"TCP"}')
    comparison = structure.compare(once, twice, POD)
    assert as_plain(comparison.added) == {both}
    assert as_plain(comparison.removed) == {(*both, "f:containerPort"), (*both, "f:name"), both}
    again = structure.compare(twice, once, POD)
    assert as_plain(again.removed) == {both}
    assert both in as_plain(structure.paths_of(twice, POD))


def test_repeated_items_that_differ_are_modified() -> None:
    first, second = {"containerPort": 1, "name": "a"}, {"containerPort": 1, "name": "b"}
    comparison = structure.compare(
        container("c", first, second), container("c", second, first), POD
    )
    assert len(as_plain(comparison.modified)) == 1
    assert comparison.added.empty
    assert comparison.removed.empty


def test_a_blank_object_has_what_go_always_writes() -> None:
    assert shapes.blank(schema.struct("v1", "Pod")) == {
        "metadata": {},
        "spec": {"containers": None},
        "status": {},
    }


NAMES = [
    ("m", "kubectl/v1.36", "m"),
    ("", "kubectl/v1.36 (linux)", "kubectl"),
    ("", "", "unknown"),
    ("", "a\x00b", "ab"),
    ("", "x" * 200, "x" * 128),
    ("", "é" * 100, "é" * 64),
]


@pytest.mark.parametrize(("field_manager", "user_agent", "want"), NAMES)
def test_a_manager_is_named_by_the_request(field_manager: str, user_agent: str, want: str) -> None:
    assert managed_fields.manager_name(field_manager, user_agent) == want
