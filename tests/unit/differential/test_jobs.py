# SPDX-License-Identifier: Apache-2.0
"""The verdict on random Jobs: planted differences are caught."""

import copy
from pathlib import Path
from typing import Any

from tests.cases import cases
from tests.differential import jobs, plans
from tests.scenarios import comparing
from tests.scenarios.playing import ScenarioResult
from tests.scenarios.setting import Setting

CONDITION = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}
OUTCOME: dict[str, Any] = {
    "job": {"conditions": [CONDITION], "failed": 1},
    "pods": {},
    "events": [],
    "notes": [],
}


def results(outcome: dict[str, Any], error: str = "") -> dict[str, ScenarioResult]:
    return {"case_1": ScenarioResult("case_1", error, outcome)}


def judged(
    reference: dict[str, ScenarioResult],
    other: dict[str, ScenarioResult],
    *again: tuple[dict[str, ScenarioResult], dict[str, ScenarioResult]],
) -> jobs.JobsVerdict:
    """The verdict on two settings, that played the case again as often as that is given."""
    differences = list(comparing.differences(reference, {"managed": other}, ()))
    pairs = [(reference, other), *again]
    plays = [dict(zip(("reference", "managed"), each, strict=True)) for each in pairs]
    return jobs.judged(differences, plays)


def planted() -> dict[str, Any]:
    """The outcome of a controller with a word different words in a message."""
    outcome = copy.deepcopy(OUTCOME)
    outcome["job"]["conditions"][0]["message"] = "other words"
    return outcome


def test_equal_outcomes_are_no_difference() -> None:
    assert not judged(results(OUTCOME), results(OUTCOME)).is_bad


def test_a_planted_message_is_caught() -> None:
    verdict = judged(results(OUTCOME), results(planted()))
    assert verdict.is_bad
    assert [(each.scenario, each.field) for each in verdict.differences] == [
        ("case_1", "job.conditions")
    ]


def test_a_planted_message_is_caught_when_it_comes_again() -> None:
    one, other = results(OUTCOME), results(planted())
    assert judged(one, other, (one, other)).is_bad


@cases(
    "again who",
    {
        "the reference": ((planted(), planted()), "reference"),
        "the other": ((OUTCOME, OUTCOME), "managed"),
    },
)
def test_a_case_that_one_of_them_ends_in_two_ways_is_dropped_and_listed(
    again: tuple[dict[str, Any], dict[str, Any]], who: str
) -> None:
    played = (results(again[0]), results(again[1]))
    verdict = judged(results(OUTCOME), results(planted()), played)
    assert verdict.differences == []
    assert f"case_1: dropped, {who} ends it in two ways: job.conditions: " in jobs.shown(
        verdict, {}, str
    )


STEADY = (results(OUTCOME), results(OUTCOME))
AGAIN = (results(OUTCOME), results(planted()))


def test_only_a_case_that_another_ends_in_two_ways_is_played_more_often() -> None:
    def doubtful(*pairs: tuple[dict[str, ScenarioResult], dict[str, ScenarioResult]]) -> set[str]:
        plays = [dict(zip(("reference", "managed"), each, strict=True)) for each in pairs]
        return jobs.doubtful(["case_1"], plays)

    assert doubtful(AGAIN, STEADY) == {"case_1"}
    assert doubtful(AGAIN, AGAIN) == set()
    assert doubtful(AGAIN, (results(planted()), results(planted()))) == set()


def test_what_comes_twice_is_a_difference_though_not_each_time() -> None:
    verdict = judged(*AGAIN, STEADY, STEADY, AGAIN)
    assert [each.field for each in verdict.differences] == ["job.conditions"]
    assert verdict.dropped == {}


def test_what_came_once_in_many_plays_is_dropped_and_listed() -> None:
    verdict = judged(*AGAIN, STEADY, STEADY, STEADY)
    assert verdict.differences == []
    assert list(verdict.dropped) == [("managed", "case_1")]


def test_another_ending_each_time_is_a_difference() -> None:
    third = copy.deepcopy(OUTCOME)
    third["job"]["failed"] = 2
    assert judged(*AGAIN, (results(OUTCOME), results(third))).differences


def test_an_error_that_comes_twice_is_told() -> None:
    failed = (results(OUTCOME), results(OUTCOME, error="not quiet"))
    assert judged(*failed, STEADY, failed).errors == ["managed: case_1: not quiet"]


def test_a_case_that_was_played_only_once_is_dropped() -> None:
    one, failed = results(OUTCOME), results(OUTCOME, error="x\nnot quiet")
    verdict = judged(one, failed, (one, one))
    assert verdict.dropped == {("managed", "case_1"): "not quiet"}
    assert verdict.errors == []


def test_a_case_that_could_not_be_played_is_bad() -> None:
    verdict = judged(results(OUTCOME), results(OUTCOME, error="not quiet"))
    assert verdict.errors == ["managed: case_1: not quiet"]
    assert verdict.is_bad


def dropped(count: int) -> dict[tuple[str, str], str]:
    return {("reference", f"case_{number}"): "" for number in range(count)}


def test_too_many_dropped_cases_are_bad() -> None:
    assert not jobs.JobsVerdict(dropped=dropped(10), cases=100).is_bad
    assert jobs.JobsVerdict(dropped=dropped(11), cases=100).is_bad


@cases(
    "seconds want",
    {
        "late now and then": ([10.1, 12.7, 10.9, 11.0, 11.2], None),
        "a base of eleven seconds": ([11.1, *[11.3] * 4], ("10 s", "11 s")),
        "too early once": ([*[10.4] * 4, 9.9], ("10 s", "9 s")),
        "too few were measured": ([11.1, 11.3], None),
        "none was measured": ([], None),
    },
)
def test_the_shortest_wait_tells_the_back_off(
    seconds: list[float], want: tuple[str, str] | None
) -> None:
    waits = {"reference": [10.2, 13.0, 10.3, 10.9, 11.0], "managed": seconds}
    pairs = [(each.expected, each.found) for each in jobs.wait_differences(waits)]
    assert pairs == ([want] if want else [])


def test_a_difference_is_told_with_its_plan_and_how_to_play_it_again() -> None:
    settings = [Setting("reference", Path("a")), Setting("managed", Path("b"))]
    verdict = judged(results(OUTCOME), results(planted()))
    text = jobs.shown(
        verdict, {"case_1": plans.plan(5, 1)}, lambda case: jobs.replay(5, case, settings)
    )
    assert "other words" in text
    assert '"acts": ' in text
    assert (
        "python -m tests.differential jobs --seed 5 --case 1 "
        "--setting reference=a --setting managed=b"
    ) in text
