# SPDX-License-Identifier: Apache-2.0
"""The generators repeat themselves from a seed, and produce all kinds of calls."""

from random import Random
from typing import cast

import pytest

from refloat.api import kinds, schema
from tests.differential import api_case, calls, compare, objects, patches, values
from tests.differential.answers import ApiCall, ComparedAnswer, ServerPair

KINDS = {f"{each.group} {each.plural}".strip(): each for each in kinds.RESOURCES}


@pytest.mark.parametrize("resource", KINDS.values(), ids=KINDS)
def test_every_kind_has_objects_to_start_from(resource: kinds.Resource) -> None:
    struct = schema.struct(resource.api_version, resource.kind)
    bases = objects.bases(resource.group, resource.plural, "ns")
    assert bases
    assert all(each.keys() <= struct.fields.keys() for each in bases)


@pytest.mark.parametrize("resource", KINDS.values(), ids=KINDS)
def test_one_seed_makes_one_fragment(resource: kinds.Resource) -> None:
    struct = schema.struct(resource.api_version, resource.kind)
    one, other = (
        [values.fragment(random, struct) for _ in range(50)] for random in (Random(7), Random(7))
    )
    assert one == other
    assert len({str(each) for each in one}) > 10


def test_pointers_lead_to_every_part() -> None:
    obj = {"a": {"b/c": 1}, "d": [2, {"e~": 3}]}
    assert dict(patches.pointers(obj)) == {
        "/a": {"b/c": 1},
        "/a/b~1c": 1,
        "/d": [2, {"e~": 3}],
        "/d/0": 2,
        "/d/1": {"e~": 3},
        "/d/1/e~0": 3,
    }


def test_a_change_keeps_what_it_does_not_name() -> None:
    merged = values.merged(Random(1), {"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    assert merged == {"a": {"b": 1, "c": 3}}


def test_a_change_leaves_the_first_object_alone() -> None:
    first = {"a": {"b": [{"c": 1}]}}
    values.merged(Random(1), first, {"a": {"b": [{"c": 2}]}})
    assert first == {"a": {"b": [{"c": 1}]}}


class NoServers:
    """Two servers that have nothing."""

    def both(self, call: ApiCall) -> tuple[ComparedAnswer, ComparedAnswer]:
        return ComparedAnswer(404, {}), ComparedAnswer(404, {})


OUTSIDE = {each.plural: each for each in kinds.RESOURCES if not each.namespaced}


@pytest.mark.parametrize("resource", OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_is_said_of_what_others_have_outside_of_namespaces(
    resource: kinds.Resource,
) -> None:
    case = api_case.ApiCase(
        Random(1), resource, "run", cast("ServerPair", NoServers()), tracked=False
    )
    sent_calls = [step.left for _ in range(100) for step in calls.steps(case)]
    whole = [
        each
        for each in sent_calls
        if each.path.partition("?")[0].strip("/").endswith(resource.plural)
    ]
    reads = [
        each for each in whole if each.method in ("GET", "DELETE") and "watch=1" not in each.path
    ]
    assert reads
    assert all("fieldSelector=metadata.name=run-" in each.path for each in reads)


def test_times_of_one_server_become_those_of_the_other() -> None:
    one, other = (
        {"metadata": {"uid": uid}, "status": {"at": [f"2026-01-01T00:00:0{second}Z"]}}
        for uid, second in (("uid-1", 1), ("uid-2", 2))
    )
    assert compare.is_now("2026-01-01T00:00:01Z")
    assert calls.as_of({**one, "x": "2026-01-01T00:00:01Z"}, one, other) == {
        **other,
        "x": "2026-01-01T00:00:01Z",
    }


def test_times_that_were_given_stay() -> None:
    one, other = (
        {"metadata": {"uid": uid}, "at": at} for uid, at in (("uid-1", TIME), ("uid-2", None))
    )
    assert calls.as_of(one, one, other)["at"] == TIME


TIME = "2019-01-01T00:00:00Z"
