# SPDX-License-Identifier: Apache-2.0
"""The verbs over HTTP: bodies, codes, and where a watch begins."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.apiserver import negotiation, routes
from tests import builders
from tests.apiserver_fixture import BUDGETS, CONFIG_MAPS, PODS, HttpCaller, ServerFixture, query
from tests.cases import cases
from tests.clocks import rest

MERGE = "application/merge-patch+json"
HERE = "/api/v1/namespaces/default"
MAPS = f"{HERE}/configmaps"
TOO_LARGE = "99999999999999999999"  # more than 64 bits hold
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


@pytest.fixture
async def face(world: ServerFixture) -> AsyncIterator[HttpCaller]:
    async with world.served() as face:
        yield face


async def until(face: HttpCaller, path: str, count: int) -> list[tuple[str, Object]]:
    """The first events of a watch."""
    received: list[tuple[str, Object]] = []
    async with face.watch(path) as events:
        async for event in events:
            received.append(event)
            if len(received) == count:
                break
    return received


def summary(events: list[tuple[str, Object]]) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"].get("name", "")) for kind, obj in events]


# -- where a watch begins ---------------------------------------------------


@cases(
    "query want",
    {
        "with the state": ("", ["a", "b", "new"]),
        "with any state": ("&resourceVersion=0", ["a", "b", "new"]),
        "after a revision": ("&resourceVersion={before}", ["b", "new"]),
        "with the state, as asked": (
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            ["a", "b", "new"],
        ),
        "with a state that is new enough": (
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={before}",
            ["a", "b", "new"],
        ),
        "now, as asked": ("&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", ["new"]),
        "after a revision, as asked": (
            "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={before}",
            ["b", "new"],
        ),
        "with what is selected": ("&fieldSelector=metadata.name=b", ["b"]),
        "whatever the limit": ("&limit=1", ["a", "b", "new"]),
    },
)
async def test_watch_begins(
    world: ServerFixture, face: HttpCaller, query: str, want: list[str]
) -> None:
    await world.create(builders.config_map("a"))
    before = world.store.revision
    await world.create(builders.config_map("b"))
    await rest()
    names: list[str] = []
    async with face.watch(f"{MAPS}?watch=1{query.format(before=before)}") as events:
        await world.create(builders.config_map("new"))
        async for kind, obj in events:
            assert kind == "ADDED"
            names.append(obj["metadata"]["name"])
            if len(names) == len(want):
                break
    assert names == want


@pytest.mark.parametrize(
    "query", ["", "&resourceVersion=0", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"]
)
async def test_end_of_the_initial_state_is_told(
    world: ServerFixture, face: HttpCaller, query: str
) -> None:
    await world.create(builders.config_map("a"))
    events = await until(face, f"{MAPS}?watch=1&allowWatchBookmarks=true{query}", 2)
    assert summary(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert events[1][1] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "resourceVersion": str(world.store.revision),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }


async def test_watch_of_a_forgotten_past_is_told_so(world: ServerFixture, face: HttpCaller) -> None:
    await world.create(builders.config_map("a"))
    await rest()
    await world.store.compact(world.store.revision)
    ((kind, status),) = await until(face, f"{MAPS}?watch=1&resourceVersion=1", 1)
    assert kind == "ERROR"
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == f"too old resource version: 1 ({world.store.compacted})"


async def test_watch_with_a_state_to_come_is_told_so(
    world: ServerFixture, face: HttpCaller
) -> None:
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999"
    ((kind, status),) = await until(face, f"{MAPS}?watch=1&{query}", 1)
    assert kind == "ERROR"
    assert (status["code"], status["reason"]) == (504, "Timeout")


async def test_older_way_to_watch_one_object(world: ServerFixture, face: HttpCaller) -> None:
    await world.create(builders.config_map("a"))
    await world.create(builders.config_map("b"))
    path = "/api/v1/watch/namespaces/default/configmaps/b"
    assert summary(await until(face, path, 1)) == [("ADDED", "b")]


async def test_older_way_to_watch_refuses_two_names(face: HttpCaller) -> None:
    path = "/api/v1/watch/namespaces/default/configmaps/b"
    code, status = await face.ask("GET", f"{path}?fieldSelector=metadata.name=c")
    assert code == 400
    assert status["message"] == "fieldSelector metadata.name doesn't match requested name"


@cases(
    "first_query line_count",
    {
        "and the first line is a bookmark": (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            4,
        ),
        "and the watches share the first line": (
            "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            3,
        ),
    },
)
async def test_only_the_first_line_of_each_watch_of_a_table_has_columns(
    world: ServerFixture, first_query: str, line_count: int
) -> None:
    first = _TableWatch(world, first_query)
    second = _TableWatch(world, f"resourceVersion={world.store.revision}")
    await rest()
    for number in "123":
        await world.create(builders.config_map(number))
        await rest()
    await first.close()
    await second.close()
    assert first.has_columns == [True] + [False] * (line_count - 1)
    assert second.has_columns == [True, False, False]


class _TableWatch:
    """A watch of a Table, and which of its lines have columns."""

    def __init__(self, world: ServerFixture, query_text: str) -> None:
        target = routes.parse(MAPS)
        assert target is not None
        form = negotiation.Form(shape="Table")
        self._lines = world.server.resources.watch(target, query(f"watch=1&{query_text}"), form)
        self.has_columns: list[bool] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for lines in self._lines:
            tables = [msgspec.json.decode(line)["object"] for line in lines.splitlines()]
            self.has_columns += [bool(table["columnDefinitions"]) for table in tables]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_watcher_that_leaves_is_forgotten(world: ServerFixture, face: HttpCaller) -> None:
    async with face.watch(f"{MAPS}?watch=1"):
        await _eventually(lambda: world.dispatcher.watchers == 1)
    await _eventually(lambda: world.dispatcher.watchers == 0)


async def _eventually(condition: Any) -> None:
    """Wait for what another task does; the suite's timeout bounds the wait."""
    while not condition():
        await rest()


# -- reading ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "what"), [("x", "invalid syntax"), (TOO_LARGE, "value out of range")]
)
async def test_get_of_a_revision_that_is_none(
    world: ServerFixture, face: HttpCaller, text: str, what: str
) -> None:
    await world.create(builders.config_map("a"))
    code, status = await face.ask("GET", f"{MAPS}/a?resourceVersion={text}")
    assert code == 500
    assert status["message"] == (
        f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {what}'
    )


async def test_watch_from_a_revision_that_is_too_large(face: HttpCaller) -> None:
    code, status = await face.ask("GET", f"{MAPS}?watch=1&resourceVersion={TOO_LARGE}")
    assert code == 500
    assert status["message"].endswith(f'parsing "{TOO_LARGE}": value out of range')


async def test_patch_to_a_version_that_is_too_large(world: ServerFixture, face: HttpCaller) -> None:
    await world.create(builders.config_map("a"))
    patch = {"metadata": {"resourceVersion": TOO_LARGE}}
    code, status = await face.ask("PATCH", f"{MAPS}/a", patch, media=MERGE)
    assert code == 500
    assert status["message"] == f'strconv.ParseUint: parsing "{TOO_LARGE}": value out of range'


async def test_get_of_an_event_at_a_revision_that_is_none(face: HttpCaller) -> None:
    """Kubernetes has no cache of events, and so another refusal."""
    code, status = await face.ask("GET", "/api/v1/namespaces/default/events/a?resourceVersion=x")
    assert code == 400
    assert status["message"] == (
        'invalid resource version: resourceVersion: Invalid value: "x": '
        'strconv.ParseUint: parsing "x": invalid syntax'
    )


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (f"{MAPS}/a?", (404, "NotFound")),
        (f"{MAPS}?fieldSelector=x=y&", (400, "BadRequest")),
        (f"{MAPS}?watch=1&resourceVersion=x&", (500, None)),
        (f"{MAPS}?", (400, "BadRequest")),
        (f"{MAPS}?watch=1&", (400, "BadRequest")),
    ],
)
async def test_table_that_cannot_be_made_is_refused_last(
    face: HttpCaller, path: str, want: tuple[int, str | None]
) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    code, status = await face.ask("GET", f"{path}includeObject=x", accept=accept)
    assert (code, status.get("reason")) == want


async def test_refusal_has_no_shape_and_is_json_then(face: HttpCaller) -> None:
    accept = "application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    code, status = await face.ask("GET", f"{MAPS}/a", accept=accept)
    assert (code, status["reason"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("fieldSelector=x=y&resourceVersion=x", '"x" is not a known field selector'),
        ("fieldSelector=x=y&dryRun=x", '"x" is not a known field selector'),
        ("dryRun=x&resourceVersion=x", "DeleteOptions.meta.k8s.io"),
        ("watch=1&resourceVersionMatch=Exact", "ListOptions.meta.k8s.io"),
    ],
)
async def test_first_of_the_mistakes_of_a_delete_of_many_is_told(
    face: HttpCaller, query: str, want: str
) -> None:
    code, status = await face.ask("DELETE", f"{MAPS}?{query}")
    assert code in (400, 422)
    assert status["message"].startswith(want)


async def test_long_list_is_sent_in_pieces_and_whole(
    world: ServerFixture, face: HttpCaller
) -> None:
    for index in range(450):
        await world.create(builders.config_map(f"c{index:03}"))
    code, body = await face.ask("GET", MAPS)
    assert code == 200
    assert [each["metadata"]["name"] for each in body["items"]] == [
        f"c{index:03}" for index in range(450)
    ]
    assert body["metadata"] == {"resourceVersion": str(world.store.revision)}


async def test_empty_list_is_a_list(face: HttpCaller) -> None:
    _, body = await face.ask("GET", MAPS)
    assert body["items"] == []
    assert body["kind"] == "ConfigMapList"


async def test_empty_list_of_metadata_is_null(face: HttpCaller) -> None:
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    _, body = await face.ask("GET", MAPS, accept=accept)
    assert body["items"] is None


# -- writing ----------------------------------------------------------------


async def test_create_update_patch_delete(world: ServerFixture, face: HttpCaller) -> None:
    code, config_map = await face.ask("POST", MAPS, builders.config_map("a"))
    assert code == 201
    code, put = await face.ask("PUT", f"{MAPS}/a", {**config_map, "data": {"k": "v"}})
    assert (code, put["data"]) == (200, {"k": "v"})
    code, patched = await face.ask("PATCH", f"{MAPS}/a", {"data": {"l": "w"}}, media=MERGE)
    assert (code, patched["data"]) == (200, {"k": "v", "l": "w"})
    code, status = await face.ask("DELETE", f"{MAPS}/a")
    assert code == 200
    assert status["details"] == {
        "name": "a",
        "kind": "configmaps",
        "uid": config_map["metadata"]["uid"],
    }


async def test_delete_of_a_pod_answers_with_the_pod(world: ServerFixture, face: HttpCaller) -> None:
    await world.create(builders.pod())
    _, pod = await face.ask("DELETE", f"{HERE}/pods/p")
    assert (pod["kind"], pod["metadata"]["name"]) == ("Pod", "p")


@cases(
    "orphans node want",
    {
        "dependants go, the pod has its grace": ("false", "n", 202),
        "dependants go, and so does the pod": ("false", "", 200),
        "dependants stay": ("true", "n", 200),
    },
)
async def test_delete_that_takes_dependants_along_is_accepted_until_it_is_done(
    world: ServerFixture, face: HttpCaller, orphans: str, node: str, want: int
) -> None:
    await world.create(builders.pod(node=node))
    code, _ = await face.ask("DELETE", f"{HERE}/pods/p?orphanDependents={orphans}")
    assert code == want


async def test_collection_is_deleted_by_selector(world: ServerFixture, face: HttpCaller) -> None:
    await world.create(builders.config_map("a", labels={"x": "y"}))
    await world.create(builders.config_map("b"))
    code, body = await face.ask("DELETE", f"{MAPS}?labelSelector=x=y")
    assert code == 200
    assert [each["metadata"]["name"] for each in body["items"]] == ["a"]
    assert not world.exists(CONFIG_MAPS, "a")
    assert world.exists(CONFIG_MAPS, "b")


async def test_dry_deletion_of_a_collection_writes_nothing(
    world: ServerFixture, face: HttpCaller
) -> None:
    await world.create(builders.config_map("a"))
    revision = world.store.revision
    await face.ask("DELETE", f"{MAPS}?dryRun=All")
    assert world.store.revision == revision


DRY = {
    "create": ("POST", MAPS, builders.config_map("new")),
    "update": ("PUT", f"{MAPS}/a", builders.config_map("a", data={"k": "v"})),
    "patch": ("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}),
    "delete": ("DELETE", f"{MAPS}/a", None),
    "deletecollection": ("DELETE", MAPS, None),
    "status patch": ("PATCH", f"{HERE}/pods/p/status", {"status": {"phase": "Failed"}}),
    "eviction": ("POST", f"{HERE}/pods/p/eviction", {"metadata": {"name": "p"}}),
    "binding": (
        "POST",
        f"{HERE}/pods/p/binding",
        {"metadata": {"name": "p"}, "target": {"name": "n"}},
    ),
    "pod delete": ("DELETE", f"{HERE}/pods/p", None),
}


@cases("method path body", DRY)
async def test_dry_run_writes_nothing(
    world: ServerFixture, face: HttpCaller, method: str, path: str, body: Object | None
) -> None:
    await world.create(builders.config_map("a"))
    await world.create(builders.pod())
    revision = world.store.revision
    media = MERGE if method == "PATCH" else "application/json"
    code, _ = await face.ask(method, f"{path}?dryRun=All", body, media=media)
    assert code in (200, 201)
    assert world.store.revision == revision


# -- subresources with bodies of their own ----------------------------------


@cases(
    "body message",
    {
        "name": ({"metadata": {"name": "q"}}, "name in URL does not match name in {} object"),
        "no name": ({}, "name in URL does not match name in {} object"),
        "namespace": (
            {"metadata": {"name": "p", "namespace": "other"}},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    },
)
@pytest.mark.parametrize("kind", ["Eviction", "Binding"])
async def test_wish_for_another_pod_is_refused(
    world: ServerFixture, face: HttpCaller, kind: str, body: Object, message: str
) -> None:
    """behaviour C6.1"""
    await world.create(builders.pod())
    code, status = await face.ask("POST", f"{HERE}/pods/p/{kind.lower()}", body)
    assert (code, status["message"]) == (400, message.format(kind))


async def test_unknown_field_of_a_wish_is_refused_when_strict(
    world: ServerFixture, face: HttpCaller
) -> None:
    await world.create(builders.pod())
    wish = {"metadata": {"name": "p"}, "foo": 1}
    path = f"{HERE}/pods/p/eviction?fieldValidation=Strict"
    code, status = await face.ask("POST", path, wish)
    assert code == 400
    assert status["message"] == (
        'Eviction in version "v1" cannot be handled as a Eviction: '
        'strict decoding error: unknown field "foo"'
    )


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
async def test_eviction_of_either_version(
    world: ServerFixture, face: HttpCaller, version: str
) -> None:
    await world.create(builders.pod())
    wish = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": "p"}}
    assert await face.ask("POST", f"{HERE}/pods/p/eviction", wish) == (201, SUCCESS)
    assert not world.exists(PODS, "p")


async def test_eviction_takes_the_options_of_its_body(
    world: ServerFixture, face: HttpCaller
) -> None:
    await world.create(builders.pod(node="n"))
    wish = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 9}}
    await face.ask("POST", f"{HERE}/pods/p/eviction", wish)
    assert world.get(PODS, "p")["metadata"]["deletionGracePeriodSeconds"] == 9


async def test_refused_eviction_says_when_to_come_again(
    world: ServerFixture, face: HttpCaller
) -> None:
    await world.create(builders.pod(node="n", labels={"app": "x"}))
    await world.set_status(
        PODS, "p", phase="Running", conditions=[{"type": "Ready", "status": "True"}]
    )
    await world.create(builders.budget())
    await world.set_status(BUDGETS, "b", observedGeneration=0)
    code, status = await face.ask("POST", f"{HERE}/pods/p/eviction", {"metadata": {"name": "p"}})
    assert (code, status["details"]["retryAfterSeconds"]) == (429, 10)


# -- what is not served -----------------------------------------------------


@pytest.mark.parametrize("part", ["exec", "attach", "portforward"])
async def test_streams_to_containers_are_not_served(
    world: ServerFixture, face: HttpCaller, part: str
) -> None:
    await world.create(builders.pod())
    code, status = await face.ask("POST", f"{HERE}/pods/p/{part}")
    assert (code, status["reason"]) == (501, "NotImplemented")
