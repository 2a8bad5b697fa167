# SPDX-License-Identifier: Apache-2.0
"""Random histories, each question answered by the store and by a naive model.

The model keeps every past state as a dictionary.
"""

import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from refloat.store import errors
from refloat.store.contract import Entry, Event, Page, Store
from refloat.store.memory import MemoryStore
from refloat.store.sqlite import SqliteStore
from tests.cases import cases

T = TypeVar("T")

KEYS = st.sampled_from(["a", "a/", "a/1", "a/2", "ab", "b/1", "b/2", "c"])
PREFIXES = st.sampled_from(["", "a", "a/", "a/1", "b/", "c", "x"])
VALUES = st.binary(max_size=8)
WRITES = st.tuples(st.sampled_from(["create", "update", "delete"]), KEYS, VALUES, st.booleans())

State = dict[str, tuple[bytes, int, int]]  # value, created, revision


class Model:
    """Every state, and every change."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.changes: list[tuple[int, str, bytes | None, bytes | None]] = []
        self.compacted = 0

    @property
    def now(self) -> State:
        return self.states[-1]

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    def write(self, verb: str, key: str, value: bytes, expected: int) -> object:
        """The expected answer: a type of error, or the fields of the entry."""
        entry = self.now.get(key)
        if verb == "create" and entry is not None:
            return errors.Exists
        if verb != "create" and (entry is None or entry[2] != expected):
            return errors.Conflict
        state, revision = dict(self.now), self.revision + 1
        created = revision if entry is None else entry[1]
        if verb == "delete":
            assert entry is not None
            del state[key]
            value = entry[0]
        else:
            state[key] = (value, created, revision)
        self.changes.append(
            (revision, key, None if verb == "delete" else value, entry[0] if entry else None)
        )
        self.states.append(state)
        return (key, value, created, revision)


def said(outcome: object) -> object:
    if isinstance(outcome, errors.StoreError):
        return type(outcome)
    assert isinstance(outcome, Entry)
    return (outcome.key, outcome.value, outcome.created, outcome.revision)


def told(event: Event) -> tuple[int, str, bytes | None, bytes | None]:
    new = event.entry.value if event.entry else None
    return event.revision, event.key, new, event.previous.value if event.previous else None


class MemoryMachine(RuleBasedStateMachine):
    """The memory store, against the model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.seen: list[Event] = []
        self.store: Store
        self.reader: asyncio.Task[None]

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.runner.run(wait())

    async def open(self) -> Store:
        return MemoryStore()

    @initialize()
    def start(self) -> None:
        self.store = self.run(self.open())
        self.follow()

    def follow(self) -> None:
        """Read all changes to come, from where the reading ended."""

        async def read(watch: Any) -> None:
            async for batch in watch:
                self.seen += batch

        async def begin() -> asyncio.Task[None]:
            after = self.seen[-1].revision if self.seen else 0
            return asyncio.ensure_future(read(self.store.watch("", after=after)))

        self.reader = self.run(begin())

    @rule(writes=st.lists(WRITES, min_size=1, max_size=6))
    def write_at_once(self, writes: list[tuple[str, str, bytes, bool]]) -> None:
        """Writes of one batch; each expects the revision from before the batch or the right one."""

        async def submit() -> list[object]:
            calls: list[Awaitable[Entry]] = []
            for verb, key, value, right in writes:
                entry = (self.model.now if right else before).get(key)
                expected = entry[2] if entry else 0
                expected_answers.append(self.model.write(verb, key, value, expected))
                if verb == "create":
                    calls.append(self.store.create(key, value))
                elif verb == "update":
                    calls.append(self.store.update(key, value, expected=expected))
                else:
                    calls.append(self.store.delete(key, expected=expected))
            return list(await asyncio.gather(*calls, return_exceptions=True))

        before, expected_answers = self.model.now, list[object]()
        outcomes = self.run(submit())
        assert [said(outcome) for outcome in outcomes] == expected_answers

    @rule(data=st.data(), prefix=PREFIXES, after=st.just("") | KEYS, limit=st.integers(0, 4))
    def list_at(self, data: st.DataObject, prefix: str, after: str, limit: int) -> None:
        revision = data.draw(st.integers(0, self.model.revision + 1))
        try:
            page: Page | type = self.store.page(prefix, revision=revision, after=after, limit=limit)
        except errors.StoreError as error:
            page = type(error)
        assert self.shown(page) == self.want_page(revision, prefix, after, limit)

    def shown(self, page: Page | type) -> object:
        if isinstance(page, type):
            return page
        assert page.more == (page.remaining > 0)
        return [said(entry) for entry in page.entries], page.remaining, page.revision

    def want_page(self, revision: int, prefix: str, after: str, limit: int) -> object:
        if (refusal := self.refusal(revision)) is not None:
            return refusal
        state = sorted(self.model.states[revision].items())
        entries = [
            (key, *rest)
            for key, rest in state
            if key.startswith(prefix) and (key > after or not after)
        ]
        page = entries[:limit] if limit else entries
        return page, len(entries) - len(page), revision

    def refusal(self, revision: int) -> type | None:
        if revision > self.model.revision:
            return errors.FutureRevision
        return errors.Compacted if revision < self.model.compacted else None

    @rule(data=st.data(), prefix=PREFIXES)
    def ask_for_changes(self, data: st.DataObject, prefix: str) -> None:
        after = data.draw(st.integers(0, self.model.revision + 1))
        until = data.draw(st.none() | st.integers(0, self.model.revision + 1))
        try:
            answer: object = [told(e) for e in self.store.events(prefix, after=after, until=until)]
        except errors.StoreError as error:
            answer = type(error)
        assert answer == (
            self.refusal(after)
            or [
                change for change in self.model.changes[after:until] if change[1].startswith(prefix)
            ]
        )

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        revision = data.draw(st.integers(0, self.model.revision))
        self.run(self.store.compact(revision))
        self.model.compacted = max(self.model.compacted, revision)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.revision == self.model.revision
        assert self.store.compacted == self.model.compacted
        for key in ("a", "a/", "a/1", "b/1"):
            entry = self.store.get(key)
            assert (said(entry)[1:] if entry else None) == self.model.now.get(key)  # type: ignore[index]

    @invariant()
    def the_watch_has_seen_everything_once(self) -> None:
        if not hasattr(self, "reader"):
            return
        self.run(asyncio.sleep(0))
        assert [told(event) for event in self.seen] == self.model.changes

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.run(self.reader)
        self.runner.close()


class SqliteMachine(MemoryMachine):
    """The SQLite store against the model, with restarts at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()

    async def open(self) -> Store:
        return await SqliteStore.open(Path(self.directory.name) / "store.db")

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.run(self.reader)
        self.store = self.run(self.open())
        self.follow()

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


@cases("machine examples", {"memory": (MemoryMachine, 150), "sqlite": (SqliteMachine, 50)})
def test_a_store_answers_as_the_model_does(
    machine: type[RuleBasedStateMachine], examples: int
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
