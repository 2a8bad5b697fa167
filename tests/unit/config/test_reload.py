# SPDX-License-Identifier: Apache-2.0
"""A configuration file that changes under a running process."""

from pathlib import Path

import pytest

from refloat.base.clock import RealClock
from refloat.base.tasks import Tasks
from refloat.config import load
from refloat.config.errors import ConfigError
from refloat.config.load import Configuration
from refloat.config.reload import POLL_SECONDS, Reloading
from refloat.sim.run import Sim
from tests.virtual import virtual

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
    changes: list[Configuration] = []
    reloading.on_change(changes.append)
    path.write_text(ON)
    reloading.poll()
    assert reloading.current.feature_gates == {"TaintForceEviction": True}
    assert changes == [reloading.current]


def test_a_bad_file_keeps_the_old_one_and_says_so_once(
    path: Path, reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(ON)
    reloading.poll()
    path.write_text(HEAD + "featureGates: {Nope: true}\n")
    reloading.poll()
    reloading.poll()
    assert reloading.current.feature_gates == {"TaintForceEviction": True}
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1
    assert "the old configuration stays in force" in errors[0]
    assert "Nope" in errors[0]


BAD = {
    "a day that there is not": "failureRecoveryPolicy: {annotated: {deleteAfter: 2026-13-01}}",
    "nesting": f"featureGates: {'[' * 5000}{']' * 5000}",
    "a long number": f"failureRecoveryPolicy: {{budget: {{maxPods: {'9' * 5000}, window: 1m}}}}",
    "a long percentage": f"failureRecoveryPolicy: {{holdAboveUnreachableNodes: {'9' * 5000}%}}",
    "a key twice": "featureGates: {}\nfeatureGates: {TaintForceEviction: true}",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_whatever_is_wrong_the_next_right_file_is_taken_up(
    path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual()
    async def follow(sim: Sim) -> None:
        reloading = Reloading(path, sim.clock)
        following = Tasks()
        following.spawn(reloading.follow(), name="configuration")
        path.write_text(f"{HEAD}{text}\n")
        await sim.clock.sleep(2 * POLL_SECONDS)
        assert reloading.current == Configuration()
        path.write_text(ON)
        await sim.clock.sleep(2 * POLL_SECONDS)
        assert reloading.current.feature_gates == {"TaintForceEviction": True}
        await following.close()

    follow()
    (message,) = (each.getMessage() for each in caplog.records if each.levelname == "ERROR")
    assert message.startswith(f"the old configuration stays in force: {path}: ")
    assert "\n" not in message


def test_an_error_that_nobody_foresaw_keeps_the_old_one_and_is_told(
    path: Path,
    reloading: Reloading,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Path) -> Configuration:
        raise LookupError("unforeseen")

    monkeypatch.setattr(load, "load", fail)
    path.write_text(ON)
    reloading.poll()
    assert reloading.current == Configuration()
    assert "the old configuration stays in force" in caplog.text
    assert "unforeseen" in caplog.text


def test_a_listener_that_fails_does_not_end_the_looking(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[Configuration] = []

    def listener(new: Configuration) -> None:
        changes.append(new)
        raise LookupError("unforeseen")

    @virtual()
    async def follow(sim: Sim) -> None:
        reloading = Reloading(path, sim.clock)
        reloading.on_change(listener)
        following = Tasks()
        following.spawn(reloading.follow(), name="configuration")
        for text in (ON, HEAD):
            path.write_text(text)
            await sim.clock.sleep(2 * POLL_SECONDS)
        await following.close()

    follow()
    assert [each.feature_gates for each in changes] == [{"TaintForceEviction": True}, {}]
    assert "unforeseen" in caplog.text


def test_a_file_that_vanishes_keeps_the_old_one(path: Path, reloading: Reloading) -> None:
    path.unlink()
    reloading.poll()
    assert reloading.current == Configuration()


def test_an_unchanged_file_is_not_told(path: Path, reloading: Reloading) -> None:
    changes: list[Configuration] = []
    reloading.on_change(changes.append)
    path.write_text(HEAD + "# a remark\n")
    reloading.poll()
    assert changes == []


def test_a_bad_first_file_stops_the_start(path: Path) -> None:
    path.write_text("kind: Nope\n")
    with pytest.raises(ConfigError, match="apiVersion"):
        Reloading(path, RealClock())
