# SPDX-License-Identifier: Apache-2.0
"""Pods over time, as lines of text."""

import pytest

from refloat.demo import picture
from refloat.demo.picture import Lane, State


def lane(index: str, node: str, *states: tuple[float, State]) -> Lane:
    return Lane(index, node, list(states))


def test_pods_of_one_index_stand_below_each_other_with_their_nodes() -> None:
    lanes = [
        lane("0", "n1", (0.1, State.RUNNING), (2.0, State.TERMINATING), (4.2, State.FAILED)),
        lane("1", "n2", (0.4, State.PENDING), (1.0, State.RUNNING), (3.0, State.SUCCEEDED)),
        lane("0", "n3", (4.4, State.PENDING), (5.0, State.RUNNING)),
    ]
    assert picture.draw(lanes, 6.0) == [
        "index   0         5         10        15        20        25        s",
        "0       ====~~~~X                                                     n1",
        "                ..===                                                 n3",
        "1       ..====#                                                       n2",
        f"        {picture.LEGEND}",
    ]


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(29.0, "0         5         10", id="half a second a column"),
        pytest.param(31.0, "0         10        20", id="a second, when there is no more room"),
        pytest.param(1000.0, "0         50        100", id="no more than five"),
    ],
)
def test_the_scale_has_room_for_all_of_it(now: float, want: str) -> None:
    numbers, pods, _ = picture.draw([lane("0", "n1", (0.0, State.RUNNING))], now)
    assert numbers.split("index   ")[1].startswith(want)
    assert len(pods) <= picture.INDENT + picture.COLUMNS + 4


def test_an_end_is_seen_however_soon_it_comes() -> None:
    short = lane("0", "n1", (1.0, State.RUNNING), (1.1, State.SUCCEEDED))
    assert [short.at(each / 2, each / 2 + 0.5) for each in range(4)] == [" ", " ", "#", " "]


def test_the_same_again_is_no_news() -> None:
    it = Lane("0")
    assert [it.note(each, State.RUNNING) for each in (0.0, 1.0)] == [True, False]
    assert it.states == [(0.0, State.RUNNING)]
