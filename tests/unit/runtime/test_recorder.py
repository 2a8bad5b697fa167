# SPDX-License-Identifier: Apache-2.0
"""Events: what is written, when, and what is dropped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver import storage_codec
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client import kinds as typed
from refloat.runtime import event_series
from refloat.runtime.errors import LeadershipLost
from refloat.runtime.event_series import Reference
from refloat.runtime.recorder import WRITES_AT_ONCE, EventMetrics, Recorder, RecorderSettings
from refloat.sim.run import Sim
from tests.unit.runtime.clusters import RegistryCluster
from tests.virtual import virtual

EVENTS = kinds.of("events", "events.k8s.io")
POD = Reference("v1", "Pod", "p", "default", uid="u1", resource_version="7")
NODE = Reference("v1", "Node", "n", uid="u2")


class RecorderFixture:
    """A recorder and the events that the API then has."""

    def __init__(self, sim: Sim, cluster: RegistryCluster, **settings: float) -> None:
        self.sim = sim
        self.cluster = cluster
        self.client = cluster.client(sim.clock)
        self.registry = CollectorRegistry()
        self.metrics = EventMetrics(self.registry)
        self.recorder = self.another("job-controller", **settings)
        self.recorder.start()

    def another(self, controller: str, **settings: float) -> Recorder:
        return Recorder(
            self.client,
            controller=controller,
            instance=f"{controller}-host",
            clock=self.sim.clock,
            rand=Rand(1),
            metrics=self.metrics,
            settings=RecorderSettings(**settings),  # type: ignore[arg-type]
        )

    def tell(self, note: str = "n", *, regarding: Reference = POD, reason: str = "R") -> None:
        self.recorder.event(regarding, "Normal", reason, "Act", note)

    def events(self, namespace: str = "default") -> list[Object]:
        entries = self.cluster.world.store.page(storage_codec.prefix(EVENTS, namespace)).entries
        return [storage_codec.unpack(EVENTS, entry) for entry in entries]

    def told(self) -> list[tuple[str, int]]:
        """What was told, and how often."""
        return [(each["note"], each.get("series", {}).get("count", 1)) for each in self.events()]

    def dropped(self, reason: str) -> float | None:
        return self.registry.get_sample_value(
            "refloat_events_dropped_total", {"controller": "job-controller", "reason": reason}
        )


@asynccontextmanager
async def staged(sim: Sim, **settings: float) -> AsyncIterator[RecorderFixture]:
    """A recorder that stops when the test has passed."""
    stage = RecorderFixture(sim, await RegistryCluster.started(), **settings)
    yield stage
    await stage.recorder.stop()


@virtual(staged)
async def test_an_event_says_all_that_kubernetes_wants_to_know(stage: RecorderFixture) -> None:
    stage.recorder.event(POD, "Warning", "Failed", "Failing", "it failed", related=NODE)
    await stage.sim.clock.sleep(1)
    (event,) = stage.events()
    name = event["metadata"].pop("name")
    about, _, stamp = name.partition(".")
    assert about == "p"
    assert int(stamp, 16) // 1_000_000_000 == int(stage.sim.clock.now().timestamp()) - 1
    assert {key: value for key, value in event.items() if "deprecated" not in key} == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": event["metadata"],
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "Failed",
        "action": "Failing",
        "note": "it failed",
        "reportingController": "job-controller",
        "reportingInstance": "job-controller-host",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "p",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u2"},
    }


@virtual(staged)
async def test_where_it_is_wanted_the_controller_is_the_source_too(stage: RecorderFixture) -> None:
    """Which only events under their older name may say; their counts are written all the same."""
    recorder = Recorder(
        stage.client,
        controller="job-controller",
        instance="here",
        clock=stage.sim.clock,
        rand=Rand(1),
        metrics=stage.metrics,
        sourced=True,
    )
    recorder.start()
    for _ in range(3):
        recorder.event(POD, "Warning", "Failed", "Failing", "it failed")
        await stage.sim.clock.sleep(1)
    await recorder.stop(flush_seconds=1)
    (event,) = stage.events()
    assert event["deprecatedSource"] == {"component": "job-controller"}
    assert event["reportingController"] == "job-controller"
    assert event["regarding"]["name"] == "p"
    assert stage.told() == [("it failed", 3)]


@virtual(staged)
async def test_events_about_objects_without_a_namespace_are_in_default(
    stage: RecorderFixture,
) -> None:
    stage.tell(regarding=NODE)
    await stage.sim.clock.sleep(1)
    assert [each["regarding"]["name"] for each in stage.events("default")] == ["n"]


@virtual(staged)
async def test_the_second_of_the_same_is_written_at_once_and_later_ones_when_it_is_over(
    stage: RecorderFixture,
) -> None:
    writes = []
    for _ in range(5):
        stage.tell()
        await stage.sim.clock.sleep(60)
        writes.append(stage.told())
    assert writes == [[("n", 1)], *[[("n", 2)]] * 4]
    assert stage.events()[0]["series"]["lastObservedTime"] == "2026-01-01T00:01:00.000000Z"
    await stage.sim.clock.sleep(800)
    assert stage.told() == [("n", 5)]
    assert stage.events()[0]["series"]["lastObservedTime"] == "2026-01-01T00:04:00.000000Z"
    assert [call.split()[0] for call in stage.client.calls] == ["create", "patch", "patch"]


@virtual(staged)
async def test_a_series_that_goes_on_is_written_every_half_hour(stage: RecorderFixture) -> None:
    for _ in range(120):
        stage.tell()
        await stage.sim.clock.sleep(60)
    patches = [call for call in stage.client.calls if call.startswith("patch")]
    assert len(patches) == 1 + 3


@virtual(staged)
async def test_after_six_quiet_minutes_the_same_is_a_new_event(stage: RecorderFixture) -> None:
    stage.tell()
    await stage.sim.clock.sleep(event_series.QUIET_SECONDS)
    stage.tell()
    await stage.sim.clock.sleep(1)
    assert stage.told() == [("n", 1), ("n", 1)]


@virtual(staged)
async def test_another_version_of_the_object_is_the_same_object(stage: RecorderFixture) -> None:
    stage.tell()
    stage.tell(regarding=Reference("v1", "Pod", "p", "default", uid="u1", resource_version="8"))
    await stage.sim.clock.sleep(1)
    assert stage.told() == [("n", 2)]


@pytest.mark.parametrize("what", ["note", "reason", "regarding", "type", "action", "related"])
@virtual(staged)
async def test_what_differs_is_another_event(stage: RecorderFixture, what: str) -> None:
    first = {"regarding": POD, "event_type": "Normal", "reason": "R", "action": "A"}
    first |= {"note": "n", "related": None}
    other = {"note": "m", "reason": "S", "action": "B", "related": NODE}
    other |= {"event_type": "Warning", "type": "Warning"}
    other |= {"regarding": Reference("v1", "Pod", "q", "default")}
    key = "event_type" if what == "type" else what
    stage.recorder.event(**first)  # type: ignore[arg-type]
    stage.recorder.event(**first | {key: other[key]})  # type: ignore[arg-type]
    await stage.sim.clock.sleep(1)
    assert len(stage.events()) == 2


@virtual(staged)
async def test_what_happens_again_before_it_is_written_is_one_write(stage: RecorderFixture) -> None:
    for _ in range(10):
        stage.tell()
    await stage.sim.clock.sleep(1)
    assert stage.told() == [("n", 10)]
    assert len(stage.client.calls) == 1


@virtual(staged)
async def test_one_that_the_server_keeps_waiting_does_not_hold_up_the_others(
    stage: RecorderFixture,
) -> None:
    stage.client.hangs = True
    stage.tell(regarding=Reference("v1", "Pod", "slow", "default"))
    for n in range(WRITES_AT_ONCE - 1):
        stage.tell(regarding=Reference("v1", "Pod", f"p{n}", "default"))
    await stage.sim.clock.sleep(1)
    assert len(stage.client.calls) == WRITES_AT_ONCE


HELD_SECONDS = 32.0


@virtual(staged, seeds=3)
async def test_events_are_written_while_each_answer_is_held(stage: RecorderFixture) -> None:
    """The server writes each, and answers after the client has given up."""
    stage.client.holds = HELD_SECONDS
    for n in range(40):
        stage.tell(regarding=Reference("v1", "Pod", f"p{n}", "default"))
    await stage.sim.clock.sleep(90)
    assert len(stage.events()) == 40
    stage.client.holds = 0.0
    await stage.sim.clock.sleep(60)
    stage.tell("the end")
    await stage.sim.clock.sleep(1)
    assert (len(stage.events()), stage.told()[0]) == (41, ("the end", 1))
    assert stage.dropped("unanswered") is None


@virtual(staged, seeds=3)
async def test_events_that_are_tried_again_hold_up_no_other(stage: RecorderFixture) -> None:
    """Those of one object get no answer, the others do."""
    stage.client.refused = "bad"
    for n in range(2 * WRITES_AT_ONCE):
        stage.tell(regarding=Reference("v1", "Pod", f"bad{n}", "default"))
    stage.tell()
    await stage.sim.clock.sleep(5)
    assert stage.told() == [("n", 1)]
    stage.client.refused = ""
    await stage.sim.clock.sleep(60)
    assert len(stage.events()) == 1 + 2 * WRITES_AT_ONCE


@virtual(staged, seeds=3)
async def test_one_that_happens_again_while_it_waits_to_be_tried_again_is_one_write(
    stage: RecorderFixture,
) -> None:
    stage.client.failures = [errors.Unavailable("away")]
    stage.tell()
    await stage.sim.clock.sleep(0.1)
    stage.tell()
    await stage.sim.clock.sleep(10)
    assert (stage.told(), len(stage.client.calls)) == ([("n", 2)], 2)
    await stage.recorder.stop(flush_seconds=5)
    assert stage.sim.clock.monotonic() < 11, "nothing is left to wait for"


@virtual(staged)
async def test_a_series_whose_event_has_expired_is_made_anew(stage: RecorderFixture) -> None:
    stage.tell()
    await stage.sim.clock.sleep(1)
    name = stage.events()[0]["metadata"]["name"]
    await stage.client.delete(typed.EVENTS, name, namespace="default")
    stage.tell()
    await stage.sim.clock.sleep(1)
    assert stage.told() == [("n", 2)]


@virtual(staged)
async def test_many_events_of_a_reason_leave_room_for_another_reason(
    stage: RecorderFixture,
) -> None:
    """A Job of many pods tells of its end too."""
    for n in range(40):
        stage.tell(f"n{n}")
    stage.tell("over", reason="Completed")
    await stage.sim.clock.sleep(1)
    assert [note for note, _ in stage.told()][event_series.BURST :] == ["over"]


@virtual(staged)
async def test_an_object_has_twenty_five_events_at_once_and_then_one_in_five_minutes(
    stage: RecorderFixture,
) -> None:
    for n in range(40):
        stage.tell(f"n{n}")
    await stage.sim.clock.sleep(299)
    assert len(stage.events()) == event_series.BURST
    assert stage.dropped("limited") == 15
    stage.tell("early")
    await stage.sim.clock.sleep(2)
    stage.tell("late")
    stage.tell("too many")
    stage.tell("another", regarding=NODE)
    await stage.sim.clock.sleep(1)
    notes = [note for note, _ in stage.told()]
    assert "late" in notes
    assert "another" in notes
    assert "early" not in notes
    assert "too many" not in notes


@virtual(staged)
async def test_more_of_a_series_takes_nothing_from_the_allowance(stage: RecorderFixture) -> None:
    for _ in range(1000):
        stage.tell()
    stage.tell("another")
    await stage.sim.clock.sleep(1)
    assert stage.told() == [("n", 1000), ("another", 1)]


@virtual(staged, max_queued=10)
async def test_what_does_not_fit_is_dropped_and_counted_and_nobody_waits(
    stage: RecorderFixture,
) -> None:
    stage.client.hangs = True
    for n in range(15):
        stage.tell(regarding=Reference("v1", "Pod", f"p{n}", "default"))
    assert stage.dropped("full") == 5
    stage.client.hangs = False
    await stage.sim.clock.sleep(10)
    assert len(stage.events()) == 10


@pytest.mark.parametrize(
    "failure",
    [
        errors.Unavailable("away"),
        errors.Timeout("no answer"),
        errors.TooManyRequests("slow down", retry_after=5),
    ],
    ids=lambda failure: type(failure).__name__,
)
@virtual(staged)
async def test_while_the_server_is_away_it_is_tried_again(
    stage: RecorderFixture, failure: Exception
) -> None:
    stage.client.failures = [failure] * 3
    stage.tell()
    await stage.sim.clock.sleep(30)
    assert stage.told() == [("n", 1)]


@virtual(staged, tries=4)
async def test_it_is_not_tried_for_ever(stage: RecorderFixture) -> None:
    stage.client.down = errors.Unavailable("away")
    stage.tell()
    await stage.sim.clock.sleep(100)
    assert len(stage.client.calls) == 4
    assert stage.dropped("unanswered") == 1
    stage.client.down = None
    stage.tell()
    await stage.sim.clock.sleep(10)
    assert stage.told() == [("n", 1)], "what was never written is begun anew"


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        (errors.Forbidden("the namespace is terminating"), "rejected"),
        (errors.Invalid("action: Required value"), "rejected"),
        (LeadershipLost("somebody else leads"), "not_leader"),
        (ValueError("a bug"), "error"),
    ],
)
@virtual(staged)
async def test_what_is_refused_is_dropped_and_the_next_is_written(
    stage: RecorderFixture, failure: Exception, want: str
) -> None:
    stage.client.failures = [failure]
    stage.tell("refused")
    stage.tell("next")
    await stage.sim.clock.sleep(10)
    assert stage.told() == [("next", 1)]
    assert stage.dropped(want) == 1


@virtual(staged)
async def test_a_create_whose_answer_was_lost_is_not_made_twice(stage: RecorderFixture) -> None:
    stage.client.lost = [errors.Timeout("lost")]
    stage.tell()
    await stage.sim.clock.sleep(10)
    assert stage.told() == [("n", 1)]


@virtual(staged)
async def test_two_controllers_may_tell_of_one_object_at_the_same_moment(
    stage: RecorderFixture,
) -> None:
    """Both would give their events the same name; the second finds another."""
    other = stage.another("node-controller")
    other.start()
    stage.tell()
    other.event(POD, "Normal", "R", "Act", "n")
    await stage.sim.clock.sleep(5)
    controllers = [each["reportingController"] for each in stage.events()]
    assert sorted(controllers) == ["job-controller", "node-controller"]
    await other.stop()


@virtual(staged)
async def test_many_events_of_one_moment_have_names_of_their_own(stage: RecorderFixture) -> None:
    for n in range(20):
        stage.tell(f"n{n}")
    await stage.sim.clock.sleep(1)
    assert len(stage.events()) == 20
    assert len(stage.client.calls) == 20


@virtual(staged)
async def test_an_object_with_a_long_name_gets_an_event_too(stage: RecorderFixture) -> None:
    stage.tell(regarding=Reference("v1", "Pod", "p" * 250, "default"))
    await stage.sim.clock.sleep(1)
    assert len(stage.events()[0]["metadata"]["name"]) == 36


@pytest.mark.parametrize(
    ("note", "want_bytes"),
    [("x" * 1024, 1024), ("x" * 5000, 1024), ("é" * 512, 1024), ("€" * 400, 1023)],
    ids=["just fits", "too long", "two bytes each", "three bytes each"],
)
@virtual(staged)
async def test_a_note_is_cut_to_what_the_api_takes(
    stage: RecorderFixture, note: str, want_bytes: int
) -> None:
    stage.tell(note)
    await stage.sim.clock.sleep(1)
    ((text, _),) = stage.told()
    assert len(text.encode()) == want_bytes
    assert note.startswith(text)


@pytest.mark.parametrize(
    "bad",
    [{"event_type": "Info"}, {"reason": ""}, {"action": ""}, {"note": None}, {"regarding": None}],
    ids=str,
)
@virtual(staged)
async def test_a_bad_event_is_dropped_and_raises_nothing(
    stage: RecorderFixture, bad: dict[str, object]
) -> None:
    good = {"regarding": POD, "event_type": "Normal", "reason": "R", "action": "A", "note": "n"}
    stage.recorder.event(**good | bad)  # type: ignore[arg-type]
    await stage.sim.clock.sleep(1)
    assert stage.events() == []
    assert stage.dropped("error") == 1


@virtual(staged)
async def test_a_stop_writes_what_waits_and_the_counts(stage: RecorderFixture) -> None:
    for _ in range(4):
        stage.tell()
        await stage.sim.clock.sleep(1)
    stage.tell("last")
    await stage.recorder.stop(flush_seconds=5)
    assert stage.told() == [("n", 4), ("last", 1)]
    stage.tell("after")
    assert stage.dropped("stopped") == 1


@virtual(staged)
async def test_a_stop_does_not_wait_longer_than_it_may(stage: RecorderFixture) -> None:
    stage.client.hangs = True
    stage.tell()
    await stage.recorder.stop(flush_seconds=5)
    assert stage.sim.clock.monotonic() == 5
    assert stage.dropped("stopped") == 1


@virtual(staged)
async def test_a_stop_without_a_flush_writes_nothing_more(stage: RecorderFixture) -> None:
    stage.tell()
    await stage.recorder.stop()
    assert stage.client.calls == []


def test_what_is_remembered_is_bounded() -> None:
    allowance = event_series.Allowance()
    for n in range(2 * event_series.MAX_REMEMBERED):
        assert allowance.take(n, 0.0)
    assert len(allowance._buckets) == event_series.MAX_REMEMBERED


@virtual(staged)
async def test_a_series_that_has_to_go_for_others_is_written_first(
    stage: RecorderFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_series, "MAX_REMEMBERED", 2)
    for _ in range(3):
        stage.tell("old")
        await stage.sim.clock.sleep(1)
    assert stage.told() == [("old", 2)]
    stage.tell("b")
    stage.tell("c")
    await stage.sim.clock.sleep(1)
    assert ("old", 3) in stage.told()
