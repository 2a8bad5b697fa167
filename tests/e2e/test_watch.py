# SPDX-License-Identifier: Apache-2.0
"""Watches as they are on the wire."""

from collections.abc import Iterator

import pytest

from tests import builders
from tests.cases import cases
from tests.e2e import cluster, history
from tests.e2e.cluster import Api, Object

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def newest(api: Api, path: str) -> str:
    newest: str = api.get(path)["metadata"]["resourceVersion"]
    return newest


def label(api: Api, path: str, **labels: str | None) -> Object:
    return api.patch(path, {"metadata": {"labels": labels}})


def version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def test_a_watch_shows_each_change_with_its_version(api: Api, maps: str) -> None:
    with api.watch(maps, resourceVersion=newest(api, maps)) as stream:
        config_map = api.create(maps, builders.config_map("a", data={"a": "1"}))
        changed = label(api, f"{maps}/a", x="1")
        api.done("DELETE", f"{maps}/a")
        assert stream.next() == ("ADDED", config_map)
        assert stream.next() == ("MODIFIED", changed)
        kind, deleted = stream.next()
    assert kind == "DELETED"
    assert version(deleted) > version(changed), "the version of the deletion, not of the object"
    deleted["metadata"]["resourceVersion"] = changed["metadata"]["resourceVersion"]
    assert deleted == changed


def test_a_change_that_changes_nothing_is_not_shown(api: Api, maps: str) -> None:
    api.create(maps, builders.config_map("a", labels={"x": "1"}))
    with api.watch(maps, resourceVersion=newest(api, maps)) as stream:
        label(api, f"{maps}/a", x="1")
        api.create(maps, builders.config_map("b"))
        assert stream.names(1) == [("ADDED", "b")]


def test_a_watch_goes_on_from_any_version_that_it_showed(api: Api, maps: str) -> None:
    start = newest(api, maps)
    for name in "abc":
        api.create(maps, builders.config_map(name))
    with api.watch(maps, resourceVersion=start) as stream:
        events = [stream.next() for _ in "abc"]
    for index, (_, obj) in enumerate(events):
        with api.watch(maps, resourceVersion=version(obj), timeoutSeconds=1) as stream:
            assert stream.rest() == events[index + 1 :]


def test_a_watch_without_a_version_begins_with_what_is_there(api: Api, maps: str) -> None:
    config_map = api.create(maps, builders.config_map("a"))
    with api.watch(maps) as stream:
        assert [event for event in [stream.next()] if event[1] == config_map] == [
            ("ADDED", config_map)
        ]
        label(api, f"{maps}/a", x="1")
        assert stream.names(1) == [("MODIFIED", "a")]


def test_a_selector_turns_changes_at_its_edge_into_added_and_deleted(api: Api, maps: str) -> None:
    start = newest(api, maps)
    with api.watch(maps, resourceVersion=start, labelSelector="x=1") as stream:
        api.create(maps, builders.config_map("a"))
        label(api, f"{maps}/a", x="1")
        label(api, f"{maps}/a", x="1", y="1")
        before = api.get(f"{maps}/a")
        change = label(api, f"{maps}/a", x="2")
        api.done("DELETE", f"{maps}/a")
        api.create(maps, builders.config_map("b", labels={"x": "1"}))
        assert stream.names(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        kind, obj = stream.next()
        assert kind == "DELETED"
        assert obj["metadata"]["labels"] == before["metadata"]["labels"], "as it was last seen"
        assert version(obj) == version(change), "and the version of the change"
        assert stream.names(1) == [("ADDED", "b")]


def test_a_field_selector_has_edges_too(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    selector = "spec.nodeName=n1,status.phase!=Failed"
    with api.watch(pods, resourceVersion=newest(api, pods), fieldSelector=selector) as stream:
        api.create(pods, builders.pod("a"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}}
        api.create(f"{pods}/a/binding", {**binding, "target": target})
        api.patch(f"{pods}/a/status", {"status": {"phase": "Failed"}})
        assert stream.names(2) == [("ADDED", "a"), ("DELETED", "a")]


def test_a_watch_of_one_name_shows_that_one(api: Api, maps: str) -> None:
    selector = "metadata.name=b"
    with api.watch(maps, resourceVersion=newest(api, maps), fieldSelector=selector) as stream:
        for name in "abc":
            api.create(maps, builders.config_map(name))
        api.done("DELETE", f"{maps}/b")
        assert stream.names(2) == [("ADDED", "b"), ("DELETED", "b")]


def test_a_watch_of_all_namespaces_shows_every_one(api: Api, maps: str) -> None:
    everywhere = "/api/v1/configmaps"
    selector = "metadata.name=only-here"
    start = newest(api, everywhere)
    with api.watch(everywhere, resourceVersion=start, fieldSelector=selector) as stream:
        api.create(maps, builders.config_map("only-here"))
        assert stream.names(1) == [("ADDED", "only-here")]


def test_a_watch_ends_when_its_time_is_over(api: Api, maps: str) -> None:
    with api.watch(maps, resourceVersion=newest(api, maps), timeoutSeconds=1) as stream:
        assert stream.rest() == []


def test_the_state_ends_with_a_bookmark_when_it_is_asked_for(api: Api, maps: str) -> None:
    config_maps = [api.create(maps, builders.config_map(name)) for name in "ab"]
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    with api.watch(maps, **query, allowWatchBookmarks="true") as stream:
        events = [stream.next() for _ in config_maps]
        assert sorted(events, key=lambda event: version(event[1])) == [
            ("ADDED", each) for each in config_maps
        ]
        kind, bookmark = stream.next()
        assert kind == "BOOKMARK"
        assert version(bookmark) >= version(config_maps[-1])
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert set(bookmark) == {"kind", "apiVersion", "metadata"}
        assert set(bookmark["metadata"]) == {"resourceVersion", "annotations"}
        after = api.create(maps, builders.config_map("c"))
        assert stream.next() == ("ADDED", after)


def test_the_state_is_not_sent_when_it_is_not_wanted(api: Api, maps: str) -> None:
    api.create(maps, builders.config_map("a"))
    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    with api.watch(maps, **query) as stream:
        api.create(maps, builders.config_map("b"))
        assert stream.names(1) == [("ADDED", "b")]


def test_a_bookmark_comes_before_the_end_of_a_watch(api: Api, maps: str) -> None:
    start = newest(api, maps)
    query = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": "4"}
    unseen = api.create(maps, builders.config_map("a"))
    with api.watch(maps, labelSelector="x", **query) as stream:
        marks = stream.rest()
    assert {kind for kind, _ in marks} == {"BOOKMARK"}
    assert version(marks[-1][1]) >= version(unseen), "nothing before it needs to be seen again"


def test_without_being_asked_for_there_are_no_bookmarks(api: Api, maps: str) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    with api.watch(maps, **query, timeoutSeconds=3) as stream:
        assert stream.rest() == []


def test_a_watch_of_tables_has_the_columns_in_its_first_event(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with api.watch(pods, accept=TABLE, resourceVersion=newest(api, pods)) as stream:
        pod = api.create(pods, builders.pod("a"))
        api.patch(f"{pods}/a/status", {"status": {"phase": "Running"}})
        _, first = stream.next()
        kind, second = stream.next()
    assert (first["kind"], first["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [column["name"] for column in first["columnDefinitions"]]
    assert names[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert first["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    assert kind == "MODIFIED"
    assert second["columnDefinitions"] is None or second["columnDefinitions"] == []
    [row] = second["rows"]
    assert row["cells"][:3] == ["a", "0/1", "Running"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"


def test_a_watch_of_metadata_shows_nothing_else(api: Api, maps: str) -> None:
    with api.watch(maps, accept=PARTIAL, resourceVersion=newest(api, maps)) as stream:
        config_map = api.create(maps, builders.config_map("a", data={"a": "1"}))
        kind, obj = stream.next()
    assert kind == "ADDED"
    assert obj == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": config_map["metadata"],
    }


@cases(
    "query want_code want_message",
    {
        "initial events without a match": (
            "sendInitialEvents=true",
            422,
            (
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            ),
        ),
        "a match without initial events": (
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            422,
            (
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            ),
        ),
        "no label selector": (
            "labelSelector=a%20b",
            400,
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        "a field that cannot be selected by": (
            "fieldSelector=spec.nope%3D1",
            400,
            '"spec.nope" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    },
)
def test_a_watch_that_makes_no_sense_is_refused(
    api: Api, maps: str, query: str, want_code: int, want_message: str
) -> None:
    answer = api.ask("GET", f"{maps}?watch=true&timeoutSeconds=1&{query}")
    assert (answer.status, answer.object["message"]) == (want_code, want_message)


# -- what is forgotten ---------------------------------------------------


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Object]]:
    """A server without a past, and an earlier page of a list."""
    data_dir = tmp_path_factory.mktemp("forgetful") / "data"
    maps = "/api/v1/namespaces/default/configmaps"
    with cluster.serving(data_dir) as server:
        api = Api(server.kubeconfig)
        for name in "abcd":
            api.create(maps, builders.config_map(name))
        page = api.get(f"{maps}?limit=2")
        label(api, f"{maps}/a", x="1")
        assert server.end() == 0
    history.forget(data_dir)
    with cluster.serving(data_dir) as server:
        yield api, page


FORGETFUL_MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_watch_of_a_forgotten_version_ends_with_an_error_event(
    forgetful: tuple[Api, Object],
) -> None:
    api, page = forgetful
    with api.watch(FORGETFUL_MAPS, resourceVersion=version(page)) as stream:
        kind, status = stream.next()
        assert stream.next() == ("", {})
    oldest = version(page) + 1  # from which a watch is still possible
    assert kind == "ERROR"
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {version(page)} ({oldest})",
        "reason": "Expired",
        "code": 410,
    }


def test_a_watch_of_the_newest_version_goes_on_after_forgetting(
    forgetful: tuple[Api, Object],
) -> None:
    api, _ = forgetful
    with api.watch(FORGETFUL_MAPS, resourceVersion=newest(api, FORGETFUL_MAPS)) as stream:
        label(api, f"{FORGETFUL_MAPS}/b", x="2")
        assert stream.names(1) == [("MODIFIED", "b")]


def test_a_page_of_a_forgotten_version_is_refused_with_a_way_to_go_on(
    forgetful: tuple[Api, Object],
) -> None:
    api, page = forgetful
    token = page["metadata"]["continue"]
    answer = api.ask("GET", f"{FORGETFUL_MAPS}?limit=2&continue={token}")
    status = answer.object
    assert (answer.status, status["reason"]) == (410, "Expired")
    assert status["message"].startswith("The provided continue parameter is too old")
    rest = api.get(f"{FORGETFUL_MAPS}?limit=2&continue={status['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]


def test_a_list_of_a_forgotten_version_is_refused(forgetful: tuple[Api, Object]) -> None:
    api, page = forgetful
    exact = f"resourceVersion={version(page)}&resourceVersionMatch=Exact"
    answer = api.ask("GET", f"{FORGETFUL_MAPS}?{exact}")
    assert (answer.status, answer.object["reason"]) == (410, "Expired")
    assert answer.object["message"] == "The resourceVersion for the provided list is too old."
