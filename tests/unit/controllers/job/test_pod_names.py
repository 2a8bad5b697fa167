# SPDX-License-Identifier: Apache-2.0
"""Names of pods: Kubernetes' shape, and the same when a create is repeated."""

import json
import re

import pytest
from msgspec.structs import replace

from refloat.api import names
from refloat.controllers.job import pod_names
from refloat.controllers.job.pod_names import PodNamer
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import attempts
from refloat.policy.job.scaling import NewPod
from tests.clocks import ManualClock
from tests.unit.policy import builders

JOB = builders.job()


def namer(taken: set[str], memory: SyncMemory | None = None) -> PodNamer:
    return PodNamer(JOB, memory or SyncMemory(ManualClock()), taken.__contains__)


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
    new_pods = [NewPod()] * 20 + [NewPod(index) for index in range(20)]
    first, second = namer(set()), namer(set())
    assert [first.name(each) for each in new_pods] == [second.name(each) for each in new_pods]


def test_no_name_is_given_twice() -> None:
    giver = namer(set())
    assert len({giver.name(NewPod()) for _ in range(5000)}) == 5000


def test_a_name_that_is_taken_is_passed() -> None:
    used_names: set[str] = set()
    for _ in range(5):
        name = namer(used_names).name(NewPod(0))
        assert name not in used_names
        used_names.add(name)


def test_what_was_not_seen_is_tried_again() -> None:
    """The third of four is not in the cache: its create may have been lost, or not."""
    giver = namer(set())
    names = [giver.name(NewPod()) for _ in range(4)]
    memory = SyncMemory(ManualClock())
    again = namer({names[0], names[1], names[3]}, memory)
    assert again.name(NewPod()) == names[2]
    assert again.name(NewPod()) not in names
    assert memory.ordinals == {"job": 2}


def test_numbers_that_were_seen_are_not_looked_at_again() -> None:
    memory = SyncMemory(ManualClock())
    giver = namer(set())
    names = [giver.name(NewPod()) for _ in range(100)]
    lookups: list[str] = []

    def is_taken(name: str) -> bool:
        lookups.append(name)
        return name in names

    first = PodNamer(JOB, memory, is_taken).name(NewPod())
    lookups.clear()
    assert PodNamer(JOB, memory, is_taken).name(NewPod()) == first
    assert len(lookups) <= 2


def test_the_replacement_of_another_pod_has_another_name() -> None:
    one, other = builders.failed("one"), builders.failed("other")
    unique_names = {namer(set()).name(NewPod(0, replaces=each)) for each in (None, one, other)}
    assert len(unique_names) == 3


@pytest.mark.parametrize("new", [NewPod(), NewPod(4)], ids=["NonIndexed", "Indexed"])
def test_the_name_of_a_pod_that_failed_does_not_come_back_when_it_is_gone(new: NewPod) -> None:
    first = namer(set()).name(new)
    memory = SyncMemory(ManualClock())
    pod = builders.failed("u")
    memory.retire("job", [replace(pod, metadata=replace(pod.metadata, name=first))])
    again = [namer(set(), memory).name(new) for _ in "ab"]
    assert first not in again
    assert again[0] == again[1]


def test_what_a_user_writes_into_the_record_of_failures_takes_no_name() -> None:
    first = namer(set()).name(NewPod())
    record = {attempts.ANNOTATION: json.dumps([{"pod": first}])}
    job = replace(JOB, metadata=replace(JOB.metadata, annotations=record))
    assert PodNamer(job, SyncMemory(ManualClock()), set[str]().__contains__).name(NewPod()) == first
