# SPDX-License-Identifier: Apache-2.0
"""Failures and what was decided about them, kept on the Job within bounds."""

import msgspec
import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import attempts
from refloat.policy.job.attempts import FailureDetails
from refloat.policy.job.pod_failure import NO_MATCH, Verdict
from tests import builders as objects
from tests.cases import cases
from tests.unit.policy import builders

IGNORED = Verdict("Ignore", 2, "ns/pod-u", "main", 7)
DETAILS = FailureDetails(builders.at(900))
DISRUPTED = Verdict("Count", 0, "ns/pod-u", condition="DisruptionTarget")


def job(text: str | None = None) -> Job:
    annotations = {} if text is None else {attempts.ANNOTATION: text}
    return builders.decoded(objects.job(namespace="ns", uid="job", annotations=annotations))


def added(
    judged: list[tuple[Pod, Verdict]],
    before: str | None = None,
    details: FailureDetails = DETAILS,
) -> str:
    text = attempts.added(job(before), judged, details)
    assert text is not None
    return text


EVICTED = builders.pod("a", "Failed", reason="Evicted")
TARGET = builders.condition("DisruptionTarget", reason="EvictionByEvictionAPI")
DRAINED = builders.pod("a", "Failed", conditions=[TARGET])


def out_of_memory() -> Object:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    return {"name": "main", "state": ended}


STRANGE = {
    "a pod that is an object": '[{"pod":{}}]',
    "a uid that is a list": '[{"uid":[]}]',
    "a uid that is a number": '[{"uid":1,"action":"Ignore"}]',
    "very deep": "[" * 3000,
    "no JSON": "{",
    "no list": '{"uid":"a"}',
    "no objects": '[1,null,"x",[]]',
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_what_is_no_entry_is_passed_over(text: str) -> None:
    assert attempts.recorded({attempts.ANNOTATION: text}) == []
    entries = msgspec.json.decode(added([(builders.failed("a"), NO_MATCH)], text))
    assert [each["uid"] for each in entries] == ["a"]


def test_entries_stay_that_stand_beside_strange_ones() -> None:
    text = '[{"uid":"a","pod":"p"},{"uid":{}},{"note":1}]'
    assert attempts.recorded({attempts.ANNOTATION: text}) == [{"uid": "a", "pod": "p"}, {"note": 1}]


def test_an_entry_says_which_rule_matched_what() -> None:
    pods = [
        builders.failed("a", 7, ended=5, index=3),
        builders.failed("b"),
        builders.failed("c", 3),
    ]
    text = added(list(zip(pods, [IGNORED, DISRUPTED, NO_MATCH], strict=True)))
    assert msgspec.json.decode(text) == [
        {
            "pod": "pod-a",
            "uid": "a",
            "index": 3,
            "node": "n",
            "finished": builders.text(5),
            "action": "Ignore",
            "rule": 2,
            "container": "main",
            "exitCode": 7,
        },
        {
            "pod": "pod-b",
            "uid": "b",
            "node": "n",
            "finished": builders.text(0),
            "action": "Count",
            "rule": 0,
            "container": "main",
            "exitCode": 1,
            "condition": "DisruptionTarget",
        },
        {
            "pod": "pod-c",
            "uid": "c",
            "node": "n",
            "finished": builders.text(0),
            "container": "main",
            "exitCode": 3,
        },
    ]


@cases(
    "of want",
    {
        "deleted, not ended": (builders.pod("a", deleted=0), {}),
        "never begun": (builders.pod("a", "Failed"), {}),
        "given up by its node": (EVICTED, {"reason": "Evicted"}),
        "drained": (DRAINED, {"disruption": "EvictionByEvictionAPI"}),
        "out of memory": (
            builders.pod("a", "Failed", containers=[out_of_memory()]),
            {"container": "main", "exitCode": 137, "containerReason": "OOMKilled"},
        ),
        "the first container that failed": (
            builders.pod(
                "a",
                "Failed",
                containers=[builders.container("ok", 0), builders.container("bad", 4)],
                init=[builders.container("init", 5)],
            ),
            {"container": "bad", "exitCode": 4},
        ),
    },
)
def test_a_failure_that_no_rule_matched_says_how_it_ended(of: Pod, want: Object) -> None:
    [entry] = msgspec.json.decode(added([(of, NO_MATCH)]))
    assert {
        key: entry[key] for key in entry if key not in ("pod", "uid", "node", "finished")
    } == want


def test_a_pod_is_entered_once() -> None:
    first = added([(builders.failed("a"), NO_MATCH)])
    assert attempts.added(job(first), [(builders.failed("a"), NO_MATCH)], DETAILS) is None
    both = added([(builders.failed("a"), NO_MATCH), (builders.failed("b"), NO_MATCH)], first)
    assert [each["uid"] for each in msgspec.json.decode(both)] == ["a", "b"]


def test_without_failures_nothing_is_written() -> None:
    assert attempts.added(job(), [], DETAILS) is None


def test_the_last_hundred_stay() -> None:
    text = added([(builders.failed(str(number)), NO_MATCH) for number in range(250)])
    uids = [each["uid"] for each in msgspec.json.decode(text)]
    assert uids == [str(number) for number in range(150, 250)]


DEADLINE = FailureDetails(builders.at(900), job_failed="DeadlineExceeded")


def test_a_pod_that_runs_when_the_job_fails_ends_with_the_job() -> None:
    [entry] = msgspec.json.decode(added([(builders.pod("a"), NO_MATCH)], details=DEADLINE))
    assert (entry["jobFailed"], entry["finished"]) == ("DeadlineExceeded", builders.text(900))


@pytest.mark.parametrize("pod", [builders.failed("a"), builders.pod("a", deleted=0)])
def test_a_pod_that_ended_before_the_job_failed_has_its_own_reason(pod: Pod) -> None:
    [entry] = msgspec.json.decode(added([(pod, NO_MATCH)], details=DEADLINE))
    assert "jobFailed" not in entry


def test_pods_that_end_with_the_job_push_no_failure_out() -> None:
    before = added([(builders.failed("first", 7), NO_MATCH)])
    running = [(builders.pod(str(number)), NO_MATCH) for number in range(250)]
    uids = [each["uid"] for each in msgspec.json.decode(added(running, before, DEADLINE))]
    assert uids == ["first", *(str(number) for number in range(151, 250))]


def test_the_end_of_a_log_stands_in_its_entry() -> None:
    details = FailureDetails(builders.at(900), logs={"a": "x" * 3000 + "end"})
    failures = [(builders.failed("a"), NO_MATCH), (builders.failed("b"), NO_MATCH)]
    first, second = msgspec.json.decode(added(failures, details=details))
    assert first["log"] == "x" * 1997 + "end"
    assert "log" not in second


def test_old_logs_go_before_entries() -> None:
    pods = [builders.failed(str(number)) for number in range(50)]
    logs = {str(number): "\u2620" * 2000 for number in range(50)}
    text = added(
        [(pod, NO_MATCH) for pod in pods], details=FailureDetails(builders.at(9), logs=logs)
    )
    entries = msgspec.json.decode(text)
    assert len(text.encode()) <= attempts.MAX_BYTES
    assert len(entries) == 50
    with_log = [each["uid"] for each in entries if "log" in each]
    assert with_log == [str(number) for number in range(50 - len(with_log), 50)]
    assert with_log


def test_no_names_make_it_longer_than_its_bound() -> None:
    long = Verdict("Ignore", 0, container="c" * 2000, exit_code=1)
    text = added([(builders.failed(str(number)), long) for number in range(100)])
    assert len(text) <= attempts.MAX_BYTES
    assert msgspec.json.decode(text)[-1]["uid"] == "99"


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "[1]", "null"])
def test_what_somebody_else_wrote_is_replaced(text: str) -> None:
    assert len(msgspec.json.decode(added([(builders.failed("a"), NO_MATCH)], text))) == 1


def test_pods_of_the_same_fate_are_told_of_together() -> None:
    failures = [(builders.failed(str(number)), IGNORED) for number in range(5)]
    failures += [(builders.failed("x"), DISRUPTED), (builders.failed("y"), NO_MATCH)]
    failures += [(EVICTED, NO_MATCH), (builders.pod("z", deleted=0), NO_MATCH)]
    failures += [(builders.pod("p", "Failed"), NO_MATCH)]
    ignored = "container main failed with exit code 7 matching Ignore rule at index 2"
    assert attempts.notes(failures) == [
        f"pod-0, pod-1, pod-2 and 2 more: {ignored}",
        "pod-x: condition DisruptionTarget matching Count rule at index 0",
        "pod-y: container main failed with exit code 1 matching no rule",
        "pod-a: failed (Evicted) matching no rule",
        "pod-z: deleted matching no rule",
        "pod-p: failed matching no rule",
    ]
