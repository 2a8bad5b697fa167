# SPDX-License-Identifier: Apache-2.0
"""Attempts of which only events are left, as with Kubernetes' own Job controller."""

from collections.abc import Sequence
from typing import Any

from refloat.api.events import Event
from refloat.explain.codes import Cause
from refloat.explain.explain_context import event_key
from refloat.explain.explanation import Explanation
from tests.cases import cases
from tests.unit.explain.test_job import explain, old
from tests.unit.explain.test_pod import event
from tests.unit.policy.builders import failed, text

SCHEDULED = event("Scheduled", "Successfully assigned ns/j-a to n7", 2, "Pod", "j-a")


def of_job(*reasons: tuple[str, str]) -> list[Event]:
    return [event(reason, note, 1, "Job", "j") for reason, note in reasons]


CREATED = ("SuccessfulCreate", "Created pod: j-a")


def told(*events: Event, job: Sequence[Event], **status: Any) -> Explanation:
    of = old(status={"startTime": text(0), "failed": 1, **status})
    by_object = {event_key("Job", "ns", "j"): job, event_key("Pod", "ns", "j-a"): events}
    return explain(of, events=by_object)


@cases(
    "reason note cause how",
    {
        "preempted": (
            "Preempted",
            "Preempted by pod x on node n7",
            Cause.PREEMPTED,
            "preempted for a pod of higher priority",
        ),
        "evicted by a taint": (
            "TaintManagerEviction",
            "Marking for deletion Pod ns/j-a",
            Cause.TAINT_EVICTION,
            "evicted by a NoExecute taint",
        ),
        "evicted from a node that ran low": (
            "Evicted",
            "The node was low on resource: memory. ",
            Cause.NODE_PRESSURE,
            "evicted because the node ran low: The node was low on resource: memory.",
        ),
        "deleted": (
            "Killing",
            "Stopping container main",
            Cause.DELETED,
            "deleted; no event says by whom",
        ),
    },
)
def test_the_events_of_a_pod_that_is_gone_say_how_it_ended(
    reason: str, note: str, cause: Cause, how: str
) -> None:
    end = event(reason, note, 9, "Pod", "j-a")
    explanation = told(SCHEDULED, end, job=of_job(CREATED))
    (row,) = explanation.attempts
    assert (row.pod, row.node, row.cause, row.how) == ("j-a", "n7", cause, how)
    assert (row.counted, row.exists) == (True, False)
    assert explanation.limits == ()


@cases(
    "status counted",
    {
        "because the Job failed": (
            {"conditions": [{"type": "FailureTarget", "status": "True", "reason": "r"}]},
            True,
        ),
        "because it was one too many": ({}, None),
    },
)
def test_a_pod_that_the_job_controller_deleted(
    status: dict[str, Any], counted: bool | None
) -> None:
    job = of_job(CREATED, ("SuccessfulDelete", "Deleted pod: j-a"))
    end = event("Killing", "Stopping container main", 9, "Pod", "j-a")
    (row,) = told(end, job=job, **status).attempts
    assert (row.how, row.counted) == ("deleted by the Job controller", counted)


@cases(
    "events",
    {
        "that says no end": [SCHEDULED],
        "at all": [],
        "but of an eviction that was cancelled": [
            event("TaintManagerEviction", "Cancelling deletion of Pod ns/j-a", 3, "Pod", "j-a")
        ],
    },
)
def test_without_an_event_explain_says_that_nothing_is_left(events: list[Event]) -> None:
    explanation = told(*events, job=of_job(CREATED))
    assert explanation.attempts == ()
    assert explanation.limits == ("1 failed pod is gone, and no record says how it ended",)


def test_a_pod_that_exists_has_one_row() -> None:
    of = old(status={"startTime": text(0), "failed": 1})
    events = {event_key("Job", "ns", "j"): of_job(("SuccessfulCreate", "Created pod: pod-a"))}
    assert [row.pod for row in explain(of, failed("a", 3, ended=5), events=events).attempts] == [
        "pod-a"
    ]
