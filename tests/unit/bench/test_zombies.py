# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `refloat bench zombies`; what it measures decides no test."""

from refloat.bench import stuck_pods, zombies
from refloat.bench.zombies import ZombieSizes
from tests.cases import cases


@cases(
    "pods want_in_jobs want_nodes want_reported want_budget",
    {"by default": (2_000, 2_000, 22, 10_000, 400), "as few as can be": (1, 20, 2, 5, 1)},
)
def test_the_other_sizes_follow(
    pods: int, want_in_jobs: int, want_nodes: int, want_reported: int, want_budget: int
) -> None:
    sizes = ZombieSizes(pods)
    assert (sizes.in_jobs, sizes.nodes) == (want_in_jobs, want_nodes)
    assert (sizes.reported, sizes.budget) == (want_reported, want_budget)
    assert sizes.budgeted == sizes.budget * zombies.WINDOWS


@cases(
    "moments want",
    {
        "none": ([], 0),
        "exactly a window later is another one": ([0.0, 0.0, 5.0, 5.0], 2),
        "a window begins anywhere": ([0.0, 0.1, 4.9, 5.05, 5.1], 4),
    },
)
def test_the_most_in_any_window(moments: list[float], want: int) -> None:
    assert stuck_pods.most_within(moments, 5.0) == want


def test_kueue_was_measured_with_one_number_of_pods_only() -> None:
    row = zombies.stock_row("freed", 5.0, "s", ZombieSizes(zombies.STOCK_PODS), 19.8)
    assert (row.stock, row.aim, row.reached) == (19.8, 9.9, True)
    row = zombies.stock_row("freed", 5.0, "s", ZombieSizes(100), 19.8)
    assert (row.stock, row.aim) == (None, None)
