# SPDX-License-Identifier: Apache-2.0
"""Names of pods: Kubernetes' shape, and the same when a create is repeated."""

import json
import re

import pytest
from msgspec.structs import replace

from refloat.api import names
from refloat.controllers.job import attempts, pod_names
from refloat.controllers.job.memory import Memory
from refloat.controllers.job.pod_names import Namer
from refloat.policy.scaling import NewPod
from tests.clocks import ManualClock
from tests.unit.policy import made

JOB = made.job()


def namer(taken: set[str], memory: Memory | None = None) -> Namer:
    return Namer(JOB, memory or Memory(ManualClock()), taken.__contains__)


@pytest.mark.parametrize(
    ("job", "index", "want"),
    [
        ("job", None, "job-"),
        ("job", 7, "job-7-"),
        ("a" * 57, None, "a" * 57 + "-"),
        ("a" * 58, 3, "a" * 55 + "-3-"),
        ("a" * 60, 12345, "a" * 51 + "-12345-"),
        ("Not-A-Name", None, "Not-A-Name"),
    ],
    ids=["plain", "of an index", "58 long", "long with index", "the index stays", "no dash"],
)
def test_the_prefix_is_kubernetes(job: str, index: int | None, want: str) -> None:
    """Behaviour A8.5, A8.6."""
    assert pod_names.prefix(job, index) == want


@pytest.mark.parametrize("new", [NewPod(), NewPod(4)], ids=["NonIndexed", "Indexed"])
def test_a_name_ends_in_five_letters_of_kubernetes(new: NewPod) -> None:
    name = namer(set()).name(new)
    assert re.fullmatch("j-(4-)?[bcdfghjklmnpqrstvwxz2456789]{5}", name)
    assert names.dns_label(name) == ()


def test_a_repeated_sync_gives_the_same_names() -> None:
    wanted = [NewPod()] * 20 + [NewPod(index) for index in range(20)]
    first, second = namer(set()), namer(set())
    assert [first.name(each) for each in wanted] == [second.name(each) for each in wanted]


def test_no_name_is_given_twice() -> None:
    giver = namer(set())
    assert len({giver.name(NewPod()) for _ in range(5000)}) == 5000


def test_a_name_that_is_taken_is_passed() -> None:
    taken: set[str] = set()
    for _ in range(5):
        name = namer(taken).name(NewPod(0))
        assert name not in taken
        taken.add(name)


def test_what_was_not_seen_is_tried_again() -> None:
    """The third of four is not in the cache: its create may have been lost, or not."""
    giver = namer(set())
    given = [giver.name(NewPod()) for _ in range(4)]
    memory = Memory(ManualClock())
    again = namer({given[0], given[1], given[3]}, memory)
    assert again.name(NewPod()) == given[2]
    assert again.name(NewPod()) not in given
    assert memory.ordinals == {"job": 2}


def test_numbers_that_were_seen_are_not_looked_at_again() -> None:
    memory = Memory(ManualClock())
    giver = namer(set())
    given = [giver.name(NewPod()) for _ in range(100)]
    asked: list[str] = []

    def is_taken(name: str) -> bool:
        asked.append(name)
        return name in given

    first = Namer(JOB, memory, is_taken).name(NewPod())
    asked.clear()
    assert Namer(JOB, memory, is_taken).name(NewPod()) == first
    assert len(asked) <= 2


def test_the_replacement_of_another_pod_has_another_name() -> None:
    one, other = made.failed("one"), made.failed("other")
    known = {namer(set()).name(NewPod(0, replaces=each)) for each in (None, one, other)}
    assert len(known) == 3


@pytest.mark.parametrize("new", [NewPod(), NewPod(4)], ids=["NonIndexed", "Indexed"])
def test_the_name_of_a_pod_that_failed_does_not_come_back_when_it_is_gone(new: NewPod) -> None:
    first = namer(set()).name(new)
    memory = Memory(ManualClock())
    pod = made.failed("u")
    memory.retire("job", [replace(pod, metadata=replace(pod.metadata, name=first))])
    again = [namer(set(), memory).name(new) for _ in "ab"]
    assert first not in again
    assert again[0] == again[1]


def test_what_a_user_writes_into_the_record_of_failures_takes_no_name() -> None:
    first = namer(set()).name(NewPod())
    record = {attempts.ANNOTATION: json.dumps([{"pod": first}])}
    job = replace(JOB, metadata=replace(JOB.metadata, annotations=record))
    assert Namer(job, Memory(ManualClock()), set[str]().__contains__).name(NewPod()) == first
