# SPDX-License-Identifier: Apache-2.0
"""Thresholds on the command line, in a kubelet's form."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from refloat.base.errors import UsageError
from refloat.cli import pressure
from refloat.policy.eviction_thresholds import DISK, MEMORY, PIDS


def given(*argv: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @pressure.options
    def command(**options: Any) -> None:
        found.update(options)

    CliRunner().invoke(command, argv, catch_exceptions=False)
    return found


def test_the_defaults_are_fit_for_a_machine_that_people_work_on() -> None:
    settings = pressure.eviction(given())
    assert settings.hard == {MEMORY: "100Mi", DISK: "1Gi"}
    assert settings.transition_seconds == 300
    assert pressure.shutdown(given()).periods()[0].seconds == 20


def test_all_that_can_be_said() -> None:
    settings = pressure.eviction(
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
    assert pressure.eviction(given("--eviction-hard=")).thresholds() == ()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        pytest.param(
            "--eviction-hard=memory.available",
            "--eviction-hard 'memory.available': expected SIGNAL<AMOUNT, each once",
            id="no amount",
        ),
        pytest.param(
            "--eviction-hard=memory.available<1,memory.available<2",
            "--eviction-hard 'memory.available<2': expected SIGNAL<AMOUNT, each once",
            id="twice",
        ),
        pytest.param(
            "--eviction-hard=cpu<1", "evictionHard: unsupported eviction signal cpu", id="unknown"
        ),
        pytest.param(
            "--eviction-soft=memory.available<1Gi",
            "grace period must be specified for the soft eviction threshold memory.available",
            id="soft without grace",
        ),
        pytest.param(
            "--eviction-pressure-transition-period=soon",
            "--eviction-pressure-transition-period 'soon': expected a duration",
            id="no duration",
        ),
        pytest.param(
            "--eviction-pressure-transition-period=1x30s",
            "--eviction-pressure-transition-period '1x30s': expected a duration",
            id="half a duration",
        ),
    ],
)
def test_mistakes_name_the_option_and_the_value(option: str, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        pressure.eviction(given(option))
    assert str(raised.value).startswith(text)


def test_a_part_of_a_shutdown_is_not_more_than_the_whole() -> None:
    with pytest.raises(UsageError, match="is more than"):
        pressure.shutdown(given("--shutdown-grace-period=5s"))
