# SPDX-License-Identifier: Apache-2.0
"""What `refloat bench nodes` makes of its sizes; the rest is measured, not tested."""

import pytest

from refloat.bench import nodes
from refloat.bench.nodes import NodeSizes


@pytest.mark.parametrize(
    ("sizes", "want_lost", "want_bound"),
    [(NodeSizes(5_000, 50_000), 500, 5_000), (NodeSizes(3, 10), 1, 10)],
    ids=["by default", "in the quick form"],
)
def test_the_other_sizes_follow(sizes: NodeSizes, want_lost: int, want_bound: int) -> None:
    assert (sizes.lost, sizes.bound) == (want_lost, want_bound)


def test_there_is_a_place_for_each_pod_that_is_measured() -> None:
    said: list[str] = []
    [row] = nodes.decisions(NodeSizes(2, 20), said.append)
    assert said == ["places for 20 pods on 2 nodes"]
    assert (row.what, row.unit, row.aim, row.smaller_is_better) == (
        "scheduler: decisions",
        "/s",
        5_000,
        False,
    )
    assert row.value > 0
