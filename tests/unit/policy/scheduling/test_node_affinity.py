# SPDX-License-Identifier: Apache-2.0
"""Which nodes match a required or preferred node affinity."""

from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.policy.scheduling import node_affinity
from tests.cases import cases

LABELS = {"zone": "x", "size": "5", "word": "big"}


def required(*terms: Object) -> node_affinity.NodeAffinity:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return node_affinity.compiled(msgspec.json.encode({"nodeAffinity": affinity}))


def label(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


def name(operator: str, *values: str) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}


@cases(
    "terms want",
    {
        "In, one of them": ([label("zone", "In", "w", "x")], True),
        "In, none of them": ([label("zone", "In", "w")], False),
        "In, no such label": ([label("none", "In", "w")], False),
        "NotIn, none of them": ([label("zone", "NotIn", "w")], True),
        "NotIn, one of them": ([label("zone", "NotIn", "x")], False),
        "NotIn, no such label": ([label("none", "NotIn", "x")], True),
        "Exists": ([label("zone", "Exists")], True),
        "Exists, it does not": ([label("none", "Exists")], False),
        "DoesNotExist": ([label("none", "DoesNotExist")], True),
        "DoesNotExist, it does": ([label("zone", "DoesNotExist")], False),
        "Gt": ([label("size", "Gt", "4")], True),
        "Gt is not equal": ([label("size", "Gt", "5")], False),
        "Lt": ([label("size", "Lt", "6")], True),
        "Lt is not equal": ([label("size", "Lt", "5")], False),
        "Gt of a word": ([label("word", "Gt", "4")], False),
        "Gt than a word": ([label("size", "Gt", "x")], False),
        "Gt than what only Python reads": ([label("size", "Gt", "1_0")], False),
        "Lt the largest number": ([label("size", "Lt", str(2**63 - 1))], True),
        "Lt a number beyond 64 bits": ([label("size", "Lt", str(2**63))], False),
        "Gt the least number": ([label("size", "Gt", str(-(2**63)))], True),
        "Gt one below it": ([label("size", "Gt", str(-(2**63) - 1))], False),
        "Lt more than Python reads": ([label("size", "Lt", "9" * 5000)], False),
        "Lt a six after zeros": ([label("size", "Lt", "0" * 5000 + "6")], True),
        "Gt a number with a sign": ([label("size", "Gt", "-1")], True),
        "an operator that nobody knows": ([label("size", "Near", "4")], False),
        "by name": ([name("In", "n")], True),
        "by another name": ([name("In", "m")], False),
        "by not being another": ([name("NotIn", "m")], True),
        "by not being itself": ([name("NotIn", "n")], False),
        "two names cannot be read": ([name("In", "m", "n")], False),
        "both hold": ([{**name("In", "n"), **label("zone", "Exists")}], True),
        "one of two": ([{**name("In", "n"), **label("none", "Exists")}], False),
        "second term": ([label("none", "Exists"), label("zone", "Exists")], True),
        "an empty term matches nothing": ([{}], False),
        "no term matches nothing": ([], False),
    },
)
def test_a_node_is(terms: list[Any], want: bool) -> None:
    assert required(*terms).matches("n", LABELS) is want


@cases(
    "terms want",
    {
        "all terms name theirs": ([name("In", "b"), name("In", "a")], ("b", "a")),
        "one does not": ([name("In", "a"), label("zone", "Exists")], None),
        "not by exclusion": ([name("NotIn", "a")], None),
        "they contradict": (
            [{"matchFields": name("In", "a")["matchFields"] + name("In", "b")["matchFields"]}],
            (),
        ),
    },
)
def test_only_these_can_match(terms: list[Any], want: tuple[str, ...] | None) -> None:
    assert required(*terms).names == want


def test_weights_of_preferences_that_are_met_add_up() -> None:
    liked = [
        {"weight": 3, "preference": label("zone", "In", "x")},
        {"weight": 50, "preference": label("zone", "In", "w")},
        {"weight": 4, "preference": label("size", "Exists")},
        {"weight": 9, "preference": {}},
    ]
    preferences = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": liked}}
    affinity = node_affinity.compiled(msgspec.json.encode(preferences))
    assert affinity.liking("n", LABELS) == 7
    assert affinity.matches("n", LABELS)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"podAffinity":{}}'])
def test_without_one_all_nodes_match(text: bytes) -> None:
    assert node_affinity.compiled(text).matches("n", {})
