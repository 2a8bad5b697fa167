# SPDX-License-Identifier: Apache-2.0
"""The cache and its indexes."""

import pytest

from refloat.api.core import Pod, PodSpec
from refloat.api.structs import ObjectMeta, OwnerReference
from refloat.runtime import index
from refloat.runtime.cache import Cache, key_of, split_key
from tests.cases import cases

APP = index.label("app")


def pod(name: str, *, node: str = "", app: str = "", owners: tuple[str, ...] = ()) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            labels={"app": app} if app else None,
            owner_references=tuple(
                OwnerReference(uid=uid, controller=position == 0)
                for position, uid in enumerate(owners)
            ),
        ),
        spec=PodSpec(node_name=node),
    )


@pytest.fixture
def cache() -> Cache[Pod]:
    return Cache([index.NODE, index.OWNER, index.CONTROLLER, index.NAMESPACE, APP])


def put(cache: Cache[Pod], *pods: Pod) -> None:
    for each in pods:
        cache.put(key_of(each), each)


def names(pods: list[Pod]) -> list[str]:
    return [each.metadata.name for each in pods]


@cases(
    "namespace name key",
    {"namespaced": ("default", "a", "default/a"), "of the cluster": ("", "node-1", "node-1")},
)
def test_keys_are_namespace_and_name(namespace: str, name: str, key: str) -> None:
    assert key_of(Pod(metadata=ObjectMeta(name=name, namespace=namespace))) == key
    assert split_key(key) == (namespace, name)


def test_what_is_put_is_found_by_key_and_by_each_index(cache: Cache[Pod]) -> None:
    put(cache, pod("a", node="n1", app="x", owners=("j1", "j2")))
    first = cache.get("default/a")
    assert first is not None
    assert "default/a" in cache
    assert len(cache) == 1
    assert list(cache) == [first]
    assert cache.by(index.NODE, "n1") == [first]
    assert cache.by(index.OWNER, "j2") == [first]
    assert cache.by(index.CONTROLLER, "j1") == [first]
    assert cache.by(index.NAMESPACE, "default") == [first]
    assert cache.by(APP, "x") == [first]


def test_what_is_not_there_is_not_found(cache: Cache[Pod]) -> None:
    put(cache, pod("a"))
    assert cache.get("default/b") is None
    assert cache.by(index.NODE, "n1") == []
    assert cache.by(index.NODE, "") == []
    assert cache.by(index.CONTROLLER, "j2") == []
    assert cache.count(APP, "x") == 0


def test_a_change_moves_an_object_between_values(cache: Cache[Pod]) -> None:
    put(cache, pod("a", node="n1", app="x"), pod("a", node="n2", app="x"))
    assert cache.by(index.NODE, "n1") == []
    assert names(cache.by(index.NODE, "n2")) == ["a"]
    assert cache.count(APP, "x") == 1


def test_an_index_gives_the_newest_version(cache: Cache[Pod]) -> None:
    newer = pod("a", node="n1", app="y")
    put(cache, pod("a", node="n1", app="x"), newer)
    assert cache.by(index.NODE, "n1") == [newer]


def test_what_is_removed_is_found_nowhere(cache: Cache[Pod]) -> None:
    put(cache, pod("a", node="n1", app="x", owners=("j1",)), pod("b", node="n1"))
    cache.remove("default/a")
    assert names(cache.by(index.NODE, "n1")) == ["b"]
    assert cache.by(index.OWNER, "j1") == []
    assert cache.by(APP, "x") == []
    assert len(cache) == 1


def test_values_that_nobody_has_any_more_take_no_memory(cache: Cache[Pod]) -> None:
    put(cache, pod("a", node="n1", app="x", owners=("j1",)))
    cache.remove("default/a")
    assert all(not buckets for buckets in cache._buckets.values())


def test_an_owner_that_is_named_twice_counts_once(cache: Cache[Pod]) -> None:
    put(cache, pod("a", owners=("j1", "j1")))
    assert names(cache.by(index.OWNER, "j1")) == ["a"]
    cache.remove("default/a")
    assert cache.by(index.OWNER, "j1") == []


def test_objects_come_in_the_order_in_which_they_were_put(cache: Cache[Pod]) -> None:
    put(cache, *(pod(name, node="n1") for name in "cab"))
    put(cache, pod("c", node="n1"))
    assert names(cache.by(index.NODE, "n1")) == ["c", "a", "b"]


def test_what_by_gives_may_be_changed_without_harm(cache: Cache[Pod]) -> None:
    put(cache, pod("a", node="n1"))
    cache.by(index.NODE, "n1").clear()
    assert cache.count(index.NODE, "n1") == 1


def test_two_indexes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="have the name"):
        Cache([index.label("app"), index.label("app")])


def test_an_index_that_is_added_late_has_all_objects() -> None:
    cache: Cache[Pod] = Cache()
    put(cache, pod("a", node="n1"))
    cache.add_index(index.NODE)
    cache.add_index(index.NODE)
    assert names(cache.by(index.NODE, "n1")) == ["a"]
    put(cache, pod("b", node="n1"))
    assert names(cache.by(index.NODE, "n1")) == ["a", "b"]


def test_an_index_that_was_not_declared_is_a_defect() -> None:
    with pytest.raises(KeyError):
        Cache[Pod]().by(index.NODE, "n1")
