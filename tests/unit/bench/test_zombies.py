# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `refloat bench zombies`; what it measures decides no test."""

import pytest

from refloat.bench import stuck, zombies
from refloat.bench.zombies import Sizes


@pytest.mark.parametrize(
    ("pods", "want_in_jobs", "want_nodes", "want_reported", "want_budget"),
    [
        pytest.param(2_000, 2_000, 22, 10_000, 400, id="by default"),
        pytest.param(1, 20, 2, 5, 1, id="as few as can be"),
    ],
)
def test_the_other_sizes_follow(
    pods: int, want_in_jobs: int, want_nodes: int, want_reported: int, want_budget: int
) -> None:
    sizes = Sizes(pods)
    assert (sizes.in_jobs, sizes.nodes) == (want_in_jobs, want_nodes)
    assert (sizes.reported, sizes.budget) == (want_reported, want_budget)
    assert sizes.budgeted == sizes.budget * zombies.WINDOWS


@pytest.mark.parametrize(
    ("moments", "want"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([0.0, 0.0, 5.0, 5.0], 2, id="exactly a window later is another one"),
        pytest.param([0.0, 0.1, 4.9, 5.05, 5.1], 4, id="a window begins anywhere"),
    ],
)
def test_the_most_in_any_window(moments: list[float], want: int) -> None:
    assert stuck.most_within(moments, 5.0) == want


def test_kueue_was_measured_with_one_number_of_pods_only() -> None:
    row = zombies._stock("freed", 5.0, "s", Sizes(zombies.STOCK_PODS), 19.8)
    assert (row.stock, row.aim, row.reached) == (19.8, 9.9, True)
    row = zombies._stock("freed", 5.0, "s", Sizes(100), 19.8)
    assert (row.stock, row.aim) == (None, None)
