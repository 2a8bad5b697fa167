# SPDX-License-Identifier: Apache-2.0
"""Which nodes match a required or preferred node affinity."""

from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.policy import node_affinity

LABELS = {"zone": "x", "size": "5", "word": "big"}


def required(*terms: Object) -> node_affinity.NodeAffinity:
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return node_affinity.compiled(msgspec.json.encode({"nodeAffinity": wanted}))


def label(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


def name(operator: str, *values: str) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param([label("zone", "In", "w", "x")], True, id="In, one of them"),
        pytest.param([label("zone", "In", "w")], False, id="In, none of them"),
        pytest.param([label("none", "In", "w")], False, id="In, no such label"),
        pytest.param([label("zone", "NotIn", "w")], True, id="NotIn, none of them"),
        pytest.param([label("zone", "NotIn", "x")], False, id="NotIn, one of them"),
        pytest.param([label("none", "NotIn", "x")], True, id="NotIn, no such label"),
        pytest.param([label("zone", "Exists")], True, id="Exists"),
        pytest.param([label("none", "Exists")], False, id="Exists, it does not"),
        pytest.param([label("none", "DoesNotExist")], True, id="DoesNotExist"),
        pytest.param([label("zone", "DoesNotExist")], False, id="DoesNotExist, it does"),
        pytest.param([label("size", "Gt", "4")], True, id="Gt"),
        pytest.param([label("size", "Gt", "5")], False, id="Gt is not equal"),
        pytest.param([label("size", "Lt", "6")], True, id="Lt"),
        pytest.param([label("size", "Lt", "5")], False, id="Lt is not equal"),
        pytest.param([label("word", "Gt", "4")], False, id="Gt of a word"),
        pytest.param([label("size", "Gt", "x")], False, id="Gt than a word"),
        pytest.param([label("size", "Gt", "1_0")], False, id="Gt than what only Python reads"),
        pytest.param([label("size", "Lt", str(2**63 - 1))], True, id="Lt the largest number"),
        pytest.param([label("size", "Lt", str(2**63))], False, id="Lt a number beyond 64 bits"),
        pytest.param([label("size", "Gt", str(-(2**63)))], True, id="Gt the least number"),
        pytest.param([label("size", "Gt", str(-(2**63) - 1))], False, id="Gt one below it"),
        pytest.param([label("size", "Lt", "9" * 5000)], False, id="Lt more than Python reads"),
        pytest.param([label("size", "Lt", "0" * 5000 + "6")], True, id="Lt a six after zeros"),
        pytest.param([label("size", "Gt", "-1")], True, id="Gt a number with a sign"),
        pytest.param([label("size", "Near", "4")], False, id="an operator that nobody knows"),
        pytest.param([name("In", "n")], True, id="by name"),
        pytest.param([name("In", "m")], False, id="by another name"),
        pytest.param([name("NotIn", "m")], True, id="by not being another"),
        pytest.param([name("NotIn", "n")], False, id="by not being itself"),
        pytest.param([name("In", "m", "n")], False, id="two names cannot be read"),
        pytest.param([{**name("In", "n"), **label("zone", "Exists")}], True, id="both hold"),
        pytest.param([{**name("In", "n"), **label("none", "Exists")}], False, id="one of two"),
        pytest.param([label("none", "Exists"), label("zone", "Exists")], True, id="second term"),
        pytest.param([{}], False, id="an empty term matches nothing"),
        pytest.param([], False, id="no term matches nothing"),
    ],
)
def test_a_node_is(terms: list[Any], want: bool) -> None:
    assert required(*terms).matches("n", LABELS) is want


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param([name("In", "b"), name("In", "a")], ("b", "a"), id="all terms name theirs"),
        pytest.param([name("In", "a"), label("zone", "Exists")], None, id="one does not"),
        pytest.param([name("NotIn", "a")], None, id="not by exclusion"),
        pytest.param(
            [{"matchFields": name("In", "a")["matchFields"] + name("In", "b")["matchFields"]}],
            (),
            id="they contradict",
        ),
    ],
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
    wanted = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": liked}}
    affinity = node_affinity.compiled(msgspec.json.encode(wanted))
    assert affinity.liking("n", LABELS) == 7
    assert affinity.matches("n", LABELS)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"podAffinity":{}}'])
def test_without_one_all_nodes_match(text: bytes) -> None:
    assert node_affinity.compiled(text).matches("n", {})
