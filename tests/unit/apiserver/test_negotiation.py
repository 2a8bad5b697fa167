# SPDX-License-Identifier: Apache-2.0
"""The form of an answer; the bytes equal those of Kubernetes."""

import msgspec
import pytest
import yaml

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver import negotiation
from refloat.apiserver.negotiation import Form
from tests import builders
from tests.apiserver_fixture import CONFIG_MAPS, JOBS, LEASES, PODS, PRIORITY_CLASSES, ServerFixture
from tests.cases import cases
from tests.clocks import START
from tests.refusals import refusal

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SERVED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMED = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


@cases(
    "header want",
    {
        "nothing": ("", Form()),
        "anything": ("*/*", Form()),
        "something, or anything": ("text/html,*/*", Form()),
        "a wildcard comes last": ("*/*,application/yaml", Form("application/yaml")),
        "what is liked best": (
            "application/json;q=0.2,application/yaml;q=0.8",
            Form("application/yaml"),
        ),
        "anything rather than what is not liked": ("application/yaml;q=0.1,*/*", Form()),
        "a weight that is none": ("application/json;q=x", Form()),
        "JSON": ("application/json", Form()),
        "YAML": ("application/yaml", Form("application/yaml")),
        "what is served of several": ("text/html, application/json", Form()),
        "a table": (TABLE, Form(shape="Table")),
        "the first of two": (f"{TABLE},application/json", Form(shape="Table")),
        "the second, of a table that is not served": (
            "application/json; as=Table; v=v9; g=meta.k8s.io, application/json",
            Form(),
        ),
        "not protobuf": ("application/vnd.kubernetes.protobuf, application/json", Form()),
    },
)
def test_form_is_accepted(header: str, want: Form) -> None:
    assert negotiation.accepted(header, "") == want


@pytest.mark.parametrize("header", ["application/*", "APPLICATION/JSON", "application"])
def test_no_part_of_a_form_is_accepted(header: str) -> None:
    with refusal(406, f"406: Not Acceptable\n\nAvailable representations: {SERVED}"):
        negotiation.accepted(header, "")


@pytest.mark.parametrize(("streams", "forms"), [(False, SERVED), (True, f"{SERVED}, {STREAMED}")])
def test_form_that_is_not_served_is_refused(streams: bool, forms: str) -> None:
    with refusal(406, f"406: Not Acceptable\n\nAvailable representations: {forms}"):
        negotiation.accepted("text/html", "", streams=streams)


def test_shape_that_is_not_served_is_refused() -> None:
    with refusal(406, f"only the following media types are accepted: {SERVED}"):
        negotiation.accepted("application/json;as=Table;v=v9;g=meta.k8s.io", "")


# -- YAML -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("510", '"510"'),
        ("true", '"true"'),
        ("null", '"null"'),
        ("", '""'),
        ("~", '"~"'),
        ("y", '"y"'),
        ("N", '"N"'),
        ("OFF", '"OFF"'),
        ("1e3", '"1e3"'),
        ("0o7", '"0o7"'),
        ("012", '"012"'),
        ("1_000", '"1_000"'),
        ("5.", '"5."'),
        ("1:30", '"1:30"'),
        (".inf", '".inf"'),
        ("2020-01-01", '"2020-01-01"'),
        ("2020-01-01T00:00:00Z", '"2020-01-01T00:00:00Z"'),
        ("a", "a"),
        ("a:b", "a:b"),
        ("it's", "it's"),
        ("=", "="),
        ("<<", "<<"),
        ("a: b", "'a: b'"),
        (" a", "' a'"),
        ("#a", "'#a'"),
        ("*a", "'*a'"),
        ("a\nb", "|-\n  a\n  b"),
        ("a\n", "|\n  a"),
        ("key: |\n  x\n", "|\n  key: |\n    x"),
    ],
)
def test_text_is_written(text: str, want: str) -> None:
    document = negotiation.as_yaml({"k": text}).decode()
    assert document == f"k: {want}\n"
    assert yaml.safe_load(document.replace("k: =", "k: '='").replace("k: <<", "k: '<<'")) == {
        "k": text
    }


def test_fields_are_sorted_and_empty_ones_kept() -> None:
    document = negotiation.as_yaml({"b": {}, "a": [], "c": None, "d": True}).decode()
    assert document == "a: []\nb: {}\nc: null\nd: true\n"


# -- lists and bookmarks ----------------------------------------------------


async def test_one_object_as_yaml(world: ServerFixture) -> None:
    await world.create(builders.config_map(data={"k": "1"}))
    entry = world.registry.get(CONFIG_MAPS, "default", "c")
    body = negotiation.encode_entry(CONFIG_MAPS, entry, Form("application/yaml"), world.clock.now())
    assert yaml.safe_load(body) == world.get(CONFIG_MAPS, "c")
    assert body.startswith(b'apiVersion: v1\ndata:\n  k: "1"\nkind: ConfigMap\n')


@pytest.mark.parametrize(
    ("resource", "parts"),
    [
        (CONFIG_MAPS, {}),
        (PODS, {"spec": {"containers": None}, "status": {}}),
        (
            JOBS,
            {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}},
        ),
        (LEASES, {"spec": {}}),
        (PRIORITY_CLASSES, {"value": 0}),
    ],
    ids=lambda each: getattr(each, "plural", ""),
)
def test_bookmark_is_an_object_with_nothing_in_it(resource: kinds.Resource, parts: Object) -> None:
    line = msgspec.json.decode(negotiation.bookmark(resource, negotiation.PLAIN, 7, now=START))
    assert line == {
        "type": "BOOKMARK",
        "object": {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": "7"},
            **parts,
        },
    }


@pytest.mark.parametrize("headers", [True, False])
def test_bookmark_of_a_table_is_a_row_of_nothing(headers: bool) -> None:
    line = msgspec.json.decode(
        negotiation.bookmark(
            CONFIG_MAPS, Form(shape="Table"), 7, now=START, initial_end=True, headers=headers
        )
    )
    columns = line["object"].pop("columnDefinitions")
    assert [each["name"] for each in columns or []] == (["Name", "Data", "Age"] if headers else [])
    metadata = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
    row = {
        "cells": ["", 0, "<unknown>"],
        "object": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
        },
    }
    assert line["object"] == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "rows": [row],
    }


def test_head_and_tail_embrace_the_items() -> None:
    head, tail = negotiation.list_head(JOBS, negotiation.PLAIN, {"resourceVersion": "7"})
    assert head + tail == (
        b'{"kind":"JobList","apiVersion":"batch/v1","metadata":{"resourceVersion":"7"},"items":[]}'
    )
