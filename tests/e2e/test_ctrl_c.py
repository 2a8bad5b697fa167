# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every command quietly: exit code 130, and nothing on the standard error."""

import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.cases import cases
from tests.e2e import cluster
from tests.e2e.test_up_interrupted import DEFAULT_SIGINT, loads

# A server that accepts connections and never answers keeps a command busy.
SILENT_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: c, context: {{cluster: c}}}}]
current-context: c
"""


def start(*args: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*DEFAULT_SIGINT, cluster.REFLOAT, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def interrupt(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """The exit code and the standard error after a Ctrl-C in the terminal of the process."""
    with process:
        os.killpg(process.pid, signal.SIGINT)
        _, complaints = process.communicate(timeout=cluster.PATIENCE_SECONDS)
    return process.returncode, complaints


def wait_for_output(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], cluster.PATIENCE_SECONDS)
    assert ready


def wait_for_library(process: subprocess.Popen[bytes], library: str) -> None:
    deadline = time.monotonic() + cluster.PATIENCE_SECONDS
    while not loads(library)(process.pid, Path()):
        assert process.poll() is None
        assert time.monotonic() < deadline


@cases(
    "args",
    {
        "explain": ("explain", "job/x"),
        "explain jobs": ("explain", "jobs", "-A"),
        "doctor": ("doctor",),
        "delete": ("delete", "pod/x", "--reason", "Maintenance"),
    },
)
def test_ctrl_c_while_a_command_waits_for_the_cluster(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(cluster.PATIENCE_SECONDS)
        file = tmp_path / "kubeconfig"
        file.write_text(SILENT_KUBECONFIG.format(port=server.getsockname()[1]))
        process = start(*args, KUBECONFIG=str(file))
        connection, _ = server.accept()
        with connection:
            assert interrupt(process) == (130, b"")


def test_ctrl_c_while_explain_watches(kubeconfig: Path, namespace: str) -> None:
    api = cluster.Api(kubeconfig)
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "c", "image": "i"}
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [container]}}
    api.create(path, {"apiVersion": "v1", "kind": "Pod", **pod})
    process = start("explain", "pod/x", "-n", namespace, "--watch", KUBECONFIG=str(kubeconfig))
    wait_for_output(process)
    assert interrupt(process) == (130, b"")


@pytest.mark.parametrize("library", ["uvloop", "_sqlite3"])
def test_ctrl_c_while_the_demo_starts(library: str) -> None:
    process = start("demo")
    wait_for_library(process, library)
    assert interrupt(process) == (130, b"")


def test_ctrl_c_while_the_demo_runs() -> None:
    process = start("demo", "--pace", "60")
    wait_for_output(process)
    assert interrupt(process) == (130, b"")


def test_ctrl_c_while_a_command_reads_the_standard_input() -> None:
    process = start("policy", "convert", "-")
    wait_for_library(process, "_yaml")
    assert interrupt(process) == (130, b"")


@pytest.mark.parametrize("name", ["api", "start"])
def test_ctrl_c_during_a_benchmark(name: str) -> None:
    process = start("bench", name)
    wait_for_library(process, "uvloop")
    assert interrupt(process) == (130, b"")


def test_ctrl_c_while_refloat_node_waits_for_the_cluster(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        listener.settimeout(cluster.PATIENCE_SECONDS)
        process = start("node", "freeze", "n1", "--data-dir", str(tmp_path))
        connection, _ = listener.accept()
        with connection:
            assert interrupt(process) == (130, b"")
