# SPDX-License-Identifier: Apache-2.0
"""Values as the API server's own types show and compare them."""

from typing import Any

from refloat.api import fields, go_internal_types
from tests.cases import cases


@cases(
    "kind value want",
    {
        "every field is shown, set or not": (
            "core.Taint",
            {"key": "a", "effect": "NoSchedule"},
            '{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}',
        ),
        "a pointer to nothing": ("*core.Taint", None, "null"),
        "a map": ("{}string", {"b": "<", "a": "&"}, '{"a":"\\u0026","b":"\\u003c"}'),
        "tags": ("v1.LabelSelector", {"matchLabels": {"a": "b"}}, '{"matchLabels":{"a":"b"}}'),
        "numbers and texts have their zeroes": (
            "core.ContainerPort",
            {"containerPort": 80},
            '{"Name":"","HostPort":0,"ContainerPort":80,"Protocol":"","HostIP":""}',
        ),
    },
)
def test_a_value_is_shown_by_the_names_of_its_go_type(kind: str, value: Any, want: str) -> None:
    assert fields.show(go_internal_types.shown(kind, value)) == want


def test_host_flags_are_shown_in_the_security_context() -> None:
    text = fields.show(go_internal_types.shown("core.PodSpec", {"hostPID": True}))

    assert '"SecurityContext":{"HostNetwork":false,"HostPID":true,' in text


@cases(
    "kind one other",
    {
        "no list is an empty list": ("core.PodSpec", {"volumes": []}, {}),
        "no map is an empty map": ("core.PodSpec", {"nodeSelector": {}}, {}),
        "a structure is always there": ("core.Container", {"resources": {}}, {"name": ""}),
        "quantities of one amount": (
            "core.ResourceRequirements",
            {"limits": {"memory": "1Ki"}},
            {"limits": {"memory": "1024"}},
        ),
    },
)
def test_values_are_equal_that_the_server_takes_for_the_same(
    kind: str, one: Any, other: Any
) -> None:
    assert go_internal_types.equal(kind, one, other)


def test_an_empty_structure_behind_a_pointer_is_not_nothing() -> None:
    assert not go_internal_types.equal("core.PodSpec", {"affinity": {}}, {})


def test_a_diff_names_no_files() -> None:
    old, new = {"name": "a", "containerPort": 1}, {"name": "b", "containerPort": 1}

    assert go_internal_types.diff("core.ContainerPort", old, new) == (
        "@@ -1,5 +1,5 @@\n"
        " {\n"
        '- "Name": "a",\n'
        '+ "Name": "b",\n'
        '  "HostPort": 0,\n'
        '  "ContainerPort": 1,\n'
        '  "Protocol": "",\n'
    )
