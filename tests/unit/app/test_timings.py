# SPDX-License-Identifier: Apache-2.0
"""The waits of an embedded cluster: Kubernetes', and a tenth of them."""

import re
from pathlib import Path

import pytest

from refloat.apiserver import admission
from refloat.app import embedded
from refloat.app.timings import FAST, KUBERNETES, Timings

APISERVER = Path(__file__).parents[3] / "docs" / "apiserver.md"


def waits(timings: Timings) -> list[float]:
    """All of them in seconds, in the order of the document's table."""
    health, zones = timings.node_lifecycle.health, timings.node_lifecycle.zones
    delays = timings.job.pods.delays
    return [
        timings.node.beat_seconds,
        timings.node.lease_seconds,
        timings.node.report_seconds,
        health.period,
        health.grace,
        health.startup_grace,
        1 / zones.rate,
        1 / zones.secondary_rate,
        timings.pod_gc.period,
        timings.pod_gc.quarantine,
        timings.disruption.patience.total_seconds(),
        delays.first.total_seconds(),
        delays.longest.total_seconds(),
        timings.job.batch_seconds,
        timings.node.self_fence_seconds,
        timings.recovery_period.total_seconds(),
    ]


def test_short_waits_are_a_tenth() -> None:
    assert waits(FAST) == pytest.approx([each / 10 for each in waits(KUBERNETES)])
    assert embedded.FAST_TOLERATION_SECONDS * 10 == admission.TOLERATION_SECONDS


def test_what_is_no_wait_is_the_same() -> None:
    assert FAST.node_lifecycle.zones.large_zone == KUBERNETES.node_lifecycle.zones.large_zone
    assert FAST.pod_gc.threshold == KUBERNETES.pod_gc.threshold
    assert FAST.node.capacity == KUBERNETES.node.capacity


@pytest.mark.parametrize(("column", "timings"), [(1, KUBERNETES), (2, FAST)], ids=["usual", "fast"])
def test_the_document_says_so(column: int, timings: Timings) -> None:
    section = APISERVER.read_text().split("## Shorter waits")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    documented = [seconds for row in rows for seconds in _seconds(row[column])]
    tolerated = 30.0 if timings is FAST else 300.0
    assert documented.pop(8) == tolerated
    assert documented == pytest.approx(waits(timings))


def _seconds(cell: str) -> list[float]:
    matches = re.findall(r"([0-9.]+) (s|min)\b", cell)
    return [float(number) * (60 if unit == "min" else 1) for number, unit in matches]
