# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.kubernetes` in trouble: a message, an exit code, and nothing left behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import programs
from tests.unit.kubernetes import impostors

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 300.0

# Answers `--version` and the like; a build only begins, in two processes.
BUILDS_FOR_EVER = """
import os, pathlib, subprocess, sys, time
if sys.argv[1] == "env":
    sys.exit(print("go1.26.0"))
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text("half")
child = subprocess.Popen(["sleep", "600"])
pathlib.Path(sys.argv[0]).with_suffix(".pid").write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""

FULL_DISK = """
import sys
if sys.argv[1] == "env":
    print("go1.26.0")
else:
    sys.exit("write /tmp/go-build1/b001/_pkg_.a: no space left on device")
"""


class RunEnvironment:
    """A machine as small as a test needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_NO_INDEX": "1",
        }
        (folder / "tmp").mkdir()

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code, and the standard error."""
        with self.start(*arguments) as process:
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode, errors

    def pids(self) -> list[int]:
        """Of all programs that were started."""
        texts = [each.read_text() for each in self.folder.rglob("*.pid")]
        return [int(pid) for text in texts for pid in text.split()]

    def until_started(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.pids()) < count:
            assert time.monotonic() < deadline, self.pids()
            time.sleep(0.02)

    def until_ended(self) -> None:
        """Wait until all have ended: a process that was killed is not gone at once."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.left():
            assert time.monotonic() < deadline, self.left()
            time.sleep(0.02)

    def left(self) -> list[int]:
        """Those that still run."""
        running = []
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                running += [pid] if state != "Z" else []
        return running


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[RunEnvironment]:
    surroundings = RunEnvironment(tmp_path)
    yield surroundings
    for pid in surroundings.left():
        os.kill(pid, signal.SIGKILL)


def test_no_go_and_no_registry(surroundings: RunEnvironment) -> None:
    impostors.write(surroundings.folder / "go", "raise SystemExit(1)")
    code, output = surroundings.run()
    assert code == 1
    assert output.startswith(
        "test-kubernetes: there is no Go 1.26 or newer on this machine, and none"
    )


def test_a_build_that_runs_out_of_disk(surroundings: RunEnvironment) -> None:
    impostors.write(surroundings.folder / "go", FULL_DISK)
    code, output = surroundings.run()
    assert code == 1
    assert output.startswith("test-kubernetes: etcd: the disk is full; make room")
    assert "Traceback" not in output


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_interrupted_leaves_no_process_and_no_half_program(
    surroundings: RunEnvironment, by: signal.Signals
) -> None:
    impostors.write(surroundings.folder / "go", BUILDS_FOR_EVER)
    with surroundings.start() as process:
        surroundings.until_started(2)
        process.send_signal(by)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert errors == ""
    surroundings.until_ended()
    assert [each for each in (surroundings.folder / "cache").rglob("*") if each.is_file()] == []


def test_a_port_that_is_taken(surroundings: RunEnvironment) -> None:
    surroundings.environment[programs.ASSETS] = str(_assets(surroundings))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, output = surroundings.run("--port", str(port))
    assert code == 2
    assert f"port {port} of 127.0.0.1: Address already in use; choose another, or 0" in output


def test_a_run_that_is_interrupted_leaves_no_process_and_no_folder(
    surroundings: RunEnvironment,
) -> None:
    folder = _assets(surroundings)
    never = impostors.SERVER.replace("send_response(200)", "send_response(503)")
    impostors.write(folder / "kube-apiserver", _versioned(never))
    surroundings.environment[programs.ASSETS] = str(folder)
    with surroundings.start("--only", "contract") as process:
        surroundings.until_started(2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)  # of an impatient user
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert errors == ""
    surroundings.until_ended()
    assert list((surroundings.folder / "tmp").iterdir()) == []


def test_a_run_that_is_killed_leaves_no_process(surroundings: RunEnvironment) -> None:
    folder = _assets(surroundings)
    never = impostors.SERVER.replace("send_response(200)", "send_response(503)")
    impostors.write(folder / "kube-apiserver", _versioned(never))
    surroundings.environment[programs.ASSETS] = str(folder)
    with surroundings.start("--only", "contract") as process:
        surroundings.until_started(2)
        process.kill()
    surroundings.until_ended()


def test_a_program_that_dies_is_told_with_the_end_of_its_log(surroundings: RunEnvironment) -> None:
    folder = _assets(surroundings)
    impostors.write(folder / "kube-apiserver", _versioned("raise SystemExit('unknown flag: --x')"))
    surroundings.environment[programs.ASSETS] = str(folder)
    code, output = surroundings.run()
    assert code == 1
    assert output.startswith("test-kubernetes: kube-apiserver: ended with exit code 1\n")
    assert "unknown flag: --x" in output
    surroundings.until_ended()


def _assets(surroundings: RunEnvironment) -> Path:
    folder = impostors.programs(surroundings.folder / "assets")
    impostors.write(folder / "kube-apiserver", _versioned(impostors.SERVER))
    return folder


def _versioned(code: str) -> str:
    return f"import sys\nif '--version' in sys.argv: sys.exit(print('Kubernetes v1.36.3'))\n{code}"
