# SPDX-License-Identifier: Apache-2.0
"""Graceful deletion, as in Kubernetes (behaviour C8)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refloat.api import times
from refloat.api.errors import StatusError
from refloat.api.meta import Object
from refloat.apiserver import deletion
from refloat.apiserver.deletion import Options
from refloat.apiserver.routes import Target
from tests import builders
from tests.apiserver_fixture import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    ServerFixture,
)
from tests.cases import cases
from tests.clocks import START

NOW = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
FINALIZER = "example.com/hold"


def at(seconds: float) -> str:
    return times.format_time(START + timedelta(seconds=seconds))


def ending(grace_seconds: int | None, *, due: float = 30) -> Object:
    """An object whose deletion is due so many seconds after `NOW`."""
    stamp = times.format_time(NOW.replace(microsecond=0) + timedelta(seconds=due))
    metadata: Object = {"deletionTimestamp": stamp}
    if grace_seconds is not None:
        metadata["deletionGracePeriodSeconds"] = grace_seconds
    return {"metadata": metadata}


# -- behaviour C8.1: the period of a first delete ---------------------------


@cases(
    "spec phase requested want",
    {
        "what the caller asks for": ({"nodeName": "n"}, "Running", 7, 7),
        "else what the spec says": (
            {"nodeName": "n", "terminationGracePeriodSeconds": 9},
            "Running",
            None,
            9,
        ),
        "else nothing": ({"nodeName": "n"}, "Running", None, 0),
        "nothing for a pod without a node": ({}, "Pending", 7, 0),
        "nothing for one that succeeded": ({"nodeName": "n"}, "Succeeded", 7, 0),
        "nothing for one that failed": ({"nodeName": "n"}, "Failed", 7, 0),
        "a second for a negative request": ({"nodeName": "n"}, "Running", -7, 1),
        "a second for a negative spec": (
            {"nodeName": "n", "terminationGracePeriodSeconds": -7},
            "Running",
            None,
            1,
        ),
        "a bound pod may be pending": ({"nodeName": "n"}, "Pending", 7, 7),
    },
)
def test_first_delete_gives_the_period_of(
    spec: Object, phase: str, requested: int | None, want: int
) -> None:
    assert deletion.pod_grace({"spec": spec, "status": {"phase": phase}}, requested) == want


# -- behaviour C8.2 ---------------------------------------------------------


def test_begin_sets_time_and_period_and_counts_a_generation() -> None:
    obj: Object = {"metadata": {"generation": 3}}
    deletion.begin(obj, 30, START)
    assert obj["metadata"] == {
        "generation": 4,
        "deletionTimestamp": at(30),
        "deletionGracePeriodSeconds": 30,
    }


def test_a_period_beyond_three_centuries_overflows_as_in_kubernetes() -> None:
    """This must not be a server error: a user can write any number into a pod."""
    obj: Object = {"metadata": {"name": "a"}}
    deletion.begin(obj, 2**63 - 1, datetime(2026, 1, 1, tzinfo=UTC))
    assert obj["metadata"]["deletionTimestamp"] == "2025-12-31T23:59:59Z"
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 2**63 - 1


def test_begin_counts_no_generation_where_there_is_none() -> None:
    obj: Object = {"metadata": {}}
    deletion.begin(obj, 0, START)
    assert "generation" not in obj["metadata"]


# -- behaviour C8.4, C8.5: shortening ---------------------------------------


@cases(
    "obj requested want_due want_period",
    {
        "shorter counts from the first delete": (ending(30), 10, 10, 10),
        "due in the past is now, in one second": (ending(30, due=5), 20, 0, 1),
        "but zero stays zero": (ending(30, due=5), 0, 0, 0),
        "zero moves an old deadline forward": (ending(30, due=-60), 0, 0, 0),
        "a negative request is one second": (ending(30), -9, 1, 1),
    },
)
def test_repeated_delete_shortens(
    obj: Object, requested: int, want_due: float, want_period: int
) -> None:
    assert deletion.shorten(obj, requested, NOW)
    assert obj == ending(want_period, due=want_due)


@cases(
    "obj requested",
    {
        "without a period": (ending(30), None),
        "with the same period": (ending(30), 30),
        "with a longer period": (ending(30), 40),
        "when there is nothing left": (ending(0), 0),
        "of a kind without periods": (ending(None), 5),
        "when a negative period is one second": (ending(-5), 1),
    },
)
def test_repeated_delete_changes_nothing(obj: Object, requested: int | None) -> None:
    before = {"metadata": {**obj["metadata"]}}
    assert not deletion.shorten(obj, requested, NOW)
    assert obj == before


# -- finalizers of garbage collection ---------------------------------------


@cases(
    "present propagation orphans want",
    {
        "a plain delete adds none": ([], None, False, []),
        "a kind that orphans adds its own": ([], None, True, ["orphan"]),
        "unless told otherwise": ([], "Background", True, []),
        "foreground": (["a/b"], "Foreground", False, ["a/b", "foregroundDeletion"]),
        "orphan": (["a/b"], "Orphan", False, ["a/b", "orphan"]),
        "an earlier wish stands": (["orphan"], None, False, ["orphan"]),
        "over the kind's habit": (["foregroundDeletion"], None, True, ["foregroundDeletion"]),
        "a new wish wins": (["foregroundDeletion"], "Orphan", False, ["orphan"]),
        "background clears it": (["orphan", "a/b"], "Background", False, ["a/b"]),
    },
)
def test_delete_leaves_the_finalizers(
    present: list[str], propagation: Any, orphans: bool, want: list[str]
) -> None:
    obj: Object = {"metadata": {"finalizers": present}}
    assert deletion.finalizers(obj, propagation, orphans_by_default=orphans) == want


# -- the same through the registry ------------------------------------------


async def test_unscheduled_pod_goes_at_once_whatever_is_asked(world: ServerFixture) -> None:
    await world.create(builders.pod())
    _, deleted = await world.delete(PODS, "p", Options(grace_seconds=50))
    assert deleted
    assert not world.exists(PODS, "p")


async def test_running_pod_stays_for_its_grace(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n", grace=45))
    pod, deleted = await world.delete(PODS, "p")
    assert not deleted
    assert pod == world.get(PODS, "p")
    assert pod["metadata"]["deletionTimestamp"] == at(45)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 45
    assert pod["metadata"]["generation"] == 2


async def test_repeated_delete_without_a_shorter_period_writes_nothing(
    world: ServerFixture,
) -> None:
    await world.create(builders.pod(node="n"))
    first, _ = await world.delete(PODS, "p")
    revision = world.store.revision
    again, deleted = await world.delete(PODS, "p", Options(grace_seconds=100))
    assert (again, deleted) == (first, False)
    assert world.store.revision == revision


async def test_shortening_does_not_count_another_generation(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.delete(PODS, "p")
    pod, _ = await world.delete(PODS, "p", Options(grace_seconds=10))
    assert pod["metadata"]["generation"] == 2
    assert pod["metadata"]["deletionTimestamp"] == at(10)


async def test_forced_delete_ends_the_grace(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.delete(PODS, "p")
    _, deleted = await world.delete(PODS, "p", Options(grace_seconds=0))
    assert deleted
    assert not world.exists(PODS, "p")


async def test_forced_delete_waits_for_finalizers(world: ServerFixture) -> None:
    """behaviour C8.3, C8.5"""
    await world.create(builders.pod(node="n", finalizers=[FINALIZER]))
    await world.delete(PODS, "p")
    await world.clock.advance(100)
    pod, deleted = await world.delete(PODS, "p", Options(grace_seconds=0))
    assert not deleted
    assert pod["metadata"]["deletionTimestamp"] == at(100)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 0
    await world.change(PODS, "p", drop_finalizers)
    assert not world.exists(PODS, "p")


async def test_last_finalizer_does_not_end_a_grace_that_runs(world: ServerFixture) -> None:
    """behaviour C8.6"""
    await world.create(builders.pod(node="n", finalizers=[FINALIZER]))
    await world.delete(PODS, "p")
    await world.change(PODS, "p", drop_finalizers)
    assert world.exists(PODS, "p")
    _, deleted = await world.delete(PODS, "p", Options(grace_seconds=0))
    assert deleted


async def test_removing_the_last_finalizer_of_a_living_object_does_not_delete(
    world: ServerFixture,
) -> None:
    await world.create(builders.config_map(finalizers=[FINALIZER]))
    await world.change(CONFIG_MAPS, "c", drop_finalizers)
    assert world.exists(CONFIG_MAPS, "c")


async def test_kind_without_grace_waits_with_a_period_of_zero(world: ServerFixture) -> None:
    await world.create(builders.config_map(finalizers=[FINALIZER]))
    obj, deleted = await world.delete(CONFIG_MAPS, "c", Options(grace_seconds=30))
    assert not deleted
    assert obj["metadata"]["deletionTimestamp"] == at(0)
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_delete_of_a_plain_object_is_one_change(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    revision = world.store.revision
    await world.delete(CONFIG_MAPS, "c")
    assert world.store.revision == revision + 1


async def test_finalizers_that_go_with_the_object_are_no_change_of_their_own(
    world: ServerFixture,
) -> None:
    await world.create(builders.config_map(finalizers=["orphan"]))
    revision = world.store.revision
    _, deleted = await world.delete(CONFIG_MAPS, "c", Options(propagation="Background"))
    assert deleted
    assert world.store.revision == revision + 1


@cases(
    "options want",
    {
        "uid": (
            Options(uid="other"),
            (
                'Operation cannot be fulfilled on Pod "p": the UID in the precondition (other) '
                "does not match the UID in record ({uid}). The object might have been deleted "
                "and then recreated"
            ),
        ),
        "resourceVersion": (
            Options(resource_version="1"),
            (
                'Operation cannot be fulfilled on Pod "p": the ResourceVersion in the precondition '
                "(1) does not match the ResourceVersion in record ({rv}). The object might have "
                "been modified"
            ),
        ),
    },
)
async def test_delete_of_another_than_meant_is_a_conflict(
    world: ServerFixture, options: Options, want: str
) -> None:
    """behaviour C8.7"""
    pod = await world.create(builders.pod(node="n"))
    with pytest.raises(StatusError) as error:
        await world.delete(PODS, "p", options)
    metadata = pod["metadata"]
    assert error.value.code == 409
    assert error.value.message == want.format(uid=metadata["uid"], rv=metadata["resourceVersion"])
    assert world.get(PODS, "p") == pod


async def test_delete_of_what_is_meant_goes_through_both_of_its_writes(
    world: ServerFixture,
) -> None:
    pod = await world.create(builders.pod(node="n"))
    version = pod["metadata"]["resourceVersion"]
    _, deleted = await world.delete(PODS, "p", Options(grace_seconds=0, resource_version=version))
    assert deleted


async def test_dry_delete_shows_what_would_be_and_writes_nothing(world: ServerFixture) -> None:
    before = await world.create(builders.pod(node="n"))
    pod, deleted = await world.delete(PODS, "p", dry_run=True)
    assert not deleted
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert world.get(PODS, "p") == before


async def test_dry_delete_of_what_goes_at_once_keeps_it(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    _, deleted = await world.delete(CONFIG_MAPS, "c", dry_run=True)
    assert deleted
    assert world.exists(CONFIG_MAPS, "c")


async def test_reason_of_a_delete_is_in_the_status_and_outlives_status_writes(
    world: ServerFixture,
) -> None:
    await world.create(builders.pod(node="n"))
    pod, _ = await world.delete(PODS, "p", Options(reason="NodeGone"))
    assert pod["status"]["reason"] == "NodeGone"

    def rewrite(obj: Object) -> None:
        obj["status"] = {"phase": "Running"}

    after = await world.change(PODS, "p", rewrite, subresource="status")
    assert after["status"]["reason"] == "NodeGone"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_is_over_is_not_deleted_for_what_it_ended_of(
    world: ServerFixture, phase: str
) -> None:
    """The pod failed without a disruption, and a policy must not match one."""
    manifest = {**builders.pod(node="n")}
    manifest["metadata"]["finalizers"] = ["example.com/held"]
    await world.create(manifest)
    await world.set_status(PODS, "p", phase=phase)
    pod, _ = await world.delete(PODS, "p", Options(reason="OrphanedPod"))
    assert "reason" not in pod["status"]


async def test_first_delete_with_a_reason_is_the_one_that_ended_it(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.set_status(PODS, "p", phase="Running", reason="NodeLost")
    pod, _ = await world.delete(PODS, "p", Options(reason="TaintEviction"))
    assert pod["status"]["reason"] == "TaintEviction"
    pod, _ = await world.delete(PODS, "p", Options(reason="ForceEviction", grace_seconds=1))
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1
    assert pod["status"]["reason"] == "TaintEviction"


async def test_a_later_delete_says_why_if_the_first_did_not(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.delete(PODS, "p")
    pod, _ = await world.delete(PODS, "p", Options(reason="ForceEviction", grace_seconds=1))
    assert pod["status"]["reason"] == "ForceEviction"


async def test_status_write_can_give_another_reason(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.delete(PODS, "p", Options(reason="NodeGone"))
    after = await world.set_status(PODS, "p", reason="Evicted")
    assert after["status"]["reason"] == "Evicted"


async def test_status_write_clears_the_reason_of_a_pod_that_lives(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.set_status(PODS, "p", reason="Why")

    def rewrite(obj: Object) -> None:
        del obj["status"]["reason"]

    after = await world.change(PODS, "p", rewrite, subresource="status")
    assert "reason" not in after["status"]


async def test_job_is_orphaned_by_default_with_a_warning(world: ServerFixture) -> None:
    await world.create(builders.job())
    call = world.call()
    _entry, deleted = await world.registry.delete(call, Target(JOBS, "default", "j"), Options())
    assert not deleted
    assert world.get(JOBS, "j")["metadata"]["finalizers"] == ["orphan"]
    assert call.warnings == [
        (
            "child pods are preserved by default when jobs are deleted; "
            "set propagationPolicy=Background to remove them "
            "or set propagationPolicy=Orphan to suppress this warning"
        )
    ]


async def test_job_that_says_how_is_deleted_without_a_warning(world: ServerFixture) -> None:
    await world.create(builders.job())
    call = world.call()
    _, deleted = await world.registry.delete(
        call, Target(JOBS, "default", "j"), Options(propagation="Background")
    )
    assert deleted
    assert call.warnings == []


async def test_event_has_no_dependants_to_wait_for(world: ServerFixture) -> None:
    await world.create(builders.event())
    _, deleted = await world.delete(EVENTS, "e", Options(propagation="Foreground"))
    assert deleted


async def test_namespace_waits_for_its_contents_without_a_period_or_a_generation(
    world: ServerFixture,
) -> None:
    await world.create(builders.namespace(generation=7))
    obj, deleted = await world.delete(NAMESPACES, "ns")
    assert not deleted
    assert obj["status"]["phase"] == "Terminating"
    assert obj["metadata"]["deletionTimestamp"] == at(0)
    assert "deletionGracePeriodSeconds" not in obj["metadata"]
    assert obj["metadata"]["generation"] == 7


async def test_second_delete_of_a_namespace_changes_nothing(world: ServerFixture) -> None:
    await world.create(builders.namespace())
    await world.delete(NAMESPACES, "ns", Options(propagation="Orphan"))
    before = world.get(NAMESPACES, "ns")
    await world.delete(NAMESPACES, "ns", Options(propagation="Foreground"))
    assert world.get(NAMESPACES, "ns") == before


async def freed_namespace(world: ServerFixture, **metadata: Any) -> None:
    """A namespace with a finalizer of the metadata only."""
    await world.create(builders.namespace(**metadata))

    def finalize(obj: Object) -> None:
        obj["spec"] = {}

    await world.change(NAMESPACES, "ns", finalize, subresource="finalize")


async def test_first_delete_only_marks_a_namespace(world: ServerFixture) -> None:
    await freed_namespace(world)
    obj, deleted = await world.delete(NAMESPACES, "ns")
    assert not deleted
    assert obj == world.get(NAMESPACES, "ns")
    assert obj["metadata"]["deletionTimestamp"] == at(0)
    assert "deletionGracePeriodSeconds" not in obj["metadata"]
    assert obj["status"]["phase"] == "Terminating"


async def test_second_delete_ends_a_namespace_that_nothing_keeps(world: ServerFixture) -> None:
    await freed_namespace(world)
    await world.delete(NAMESPACES, "ns")
    _, deleted = await world.delete(NAMESPACES, "ns")
    assert deleted
    assert not world.exists(NAMESPACES, "ns")


async def test_second_delete_of_a_namespace_with_finalizers_of_others_notes_the_grace(
    world: ServerFixture,
) -> None:
    await freed_namespace(world, finalizers=["a.b/c"])
    await world.delete(NAMESPACES, "ns")
    obj, deleted = await world.delete(NAMESPACES, "ns")
    assert not deleted
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_namespace_goes_with_its_last_finalizer(world: ServerFixture) -> None:
    await world.create(builders.namespace())
    await world.delete(NAMESPACES, "ns")

    def finalize(obj: Object) -> None:
        obj["spec"] = {}

    await world.change(NAMESPACES, "ns", finalize, subresource="finalize")
    assert not world.exists(NAMESPACES, "ns")


@pytest.mark.parametrize("name", ["default", "kube-public", "kube-system"])
async def test_system_namespace_cannot_be_deleted(world: ServerFixture, name: str) -> None:
    with pytest.raises(StatusError) as error:
        await world.delete(NAMESPACES, name)
    assert error.value.message == (
        f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    )


async def test_delete_of_nothing_is_not_found(world: ServerFixture) -> None:
    with pytest.raises(StatusError) as error:
        await world.delete(NODES, "gone")
    assert error.value.message == 'nodes "gone" not found'


def drop_finalizers(obj: Object) -> None:
    del obj["metadata"]["finalizers"]
