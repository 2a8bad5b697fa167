# SPDX-License-Identifier: Apache-2.0
"""Thresholds on the command line, in a kubelet's form."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from refloat.base.errors import UsageError
from refloat.cli import eviction_options
from refloat.policy.node.eviction_thresholds import DISK, MEMORY, PIDS
from tests.cases import cases


def given(*argv: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @eviction_options.options
    def command(**options: Any) -> None:
        found.update(options)

    CliRunner().invoke(command, argv, catch_exceptions=False)
    return found


def test_the_defaults_are_fit_for_a_machine_that_people_work_on() -> None:
    settings = eviction_options.eviction(given())
    assert settings.hard == {MEMORY: "100Mi", DISK: "1Gi"}
    assert settings.transition_seconds == 300
    assert eviction_options.shutdown(given()).periods()[0].seconds == 20


def test_all_that_can_be_said() -> None:
    settings = eviction_options.eviction(
        given(
            "--eviction-hard=pid.available<10%",
            "--eviction-soft=memory.available<1Gi,nodefs.available<2Gi",
            "--eviction-soft-grace-period=memory.available=1m30s, nodefs.available=1.5s",
            "--eviction-max-pod-grace-period=7",
            "--eviction-minimum-reclaim=memory.available=5Mi",
            "--eviction-pressure-transition-period=0",
        )
    )
    assert settings.hard == {PIDS: "10%"}
    assert settings.soft_grace_seconds == {MEMORY: 90, DISK: 1.5}
    assert (settings.max_pod_grace_seconds, settings.transition_seconds) == (7, 0)
    assert len(settings.thresholds()) == 3


def test_no_threshold_at_all() -> None:
    assert eviction_options.eviction(given("--eviction-hard=")).thresholds() == ()


@cases(
    "option text",
    {
        "no amount": (
            "--eviction-hard=memory.available",
            "--eviction-hard 'memory.available': expected SIGNAL<AMOUNT, each once",
        ),
        "twice": (
            "--eviction-hard=memory.available<1,memory.available<2",
            "--eviction-hard 'memory.available<2': expected SIGNAL<AMOUNT, each once",
        ),
        "unknown": ("--eviction-hard=cpu<1", "evictionHard: unsupported eviction signal cpu"),
        "soft without grace": (
            "--eviction-soft=memory.available<1Gi",
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        "no duration": (
            "--eviction-pressure-transition-period=soon",
            "--eviction-pressure-transition-period 'soon': expected a duration",
        ),
        "half a duration": (
            "--eviction-pressure-transition-period=1x30s",
            "--eviction-pressure-transition-period '1x30s': expected a duration",
        ),
    },
)
def test_mistakes_name_the_option_and_the_value(option: str, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        eviction_options.eviction(given(option))
    assert str(raised.value).startswith(text)


def test_a_part_of_a_shutdown_is_not_more_than_the_whole() -> None:
    with pytest.raises(UsageError, match="is more than"):
        eviction_options.shutdown(given("--shutdown-grace-period=5s"))
