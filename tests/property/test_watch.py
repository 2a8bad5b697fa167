# SPDX-License-Identifier: Apache-2.0
"""Any number of writers at once: what watchers and lists show is one history.

Writers run concurrently through the registry, each in an order of its own
that chance decides. Watchers open at any time. Whatever happens, a watcher
sees every change after its beginning once and in order, and what the watcher knows at
the end is what a list shows then.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refloat.api.errors import StatusError
from refloat.api.meta import Object
from refloat.apiserver import listing, options, selection, storage_codec, watch_index
from refloat.apiserver.deletion import Options
from refloat.store.yielding import give_way
from tests import builders
from tests.apiserver_fixture import CONFIG_MAPS, ServerFixture, query, started
from tests.clocks import rest

NAMES = ("a", "b", "c")
TIERS = ("web", "db")
FINALIZER = "example.com/hold"

# What a writer may do, with a number that varies it.
ACTS = st.sampled_from(("create", "update", "label", "delete", "hold", "release", "pause"))
WRITERS = st.lists(
    st.lists(st.tuples(ACTS, st.sampled_from(NAMES), st.integers(0, 5)), max_size=8),
    min_size=1,
    max_size=5,
)
SELECTORS = st.sampled_from(
    (
        {},
        {"namespace": "default"},
        {"labels": "tier=web"},
        {"labels": "tier!=web"},
        {"fields": "metadata.name=a"},
        {"namespace": "default", "fields": "metadata.name!=a", "labels": "tier"},
    )
)

# The answers that a race may rightly give.
EXPECTED = (404, 409, 422)


async def write(world: ServerFixture, acts: list[tuple[str, str, int]]) -> None:
    for act, name, number in acts:
        try:
            await _act(world, act, name, number)
        except StatusError as error:
            if error.code not in EXPECTED:
                raise


async def _act(world: ServerFixture, act: str, name: str, number: int) -> None:
    if act == "create":
        tier = {"tier": TIERS[number % 2]}
        await world.create(builders.config_map(name, labels=tier, data={"n": str(number)}))
    elif act == "delete":
        await world.delete(CONFIG_MAPS, name, Options())
    elif act == "pause":
        for _ in range(number):
            await give_way()
    else:
        await world.change(CONFIG_MAPS, name, lambda obj: _change(obj, act, number))


def _change(obj: Object, act: str, number: int) -> None:
    metadata = obj["metadata"]
    if act == "update":
        obj["data"] = {"n": str(number)}
    elif act == "label":
        metadata["labels"] = {"tier": TIERS[number % 2]}
    elif act == "hold":
        metadata["finalizers"] = [FINALIZER]
    else:
        metadata.pop("finalizers", None)


@dataclass
class WatchView:
    """What a client knows from a watch, and the check of each event on its way."""

    watcher: watch_index.Watcher
    known: dict[str, Object] = field(default_factory=dict)
    revisions: list[int] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        event: Any = msgspec.json.decode(line)
        kind, obj = event["type"], event["object"]
        name, revision = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        assert revision > (self.revisions[-1] if self.revisions else self.watcher.after)
        self.revisions.append(revision)
        assert (kind == "ADDED") == (name not in self.known), (kind, name, self.known)
        if kind == "DELETED":
            del self.known[name]
        else:
            self.known[name] = obj


async def beginning(world: ServerFixture, selector: dict[str, Any]) -> WatchView:
    """List, then watch from there: the client's own way to miss nothing."""
    view = WatchView(world.watcher(CONFIG_MAPS, **selector))
    request = options.list_options(query(), watch=False)
    plan = await listing.plan(world.store, view.watcher.selection, request)
    view.watcher.after = int(plan.metadata["resourceVersion"])
    for entry in plan.entries:
        obj = storage_codec.unpack(CONFIG_MAPS, entry)
        view.known[obj["metadata"]["name"]] = obj
    await give_way()  # what comes between the list and the watch is not lost
    world.dispatcher.open(view.watcher)
    return view


async def state(world: ServerFixture, selector: selection.Selection) -> dict[str, Object]:
    request = options.list_options(query(), watch=False)
    plan = await listing.plan(world.store, selector, request)
    objects = (storage_codec.unpack(CONFIG_MAPS, entry) for entry in plan.entries)
    return {obj["metadata"]["name"]: obj for obj in objects}


def seen_by(world: ServerFixture, view: WatchView) -> list[int]:
    """The revisions that a view must have seen, from the log itself."""
    selector = view.watcher.selection
    events = world.store.events("configmaps/", after=view.watcher.after)
    return [
        event.revision
        for event in events
        if any(
            version is not None and selector.matches(version)
            for version in (event.entry, event.previous)
        )
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    writers=WRITERS,
    views=st.lists(st.tuples(st.integers(0, 12), SELECTORS), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_watchers_see_each_change_once_in_order_and_end_with_the_state(
    writers: list[list[tuple[str, str, int]]], views: list[tuple[int, dict[str, Any]]], seed: int
) -> None:
    asyncio.run(_history(writers, views, seed))


async def _history(
    writers: list[list[tuple[str, str, int]]], views: list[tuple[int, dict[str, Any]]], seed: int
) -> None:
    world = await started(seed=seed)
    opened: list[WatchView] = []

    async def watch(turns: int, selector: dict[str, Any]) -> None:
        for _ in range(turns):
            await give_way()
        opened.append(await beginning(world, selector))

    await asyncio.gather(
        *(write(world, acts) for acts in writers),
        *(watch(turns, selector) for turns, selector in views),
    )
    for view in opened:
        await rest()
        if view.watcher._buffer:
            for line in (await view.watcher.read(world.clock, 0) or b"").splitlines():
                view.take(line)
        assert view.revisions == seen_by(world, view)
        assert view.known == await state(world, view.watcher.selection)
    await world.dispatcher.close()
    await world.store.close()
