# SPDX-License-Identifier: Apache-2.0
"""Binding and Eviction, the bodies of a pod's subresources."""

from refloat.api.meta import Object
from refloat.api.validation import binding, eviction
from tests.cases import cases


@cases(
    "target want",
    {
        "a node": ({"kind": "Node", "name": "n"}, []),
        "no kind means a node": ({"name": "n"}, []),
        "names are not looked at": ({"kind": "Node", "name": "A b"}, []),
        "no name": ({}, ["target.name: Required value"]),
        "another kind": (
            {"kind": "Foo"},
            [
                'target.kind: Unsupported value: "Foo": supported values: "Node", "<empty>"',
                "target.name: Required value",
            ],
        ),
    },
)
def test_a_binding_is_answered_as_by_kubernetes(target: Object, want: list[str]) -> None:
    assert [str(each) for each in binding.validate_create({"target": target})] == want


def test_an_eviction_deletes_no_pod_that_cannot_be_read() -> None:  # behaviour C6.1
    options = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}

    (mistake,) = eviction.validate_create({"deleteOptions": options})

    assert str(mistake) == (
        "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: "
        "can not be set for pod eviction, try after removing the option"
    )


def test_an_eviction_without_that_option_is_valid() -> None:
    assert eviction.validate_create({"deleteOptions": {"gracePeriodSeconds": -1}}) == []
    assert eviction.validate_create({}) == []
