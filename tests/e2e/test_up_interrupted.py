# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while `refloat up` starts: a quiet end, and the next start works."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import cluster

BANNER = b"Kubernetes API at"

# A shell that runs the tests in the background has them ignore Ctrl-C, and so their children.
DEFAULT_SIGINT = ("env", "--default-signal=INT")


def loads(library: str) -> Callable[[int, Path], bool]:
    """The process has started to load this library."""
    return lambda pid, _: library in Path(f"/proc/{pid}/maps").read_text()


def has(name: str) -> Callable[[int, Path], bool]:
    """The start has got so far that this file is there."""
    return lambda _, folder: (folder / name).exists()


POINTS = [
    pytest.param(loads("_datetime.cpython"), id="while it loads its command line"),
    pytest.param(loads("uvloop"), id="while it loads its event loop"),
    pytest.param(loads("cryptography"), id="while it loads its certificates"),
    pytest.param(has("state.db"), id="when it has a store"),
    pytest.param(has("pki/server.crt"), id="when it has a certificate"),
    pytest.param(has("kubeconfig"), id="when it serves"),
]


@pytest.mark.parametrize("reached", POINTS)
def test_ctrl_c_during_the_start_ends_it_quietly(
    tmp_path: Path, reached: Callable[[int, Path], bool]
) -> None:
    folder = tmp_path / "data"
    flags = ("--data-dir", str(folder), "--nodes", "0", "--controllers", "none")
    with subprocess.Popen(
        [*DEFAULT_SIGINT, cluster.REFLOAT, "up", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        deadline = time.monotonic() + cluster.PATIENCE_SECONDS
        while not reached(server.pid, folder):
            assert server.poll() is None, server.communicate()
            assert time.monotonic() < deadline
        server.send_signal(signal.SIGINT)
        out, complaints = server.communicate(timeout=cluster.PATIENCE_SECONDS)
    # Once the server has reported that it serves, Ctrl-C is the normal end.
    assert server.returncode == (0 if BANNER in out else 130)
    assert complaints.strip() == b""
    with cluster.serving(folder) as again:
        assert again.end() == 0
