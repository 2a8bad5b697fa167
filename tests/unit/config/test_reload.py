# SPDX-License-Identifier: Apache-2.0
"""A configuration file that changes under a running process."""

from pathlib import Path

import pytest

from refloat.base.clock import RealClock
from refloat.config.errors import ConfigError
from refloat.config.load import Configuration
from refloat.config.reload import Reloading

HEAD = "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"
ON = HEAD + "featureGates: {TaintForceEviction: true}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD)
    return path


@pytest.fixture
def reloading(path: Path) -> Reloading:
    return Reloading(path, RealClock())


def test_a_changed_file_is_taken_up_and_told(path: Path, reloading: Reloading) -> None:
    told: list[Configuration] = []
    reloading.on_change(told.append)
    path.write_text(ON)
    reloading.look()
    assert reloading.current.feature_gates == {"TaintForceEviction": True}
    assert told == [reloading.current]


def test_a_bad_file_keeps_the_old_one_and_says_so_once(
    path: Path, reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(ON)
    reloading.look()
    path.write_text(HEAD + "featureGates: {Nope: true}\n")
    reloading.look()
    reloading.look()
    assert reloading.current.feature_gates == {"TaintForceEviction": True}
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1
    assert "the old one stays" in errors[0]
    assert "Nope" in errors[0]


def test_a_file_that_vanishes_keeps_the_old_one(path: Path, reloading: Reloading) -> None:
    path.unlink()
    reloading.look()
    assert reloading.current == Configuration()


def test_an_unchanged_file_is_not_told(path: Path, reloading: Reloading) -> None:
    told: list[Configuration] = []
    reloading.on_change(told.append)
    path.write_text(HEAD + "# a remark\n")
    reloading.look()
    assert told == []


def test_a_bad_first_file_stops_the_start(path: Path) -> None:
    path.write_text("kind: Nope\n")
    with pytest.raises(ConfigError, match="apiVersion"):
        Reloading(path, RealClock())
