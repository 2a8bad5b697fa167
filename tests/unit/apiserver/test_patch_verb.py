# SPDX-License-Identifier: Apache-2.0
"""The patch verb on stored objects; each format has a separate suite."""

import asyncio
from typing import Any

import msgspec
import pytest

from refloat.api import kinds
from refloat.api.errors import StatusError
from refloat.api.meta import Object
from refloat.apiserver import apply_verb, patch_verb, storage_codec
from refloat.apiserver.routes import Target
from tests import builders
from tests.apiserver_fixture import BUDGETS, CONFIG_MAPS, JOBS, PODS, ServerFixture
from tests.cases import cases
from tests.refusals import refusal

JSON_PATCH = [{"op": "add", "path": "/data", "value": {"k": "v"}}]


async def patch(
    world: ServerFixture,
    resource: kinds.Resource,
    name: str,
    body: Any,
    *,
    patch_format: patch_verb.Format = "merge",
    subresource: str = "",
    **call: Any,
) -> Object:
    entry = await patch_verb.patch(
        world.registry,
        world.call(**call),
        Target(resource, "default", name, subresource),
        patch_format,
        body if isinstance(body, bytes) else msgspec.json.encode(body),
    )
    return storage_codec.unpack(resource, entry)


@pytest.mark.parametrize(
    ("patch_format", "body"),
    [("merge", {"data": {"k": "v"}}), ("strategic", {"data": {"k": "v"}}), ("json", JSON_PATCH)],
)
async def test_patch_is_applied_to_what_is_there(
    world: ServerFixture, patch_format: patch_verb.Format, body: Any
) -> None:
    await world.create(builders.config_map(labels={"a": "b"}))
    after = await patch(world, CONFIG_MAPS, "c", body, patch_format=patch_format)
    assert after["data"] == {"k": "v"}
    assert after["metadata"]["labels"] == {"a": "b"}


async def test_patch_without_a_change_keeps_the_revision(world: ServerFixture) -> None:
    await world.create(builders.config_map(data={"k": "v"}))
    revision = world.store.revision
    await patch(world, CONFIG_MAPS, "c", {"data": {"k": "v"}})
    assert world.store.revision == revision


async def test_patch_is_defaulted_and_counted_as_an_update(world: ServerFixture) -> None:
    await world.create(builders.job())
    after = await patch(world, JOBS, "j", {"spec": {"parallelism": None, "completions": None}})
    assert after["spec"]["parallelism"] == 1
    assert after["metadata"]["generation"] == 1
    after = await patch(world, JOBS, "j", {"spec": {"parallelism": 3}})
    assert after["metadata"]["generation"] == 2


async def test_patch_of_a_status_keeps_the_spec(world: ServerFixture) -> None:
    await world.create(builders.pod())
    body = {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    after = await patch(world, PODS, "p", body, subresource="status")
    assert "nodeName" not in after["spec"]
    assert after["status"]["phase"] == "Running"


async def test_patch_of_nothing_is_not_found_whatever_it_says(world: ServerFixture) -> None:
    with refusal(404, 'configmaps "c" not found'):
        await patch(world, CONFIG_MAPS, "c", b"{")


async def test_patch_with_a_version_insists_on_it(world: ServerFixture) -> None:
    before = await world.create(builders.config_map())
    version = before["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "data": {"k": "v"}}
    assert await patch(world, CONFIG_MAPS, "c", body)
    message = (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    with refusal(409, message):
        await patch(world, CONFIG_MAPS, "c", {**body, "data": {"k": "w"}})


@pytest.mark.parametrize("version", ["", "0"])
async def test_patch_with_the_version_of_nothing_does_not_insist(
    world: ServerFixture, version: str
) -> None:
    await world.create(builders.config_map())
    body = {"metadata": {"resourceVersion": version}, "data": {"k": "v"}}
    assert (await patch(world, CONFIG_MAPS, "c", body))["data"] == {"k": "v"}


async def test_patch_with_a_version_that_is_no_number(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    with refusal(500, 'strconv.ParseUint: parsing "x": invalid syntax'):
        await patch(world, CONFIG_MAPS, "c", {"metadata": {"resourceVersion": "x"}})


@cases(
    "patch_format body",
    {
        "kind removed": ("json", [{"op": "remove", "path": "/kind"}]),
        "kind is null": ("merge", {"kind": None}),
        "kind is empty": ("merge", {"kind": ""}),
        "kind does not count in a strategic merge": ("strategic", {"kind": "Pod"}),
        "nor does the version": ("strategic", {"apiVersion": "v2"}),
        "nor its absence": ("strategic", {"apiVersion": None}),
    },
)
async def test_patch_need_not_keep_the_kind(
    world: ServerFixture, patch_format: patch_verb.Format, body: Any
) -> None:
    before = await world.create(builders.config_map())
    assert await patch(world, CONFIG_MAPS, "c", body, patch_format=patch_format) == before


@cases(
    "patch_format body cause",
    {
        "kind is a number": (
            "merge",
            {"kind": 1},
            (
                "couldn't get version/kind; json parse error: "
                "json: cannot unmarshal number into Go struct field .kind of type string"
            ),
        ),
        "the version is looked at first": (
            "json",
            [
                {"op": "replace", "path": "/kind", "value": ["a"]},
                {"op": "replace", "path": "/apiVersion", "value": True},
            ],
            (
                "couldn't get version/kind; json parse error: "
                "json: cannot unmarshal bool into Go struct field .apiVersion of type string"
            ),
        ),
        "no object at all": (
            "json",
            [{"op": "replace", "path": "", "value": []}],
            (
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go "
                'value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
                'Kind string "json:\\"kind,omitempty\\"" }'
            ),
        ),
        "no version at all": (
            "merge",
            {"apiVersion": "a/b/c"},
            "unexpected GroupVersion string: a/b/c",
        ),
        "nobody's kind": (
            "merge",
            {"kind": "Foo"},
            'no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        "another kind": (
            "merge",
            {"kind": "Pod"},
            "converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        "strategic, a number": ("strategic", {"kind": 1}, "cannot convert int64 to string"),
        "strategic, a list": ("strategic", {"apiVersion": [1]}, "unrecognized type: string"),
        "strategic, bytes that are none": (
            "strategic",
            {"binaryData": {"a": [{}]}},
            "unrecognized type: uint8",
        ),
        "strategic, bytes that are no base64": (
            "strategic",
            {"binaryData": {"a": "!"}},
            "error decoding from json: illegal base64 data at input byte 0",
        ),
        "strategic, a time does not know its field": (
            "strategic",
            {"metadata": {"creationTimestamp": True}},
            "json: cannot unmarshal bool into Go value of type string",
        ),
    },
)
async def test_patch_leads_to_no_object(
    world: ServerFixture, patch_format: patch_verb.Format, body: Any, cause: str
) -> None:
    await world.create(builders.config_map())
    with pytest.raises(StatusError) as error:
        await patch(world, CONFIG_MAPS, "c", body, patch_format=patch_format)
    assert error.value.code == 422
    assert error.value.message.endswith(f'": {cause}')


@cases(
    "body cause",
    {
        "nobody's kind": (
            {"apiVersion": None, "kind": "Foo"},
            (
                'no kind "Foo" is registered for the internal version of group "batch" '
                'in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        "a kind of another group": (
            {"apiVersion": "/", "kind": "Pod"},
            (
                'no kind "Pod" is registered for the internal version of group "batch" '
                'in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        "another kind of the group": (
            {"apiVersion": None, "kind": "CronJob"},
            "converting (batch.CronJob) to (batch.Job): unknown conversion",
        ),
    },
)
async def test_kind_without_a_version_is_looked_for_among_the_internal_ones(
    world: ServerFixture, body: Object, cause: str
) -> None:
    await world.create(builders.job())
    with pytest.raises(StatusError) as error:
        await patch(world, JOBS, "j", body)
    assert error.value.message.endswith(f'": {cause}')


async def test_namespace_of_a_patched_object_is_looked_at_before_its_name(
    world: ServerFixture,
) -> None:
    await world.create(builders.config_map())
    body = {"metadata": {"$patch": "replace", "namespace": "x"}}
    message = (
        "the namespace of the provided object does not match the namespace sent on the request"
    )
    with refusal(400, message):
        await patch(world, CONFIG_MAPS, "c", body, patch_format="strategic")


async def test_patch_that_takes_the_version_away_leaves_no_field_known(
    world: ServerFixture,
) -> None:
    await world.create(builders.config_map(data={"k": "v"}))
    warnings: list[str] = []
    message = "the name of the object (c based on URL) was undeterminable: name must be provided"
    with refusal(400, message):
        await patch(world, CONFIG_MAPS, "c", {"apiVersion": None}, warnings=warnings)
    assert warnings == ['unknown field "data"', 'unknown field "metadata"']


@pytest.mark.parametrize("obj", [builders.pod("c"), builders.lease("c"), builders.node("c")])
async def test_patch_that_takes_the_version_away_is_refused_for_every_kind(
    world: ServerFixture, obj: Object
) -> None:
    await world.create(obj)
    resource = kinds.BY_KIND[obj["apiVersion"], obj["kind"]]
    with pytest.raises(StatusError) as error:
        await patch_verb.patch(
            world.registry,
            world.call(),
            Target(resource, "default" if resource.namespaced else "", "c"),
            "merge",
            b'{"apiVersion":null}',
        )
    assert error.value.code == 400


@pytest.mark.parametrize(
    ("number", "want"),
    [(4294967298, 2), (-4294967295, 1), (5.0, 5)],
    ids=["wrapped", "wrapped from below", "whole"],
)
async def test_strategic_merge_keeps_numbers_as_go_does(
    world: ServerFixture, number: float, want: int
) -> None:
    await world.create(builders.job())
    body = {"spec": {"parallelism": number}}
    after = await patch(world, JOBS, "j", body, patch_format="strategic")
    assert after["spec"]["parallelism"] == want


async def test_owners_that_a_patch_repeats_are_dropped_with_a_warning(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}
    warnings: list[str] = []
    body = {"metadata": {"ownerReferences": [owner, owner]}}
    after = await patch(world, CONFIG_MAPS, "c", body, warnings=warnings)
    assert after["metadata"]["ownerReferences"] == [owner]
    assert warnings == [
        (
            ".metadata.ownerReferences contains duplicate entries after mutating admission "
            "happens; API server dedups owner references in 1.20+, and may reject such requests "
            "as early as 1.24; please fix your requests; duplicate UID(s) observed: u"
        )
    ]


async def test_patch_cannot_rename(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    message = "the name of the object (d) does not match the name on the URL (c)"
    with refusal(400, message):
        await patch(world, CONFIG_MAPS, "c", {"metadata": {"name": "d"}})


async def test_dry_patch_writes_nothing(world: ServerFixture) -> None:
    before = await world.create(builders.config_map())
    after = await patch(world, CONFIG_MAPS, "c", {"data": {"k": "v"}}, dry_run=True)
    assert after["data"] == {"k": "v"}
    assert world.get(CONFIG_MAPS, "c") == before


async def test_patches_at_once_are_all_applied(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    bodies = [{"data": {f"k{index}": "v"}} for index in range(6)]
    await asyncio.gather(*(patch(world, CONFIG_MAPS, "c", body) for body in bodies))
    assert len(world.get(CONFIG_MAPS, "c")["data"]) == 6


async def test_unknown_fields_are_warned_of_and_dropped(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    call = world.call()
    await patch_verb.patch(
        world.registry, call, Target(CONFIG_MAPS, "default", "c"), "merge", b'{"foo":1}'
    )
    assert call.warnings == ['unknown field "foo"']
    assert "foo" not in world.get(CONFIG_MAPS, "c")


async def applied(world: ServerFixture, body: Object, manager: str = "m", **call: Any) -> Object:
    entry, _ = await apply_verb.patch(
        world.registry,
        world.call(manager=manager, **call),
        Target(CONFIG_MAPS, "default", "c"),
        msgspec.json.encode(body),
    )
    return storage_codec.unpack(CONFIG_MAPS, entry)


async def test_apply_that_creates_must_name_its_object(world: ServerFixture) -> None:
    message = "the name of the object (c based on URL) was undeterminable: name must be provided"
    body = {"apiVersion": "v1", "kind": "ConfigMap"}
    with refusal(400, message):
        await applied(world, body)
    await world.create(builders.config_map())
    assert await applied(world, body)


async def test_apply_to_another_name_is_refused_after_conflicts(world: ServerFixture) -> None:
    await applied(world, builders.config_map(data={"a": "1"}))
    other = builders.config_map("d", data={"a": "2"})
    with refusal(409, 'Apply failed with 1 conflict: conflict with "m": .data.a'):
        await applied(world, other, manager="n")
    message = "the name of the object (d) does not match the name on the URL (c)"
    with refusal(400, message):
        await applied(world, builders.config_map("d"))


async def test_apply_of_a_fraction_of_a_number_is_refused(world: ServerFixture) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "generation": 5.5}}
    message = (
        "failed to convert new object (/c; /v1, Kind=ConfigMap) to proper version: "
        "unable to convert unstructured object to /v1, Kind=ConfigMap: "
        "cannot convert float64 to int64"
    )
    with refusal(500, message):
        await applied(world, body)


async def test_apply_of_an_empty_name_is_refused(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    message = "the name of the object (c based on URL) was undeterminable: name must be provided"
    with refusal(400, message):
        await applied(world, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ""}})


async def test_apply_that_creates_passes_over_a_version(world: ServerFixture) -> None:
    assert await applied(world, builders.config_map(resourceVersion="77"))


async def test_apply_refuses_a_version_that_is_no_number(world: ServerFixture) -> None:
    with refusal(500, 'strconv.ParseUint: parsing "x": invalid syntax'):
        await applied(world, builders.config_map(resourceVersion="x"))


# -- applies that change only after another write -------------------------------


async def apply_budget(world: ServerFixture, manager: str, **status: Any) -> Object:
    body = {**builders.budget(), **({"status": status} if status else {})}
    body["metadata"] = {"name": body["metadata"]["name"]}
    entry, _ = await apply_verb.patch(
        world.registry,
        world.call(manager=manager),
        Target(BUDGETS, "default", body["metadata"]["name"]),
        msgspec.json.encode(body),
    )
    return storage_codec.unpack(BUDGETS, entry)


async def test_apply_that_would_change_only_its_time_writes_nothing(world: ServerFixture) -> None:
    await apply_budget(world, "b")
    before = await apply_budget(world, "a")
    assert "time" not in before["metadata"]["managedFields"][0]
    assert await apply_budget(world, "a", disruptionsAllowed=1) == before


async def test_time_that_moves_a_manager_among_the_others_is_a_change(world: ServerFixture) -> None:
    await apply_budget(world, "a")
    before = await apply_budget(world, "b")
    after = await apply_budget(world, "b", disruptionsAllowed=1)
    assert "time" in after["metadata"]["managedFields"][1]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


@pytest.mark.parametrize("value", [{}, [], {"a": 1}, [1]])
async def test_apply_takes_anything_for_a_number_or_text_until_it_is_converted(
    world: ServerFixture, value: Any
) -> None:
    body = builders.budget()
    name = body["metadata"]["name"]
    body["spec"] = {"minAvailable": value}
    kind = "object" if isinstance(value, dict) else "array"
    message = (
        f"failed to convert new object (/{name}; policy/v1, Kind=PodDisruptionBudget) "
        "to proper version: unable to convert unstructured object to "
        "policy/v1, Kind=PodDisruptionBudget: "
        f"json: cannot unmarshal {kind} into Go value of type int32"
    )
    with refusal(500, message):
        await apply_verb.patch(
            world.registry,
            world.call(manager="m"),
            Target(BUDGETS, "default", name),
            msgspec.json.encode(body),
        )


@pytest.mark.parametrize(
    ("body", "json_type"), [(b"[]", "array"), (b"1", "number"), (b"true", "bool"), (b"x", "string")]
)
async def test_apply_of_what_is_no_object_is_refused(
    world: ServerFixture, body: bytes, json_type: str
) -> None:
    message = (
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
        f"cannot unmarshal {json_type} into Go value of type map[string]interface {{}}"
    )
    with refusal(400, message):
        await apply_verb.patch(
            world.registry, world.call(manager="m"), Target(CONFIG_MAPS, "default", "c"), body
        )
