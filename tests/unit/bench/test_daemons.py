# SPDX-License-Identifier: Apache-2.0
"""Programs in the background: ready, dead, stuck, stopped."""

import os
import signal
import sys
from pathlib import Path

import pytest

from refloat.bench import daemons
from refloat.bench.daemons import Daemon, DaemonError
from tests.cases import cases

FOREVER = "import time; print('up', flush=True); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}"


def start(tmp_path: Path, code: str) -> Daemon:
    return Daemon([sys.executable, "-c", code], tmp_path / "log")


def is_up(daemon: Daemon) -> bool:
    return "up" in daemon.log.read_text()


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_is_waited_for_and_stopped(tmp_path: Path) -> None:
    daemon = start(tmp_path, FOREVER)
    daemon.wait_until(lambda: is_up(daemon), "word")
    assert daemon.is_running()
    daemon.stop()
    assert not is_there(daemon.pid)


def test_one_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "STOP_SECONDS", 0.1)
    daemon = start(tmp_path, DEAF)
    daemon.wait_until(lambda: is_up(daemon), "word")
    daemon.stop()
    assert not is_there(daemon.pid)


def test_one_that_has_ended_can_be_stopped(tmp_path: Path) -> None:
    daemon = start(tmp_path, "pass")
    daemon.stop()
    daemon.stop(signal.SIGKILL)
    assert not daemon.is_running()


@cases(
    "code told",
    {
        "by itself": ("raise SystemExit('flag unknown: --x')", "ended with exit code 1"),
        "a port is taken": (
            "raise SystemExit('listen tcp 127.0.0.1:1: bind: address already in use')",
            "another program uses one of its ports",
        ),
        "the disk is full": (
            "raise SystemExit('write wal: no space left on device')",
            "is full; free some space",
        ),
    },
)
def test_one_that_dies_is_told_with_the_end_of_its_log(
    tmp_path: Path, code: str, told: str
) -> None:
    daemon = start(tmp_path, code)
    with pytest.raises(DaemonError) as raised:
        daemon.wait_until(lambda: False, "answer")
    said = str(raised.value)
    assert told in said
    assert code.split("'")[1] in said
    assert str(daemon.log) in said


def test_one_that_is_never_ready_is_told_with_what_was_waited_for(tmp_path: Path) -> None:
    daemon = start(tmp_path, FOREVER)
    try:
        with pytest.raises(DaemonError, match="no answer at nowhere within 0 s"):
            daemon.wait_until(lambda: False, "answer at nowhere", seconds=0)
    finally:
        daemon.stop()


def test_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match=r"cannot start .*/etcd: No such file"):
        Daemon([tmp_path / "etcd"], tmp_path / "log")
