# SPDX-License-Identifier: Apache-2.0
"""Values as the API server's own types show and compare them."""

from typing import Any

import pytest

from refloat.api import fields, internal


@pytest.mark.parametrize(
    ("kind", "value", "want"),
    [
        pytest.param(
            "core.Taint",
            {"key": "a", "effect": "NoSchedule"},
            '{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}',
            id="every field is shown, set or not",
        ),
        pytest.param("*core.Taint", None, "null", id="a pointer to nothing"),
        pytest.param("{}string", {"b": "<", "a": "&"}, '{"a":"\\u0026","b":"\\u003c"}', id="a map"),
        pytest.param(
            "v1.LabelSelector", {"matchLabels": {"a": "b"}}, '{"matchLabels":{"a":"b"}}', id="tags"
        ),
        pytest.param(
            "core.ContainerPort",
            {"containerPort": 80},
            '{"Name":"","HostPort":0,"ContainerPort":80,"Protocol":"","HostIP":""}',
            id="numbers and texts have their zeroes",
        ),
    ],
)
def test_a_value_is_shown_by_the_names_of_its_go_type(kind: str, value: Any, want: str) -> None:
    assert fields.show(internal.shown(kind, value)) == want


def test_host_flags_are_shown_in_the_security_context() -> None:
    shown = fields.show(internal.shown("core.PodSpec", {"hostPID": True}))

    assert '"SecurityContext":{"HostNetwork":false,"HostPID":true,' in shown


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        pytest.param("core.PodSpec", {"volumes": []}, {}, id="no list is an empty list"),
        pytest.param("core.PodSpec", {"nodeSelector": {}}, {}, id="no map is an empty map"),
        pytest.param(
            "core.Container", {"resources": {}}, {"name": ""}, id="a structure is always there"
        ),
        pytest.param(
            "core.ResourceRequirements",
            {"limits": {"memory": "1Ki"}},
            {"limits": {"memory": "1024"}},
            id="quantities of one amount",
        ),
    ],
)
def test_values_are_equal_that_the_server_takes_for_the_same(
    kind: str, one: Any, other: Any
) -> None:
    assert internal.equal(kind, one, other)


def test_an_empty_structure_behind_a_pointer_is_not_nothing() -> None:
    assert not internal.equal("core.PodSpec", {"affinity": {}}, {})


def test_a_diff_names_no_files() -> None:
    old, new = {"name": "a", "containerPort": 1}, {"name": "b", "containerPort": 1}

    assert internal.diff("core.ContainerPort", old, new) == (
        "@@ -1,5 +1,5 @@\n"
        " {\n"
        '- "Name": "a",\n'
        '+ "Name": "b",\n'
        '  "HostPort": 0,\n'
        '  "ContainerPort": 1,\n'
        '  "Protocol": "",\n'
    )
