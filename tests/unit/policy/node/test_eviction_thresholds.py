# SPDX-License-Identifier: Apache-2.0
"""Thresholds as a kubelet's settings write them (behaviour D6)."""

import pytest

from refloat.base.errors import UsageError
from refloat.policy.node.eviction_thresholds import DISK, MEMORY, PIDS, EvictionSettings
from tests.cases import cases


def test_a_kubelets_defaults() -> None:
    memory, disk = EvictionSettings().thresholds()
    assert (memory.signal, str(memory.amount.of(0))) == (MEMORY, "100Mi")
    assert (disk.signal, disk.is_hard) == (DISK, True)
    assert EvictionSettings().transition_seconds == 300
    assert EvictionSettings().monitoring_seconds == 10


@cases(
    "text capacity want",
    {
        "as it was written": ("100Mi", 1 << 30, "100Mi"),
        "canonical": ("2048Mi", 1 << 30, "2Gi"),
        "a number": ("5", 100, "5"),
        "a share": ("50%", 1 << 30, "512Mi"),
        # A tenth is not exact in 32 bits, and a kubelet's messages show it.
        "with a kubelet's digits": ("10%", 100 << 30, "10737418400"),
    },
)
def test_amounts(text: str, capacity: int, want: str) -> None:
    (threshold,) = EvictionSettings(hard={MEMORY: text}).thresholds()
    assert str(threshold.amount.of(capacity)) == want


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_nothing_and_all_switch_a_threshold_off(text: str) -> None:
    assert EvictionSettings(hard={MEMORY: text}).thresholds() == ()


def test_hard_and_soft_ones_of_a_signal_are_apart() -> None:
    settings = EvictionSettings(hard={PIDS: "10"}, soft={PIDS: "20"}, soft_grace_seconds={PIDS: 5})
    assert [each.grace_seconds for each in settings.thresholds()] == [0, 5]


@cases(
    "settings text",
    {
        "a signal that nobody knows": (
            EvictionSettings(hard={"imagefs.available": "1Gi"}),
            (
                "evictionHard: unsupported eviction signal imagefs.available; "
                "known are memory.available, nodefs.available, pid.available"
            ),
        ),
        "no quantity": (
            EvictionSettings(hard={MEMORY: "much"}),
            "evictionHard[memory.available]: 'much': quantities must match",
        ),
        "more than all": (
            EvictionSettings(hard={MEMORY: "101%"}),
            "evictionHard[memory.available]: '101%': expected 0% to 100%",
        ),
        "no share": (EvictionSettings(hard={MEMORY: "x%"}), "evictionHard[memory.available]"),
        "less than nothing": (
            EvictionSettings(minimum_reclaim={MEMORY: "-1"}),
            "evictionMinimumReclaim[memory.available]: eviction threshold must be positive: -1",
        ),
        "a soft one without grace": (
            EvictionSettings(soft={MEMORY: "1Gi"}),
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        "a negative grace": (
            EvictionSettings(soft={MEMORY: "1Gi"}, soft_grace_seconds={MEMORY: -1}),
            "evictionSoftGracePeriod[memory.available]: -1 must not be negative",
        ),
    },
)
def test_mistakes_name_the_field_and_the_value(settings: EvictionSettings, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        settings.thresholds()
    assert str(raised.value).startswith(text)
