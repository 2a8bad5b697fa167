# SPDX-License-Identifier: Apache-2.0
"""The attempts of a Job, the times of its next steps, and what explain admits not to know."""

from datetime import timedelta

import msgspec
import pytest

from refloat.api.core import Node, Pod
from refloat.explain.actors import Outlook
from refloat.explain.codes import Cause, Code
from refloat.policy.job.backoff import BackoffSettings
from tests.cases import cases
from tests.unit.explain.test_job import (
    FAIL_ON_42,
    IGNORE_5,
    NOW,
    TERMINATING,
    deleted,
    ended,
    explain,
    finished,
    old,
    running,
    unscheduled,
    waiting,
)
from tests.unit.explain.test_pod import event
from tests.unit.policy import builders
from tests.unit.policy.builders import at, failed, job, text


@cases(
    "of cause",
    {
        "exit code": (ended(exit_code=3), Cause.EXIT_CODE),
        "signal": (ended(exit_code=139), Cause.SIGNAL),
        "out of memory": (ended(exit_code=137, terminated={"reason": "OOMKilled"}), Cause.OOM),
        "out of memory with exit code 0": (
            ended(exit_code=0, terminated={"reason": "OOMKilled"}),
            Cause.OOM,
        ),
        "start": (ended(exit_code=128, terminated={"reason": "StartError"}), Cause.START_ERROR),
        "preemption": (ended(target="PreemptionByScheduler", exit_code=137), Cause.PREEMPTED),
        "drain": (ended(target="EvictionByEvictionAPI", exit_code=137), Cause.API_EVICTION),
        "taint": (ended(target="DeletionByTaintManager", exit_code=137), Cause.TAINT_EVICTION),
        "node pressure": (
            ended(target="TerminationByKubelet", reason="Evicted"),
            Cause.NODE_PRESSURE,
        ),
        "node shutdown": (
            ended(target="TerminationByKubelet", reason="Terminated"),
            Cause.NODE_SHUTDOWN,
        ),
        "its node is gone": (ended(target="DeletionByPodGC"), Cause.NODE_GONE),
        "its own storage limit": (ended(reason="Evicted"), Cause.STORAGE_LIMIT),
        "its own deadline": (ended(reason="DeadlineExceeded"), Cause.DEADLINE),
        "refused by the kubelet": (ended(reason="OutOfcpu"), Cause.ADMISSION),
        "self-fenced": (ended(reason="SelfFenced"), Cause.SELF_FENCED),
        "nothing is known": (ended(), Cause.UNKNOWN),
        "deleted by a user": (deleted(), Cause.DELETED),
    },
)
def test_each_end_of_a_pod_has_its_cause(of: Pod, cause: Cause) -> None:
    (attempt,) = explain(old(), of).attempts
    assert attempt.cause == cause


def test_the_back_off_has_its_time_and_component() -> None:
    """behaviour A11: 10 s after the first failure, 20 s after the second."""
    pods = (failed("a", ended=NOW - 15), failed("b", ended=NOW - 5))
    explanation = explain(old(status={"startTime": text(0)}), *pods)
    (step,) = explanation.finding.next
    assert (step.at, step.component) == (at(NOW + 15), "the Job controller")


def test_failures_that_are_counted_already_make_the_back_off_longer() -> None:
    pods = (failed("a", ended=NOW - 15, tracked=False), failed("b", ended=NOW - 5, tracked=False))
    (step,) = explain(old(status={"startTime": text(0), "failed": 2}), *pods).finding.next
    assert step.at == at(NOW + 15)


def test_the_back_off_has_the_delays_of_the_process_that_runs_the_job() -> None:
    fast = BackoffSettings(timedelta(seconds=1), timedelta(minutes=1), timedelta(seconds=0.1))
    pods = [failed(f"p{i}", 5, ended=NOW - 9 + i, created=i) for i in range(4)]
    explanation = explain(
        old(status={"startTime": text(0)}), *pods, job_control=Outlook(delays=fast)
    )
    (step,) = explanation.finding.next
    assert (explanation.finding.code, step.at) == (Code.BACK_OFF, at(NOW - 6 + 8))


def test_three_ignored_failures_in_a_row_are_a_loop() -> None:
    pods = [failed(f"p{i}", 5, ended=NOW - 9 + i, created=i) for i in range(3)]
    explanation = explain(old(podFailurePolicy=IGNORE_5, status={"startTime": text(0)}), *pods)
    assert explanation.finding.code == Code.IGNORE_LOOP
    assert [row.counted for row in explanation.attempts] == [False] * 3
    with_deadline = old(
        podFailurePolicy=IGNORE_5, activeDeadlineSeconds=5_000, status={"startTime": text(0)}
    )
    assert explain(with_deadline, *pods).finding.code == Code.BACK_OFF


def test_attempts_name_the_rule_and_the_budget() -> None:
    of = old(podFailurePolicy=FAIL_ON_42, backoffLimit=3, status={"startTime": text(0)})
    explanation = explain(of, failed("a", 42, ended=5), failed("b", 1, ended=6, created=1))
    assert [(row.rule, row.counted) for row in explanation.attempts] == [
        ("rule 0: FailJob", True),
        ("", True),
    ]
    assert explanation.finding.code == Code.DECIDED
    assert explanation.budget == "2 failures counted, backoffLimit 3"


@cases(
    "limit want",
    {
        "some are left": (3, "1 failure counted, backoffLimit 3: 2 more will not fail the Job"),
        "none is left": (1, "1 failure counted, backoffLimit 1: the next one fails the Job"),
    },
)
def test_the_budget_says_how_many_failures_are_left(limit: int, want: str) -> None:
    assert explain(old(backoffLimit=limit), failed("a", 1, ended=5)).budget == want


def test_attempts_of_an_index_are_numbered() -> None:
    of = builders.indexed(2, backoffLimitPerIndex=2)
    pods = [
        failed("a", index=0, ended=1, created=0),
        failed("b", index=1, ended=2, created=1),
        failed("c", index=0, ended=3, created=2),
    ]
    rows = explain(of, *pods).attempts
    assert [(row.index, row.number) for row in rows] == [(0, 1), (1, 1), (0, 2)]


def test_pods_that_are_gone_come_from_the_record_and_are_marked() -> None:
    record = (
        '[{"pod":"j-1","uid":"x","index":0,"node":"n7","finished":"2026-01-01T00:00:05Z",'
        '"action":"Ignore","rule":1,"container":"main","exitCode":137}]'
    )
    of = old()
    meta = msgspec.structs.replace(of.metadata, annotations={"refloat.dev/attempts": record})
    (row,) = explain(msgspec.structs.replace(of, metadata=meta)).attempts
    assert (row.pod, row.node, row.cause) == ("j-1", "n7", Cause.SIGNAL)
    assert (row.rule, row.counted, row.exists) == ("rule 1: Ignore", False, False)


def test_the_recorded_log_stands_beside_its_attempt() -> None:
    record = '[{"pod":"j-1","uid":"x","log":"gone"},{"uid":"b","log":"a\\nb"},{"uid":"y","log":{}}]'
    of = old()
    meta = msgspec.structs.replace(of.metadata, annotations={"refloat.dev/attempts": record})
    rows = explain(msgspec.structs.replace(of, metadata=meta), failed("b", 1, ended=6)).attempts
    assert {row.pod: row.log for row in rows} == {"j-1": "gone", "pod-b": "a\nb", "": ""}


@cases(
    "entry want",
    {
        "drained": (
            '"disruption":"EvictionByEvictionAPI","container":"c","exitCode":143',
            (Cause.API_EVICTION, "evicted through the API (kubectl drain)"),
        ),
        "ended with the Job": (
            '"jobFailed":"DeadlineExceeded"',
            (Cause.DELETED, "deleted because the Job failed (DeadlineExceeded)"),
        ),
        "shutdown": (
            '"disruption":"TerminationByKubelet","reason":"Terminated"',
            (Cause.NODE_SHUTDOWN, "ended by the shutdown of the node"),
        ),
        "refused by the kubelet": (
            '"reason":"OutOfcpu"',
            (Cause.ADMISSION, "refused: OutOfcpu"),
        ),
        "recovered": (
            '"disruption":"KueueFailureRecovery","node":"n1"',
            (Cause.RECOVERY, "on the lost node n1"),
        ),
        "out of memory": (
            '"container":"c","exitCode":137,"containerReason":"OOMKilled"',
            (Cause.OOM, "container c: out of memory (OOMKilled, exit code 137)"),
        ),
        "signal": (
            '"container":"c","exitCode":143',
            (Cause.SIGNAL, "container c: SIGTERM (exit code 143)"),
        ),
        "a user wrote nonsense": ('"disruption":{},"reason":[1]', (Cause.UNKNOWN, "[1]")),
    },
)
def test_the_record_tells_how_a_pod_that_is_gone_ended(entry: str, want: tuple[Cause, str]) -> None:
    of = old()
    annotations = {"refloat.dev/attempts": f'[{{"pod":"j-1","uid":"x",{entry}}}]'}
    meta = msgspec.structs.replace(of.metadata, annotations=annotations)
    (row,) = explain(msgspec.structs.replace(of, metadata=meta)).attempts
    assert (row.cause, row.how) == want


@pytest.mark.parametrize("record", ["[", "7", '[{"pod": 3}]', '[{"finished": "x", "rule": {}}]'])
def test_a_record_that_a_user_wrote_breaks_nothing(record: str) -> None:
    of = old()
    meta = msgspec.structs.replace(of.metadata, annotations={"refloat.dev/attempts": record})
    assert explain(msgspec.structs.replace(of, metadata=meta)).finding.code == Code.NO_CONTROLLER


def test_failures_of_which_nothing_is_left_are_admitted() -> None:
    explanation = explain(finished("Failed", "BackoffLimitExceeded"))
    assert explanation.limits == ("7 failed pods are gone, and no record says how they ended",)


def test_the_time_to_live_is_the_next_step_of_a_finished_job() -> None:
    explanation = explain(finished("Complete", "CompletionsReached", ttlSecondsAfterFinished=60))
    (step,) = explanation.finding.next
    assert (step.at, step.component) == (at(1_050), "the TTL controller")


def test_the_missing_node_makes_no_promise() -> None:
    explanation = explain(job(**TERMINATING), deleted(), nodes={})
    assert explanation.finding.code == Code.TERMINATING_OVERDUE
    assert "may be lost" in explanation.finding.verdict


def test_several_pods_in_trouble_are_counted() -> None:
    pods = [waiting("InvalidImageName"), running("b"), running("c")]
    explanation = explain(old(parallelism=3, completions=3), *pods)
    assert explanation.finding.verdict.startswith("1 of 3 active pods of Job j: ")


def test_a_node_that_is_gone_is_not_called_lost() -> None:
    gone: dict[str, Node | None] = {"n1": None}
    explanation = explain(job(**TERMINATING), deleted(), nodes=gone)
    assert "no longer exists" in explanation.finding.verdict


def test_events_of_the_scheduler_do_not_repeat_its_condition() -> None:
    note = "0/2 nodes are available: 2 Insufficient cpu."
    events = {"Pod/ns/p": [event("FailedScheduling", note, 990, "Pod", "p")]}
    explanation = explain(old(), unscheduled(note), events=events)
    assert [each.source for each in explanation.finding.evidence if note in each.text] == [
        "pod/p condition PodScheduled"
    ]
