# SPDX-License-Identifier: Apache-2.0
"""How objects lie in the store and come out without being decoded."""

import msgspec
import pytest

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver import storage_codec
from refloat.store.contract import Entry
from tests import builders
from tests.apiserver_fixture import EVENTS, LEASES, NODES, PODS

NEW_EVENTS = kinds.of("events", "events.k8s.io")


def entry(resource: kinds.Resource, obj: Object, revision: int = 7) -> Entry:
    return Entry("k", storage_codec.pack(resource, obj), 1, revision)


@pytest.mark.parametrize(
    ("resource", "key", "prefix"),
    [
        (PODS, "pods/d/x", "pods/d/"),
        (NODES, "nodes/x", "nodes/"),
        (LEASES, "leases.coordination.k8s.io/d/x", "leases.coordination.k8s.io/d/"),
        (NEW_EVENTS, "events/d/x", "events/d/"),
    ],
)
def test_place_of_an_object(resource: kinds.Resource, key: str, prefix: str) -> None:
    assert storage_codec.key(resource, "d", "x") == key
    assert storage_codec.prefix(resource, "d" if resource.namespaced else "") == prefix


def test_object_comes_out_as_it_went_in_with_its_revision() -> None:
    obj = builders.pod(resourceVersion="99")
    out = storage_codec.unpack(PODS, entry(PODS, obj))
    assert out == {**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}}


def test_packing_leaves_the_object_alone() -> None:
    obj = builders.pod(resourceVersion="99")
    storage_codec.pack(PODS, obj)
    assert obj == builders.pod(resourceVersion="99")


def test_two_readers_get_objects_of_their_own() -> None:
    stored = entry(PODS, builders.pod())
    first = storage_codec.unpack(PODS, stored)
    first["spec"]["containers"].clear()
    assert storage_codec.unpack(PODS, stored)["spec"]["containers"]


@pytest.mark.parametrize("revision", [7, 0], ids=["stored", "made by a dry run"])
@pytest.mark.parametrize("resource", [PODS, EVENTS, NEW_EVENTS], ids=lambda each: each.api_version)
def test_joined_bytes_say_the_same_as_the_object(resource: kinds.Resource, revision: int) -> None:
    obj = builders.pod() if resource is PODS else builders.event()
    stored = entry(PODS if resource is PODS else EVENTS, obj, revision)
    whole = storage_codec.unpack(resource, stored)
    assert msgspec.json.decode(storage_codec.body(resource, stored)) == whole
    item = msgspec.json.decode(storage_codec.item(resource, stored))
    assert {"kind": whole["kind"], "apiVersion": whole["apiVersion"], **item} == whole


def test_event_is_one_thing_under_two_names() -> None:
    obj = {**builders.event(), "message": "m"}
    stored = entry(EVENTS, obj)
    new = storage_codec.unpack(NEW_EVENTS, stored)
    assert new["apiVersion"] == "events.k8s.io/v1"
    assert new["note"] == "m"
    assert new["regarding"] == obj["involvedObject"]
    assert storage_codec.unpack(EVENTS, entry(NEW_EVENTS, new))["message"] == "m"
