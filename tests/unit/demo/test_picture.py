# SPDX-License-Identifier: Apache-2.0
"""Pods over time, as lines of text."""

from refloat.demo import picture
from refloat.demo.picture import PodState, PodTimeline
from tests.cases import cases


def timeline(index: str, node: str, *states: tuple[float, PodState]) -> PodTimeline:
    return PodTimeline(index, node, list(states))


def test_pods_of_one_index_stand_below_each_other_with_their_nodes() -> None:
    timelines = [
        timeline(
            "0", "n1", (0.1, PodState.RUNNING), (2.0, PodState.TERMINATING), (4.2, PodState.FAILED)
        ),
        timeline(
            "1", "n2", (0.4, PodState.PENDING), (1.0, PodState.RUNNING), (3.0, PodState.SUCCEEDED)
        ),
        timeline("0", "n3", (4.4, PodState.PENDING), (5.0, PodState.RUNNING)),
    ]
    assert picture.draw(timelines, 6.0) == [
        "index   0         5         10        15        20        25        s",
        "0       ====~~~~X                                                     n1",
        "                ..===                                                 n3",
        "1       ..====#                                                       n2",
        f"        {picture.LEGEND}",
    ]


@cases(
    "now want",
    {
        "half a second a column": (29.0, "0         5         10"),
        "a second, when there is no more room": (31.0, "0         10        20"),
        "no more than five": (1000.0, "0         50        100"),
    },
)
def test_the_scale_has_room_for_all_of_it(now: float, want: str) -> None:
    numbers, pods, _ = picture.draw([timeline("0", "n1", (0.0, PodState.RUNNING))], now)
    assert numbers.split("index   ")[1].startswith(want)
    assert len(pods) <= picture.INDENT + picture.COLUMNS + 4


def test_an_end_is_seen_however_soon_it_comes() -> None:
    short = timeline("0", "n1", (1.0, PodState.RUNNING), (1.1, PodState.SUCCEEDED))
    assert [short.at(each / 2, each / 2 + 0.5) for each in range(4)] == [" ", " ", "#", " "]


def test_the_same_again_is_no_news() -> None:
    it = PodTimeline("0")
    assert [it.note(each, PodState.RUNNING) for each in (0.0, 1.0)] == [True, False]
    assert it.states == [(0.0, PodState.RUNNING)]
