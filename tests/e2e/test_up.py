# SPDX-License-Identifier: Apache-2.0
"""`refloat up` as a command: start, files and end."""

import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import refloat
from tests import builders
from tests.cases import cases
from tests.e2e import cluster
from tests.e2e.cluster import Api

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(data_dir: Path) -> Iterator[cluster.ServerProcess]:
    with cluster.serving(data_dir) as running:
        yield running


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_tells_the_address_and_how_to_use_it(server: cluster.ServerProcess) -> None:
    assert re.fullmatch(r"Kubernetes API at https://127\.0\.0\.1:\d+", server.banner[0])
    assert server.banner[1].strip() == f"export KUBECONFIG={server.kubeconfig}"


def test_is_ready_when_it_says_so(
    server: cluster.ServerProcess, record_property: Callable[[str, object], None]
) -> None:
    record_property("seconds_to_ready", f"{server.seconds_to_ready:.2f}")
    answer = Api(server.kubeconfig).ask("GET", "/readyz")
    assert (answer.status, answer.text) == (200, "ok")


def test_serves_at_the_port_that_it_is_given(data_dir: Path) -> None:
    port = cluster.free_port()
    with cluster.serving(data_dir, "--port", str(port)) as server:
        document = yaml.safe_load(server.kubeconfig.read_text())
    assert document["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{port}"


def test_serves_at_another_address_of_the_loopback(data_dir: Path) -> None:
    with cluster.serving(data_dir, "--bind-address", "127.0.0.2") as server:
        assert "https://127.0.0.2:" in server.banner[0]
        assert Api(server.kubeconfig).ask("GET", "/readyz").text == "ok"


def test_what_it_writes_is_for_its_owner_only(
    server: cluster.ServerProcess, data_dir: Path
) -> None:
    assert mode(data_dir) == 0o700
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"kubeconfig", "admin.token", "ca.key", "state.db"}
    assert {path.name: mode(path) for path in files} == {path.name: 0o600 for path in files}


def test_without_a_token_only_health_and_version_are_answered(
    server: cluster.ServerProcess,
) -> None:
    api = Api(server.kubeconfig)
    api.token = ""
    paths = ["/livez", "/readyz", "/version", "/api/v1/namespaces", "/apis/batch/v1/jobs"]
    assert [api.ask("GET", path).status for path in paths] == [200, 200, 200, 403, 403]
    message = api.ask("GET", "/api/v1/namespaces").object["message"]
    assert 'User "system:anonymous" cannot list resource "namespaces"' in message


def test_a_wrong_token_is_refused_everywhere(server: cluster.ServerProcess) -> None:
    api = Api(server.kubeconfig)
    api.token = "guessed"
    assert [api.ask("GET", path).status for path in ("/readyz", "/api/v1/pods")] == [401, 401]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_ends_when_asked_and_leaves_no_process(
    server: cluster.ServerProcess, by: signal.Signals
) -> None:
    assert server.end(by) == 0
    assert not server.has_left_processes()
    assert server.errors() == ""


def test_ends_although_a_watch_is_open(server: cluster.ServerProcess) -> None:
    with Api(server.kubeconfig).watch(MAPS) as stream:
        assert server.end() == 0
        assert stream.rest() == []


def test_state_token_and_port_are_back_after_a_restart(data_dir: Path) -> None:
    with cluster.serving(data_dir) as first:
        api = Api(first.kubeconfig)
        config_map = api.create(MAPS, builders.config_map("kept", data={"a": "1"}))
        kubeconfig = first.kubeconfig.read_text()
        assert first.end() == 0
    with cluster.serving(data_dir) as second:
        assert second.kubeconfig.read_text() == kubeconfig
        assert api.get(f"{MAPS}/kept") == config_map
        newer = api.create(MAPS, builders.config_map("newer"))
        old, new = (int(each["metadata"]["resourceVersion"]) for each in (config_map, newer))
        assert old < new


def test_state_is_back_after_a_kill(data_dir: Path) -> None:
    with cluster.serving(data_dir) as first:
        api = Api(first.kubeconfig)
        config_map = api.create(MAPS, builders.config_map("kept", data={"a": "1"}))
        first.kill()
    with cluster.serving(data_dir):
        assert api.get(f"{MAPS}/kept") == config_map


def test_a_restart_creates_nothing_anew(data_dir: Path) -> None:
    with cluster.serving(data_dir) as first:
        before = Api(first.kubeconfig).get("/api/v1/namespaces")
        assert first.end() == 0
    with cluster.serving(data_dir) as second:
        assert Api(second.kubeconfig).get("/api/v1/namespaces") == before


def test_a_second_server_of_the_same_directory_is_refused(server: cluster.ServerProcess) -> None:
    done = cluster.run("up", "--data-dir", server.data_dir)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert "state.db" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "use" in done.stderr
    assert Api(server.kubeconfig).ask("GET", "/readyz").text == "ok"


def test_a_port_that_is_taken_is_refused(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = cluster.run("up", "--data-dir", data_dir, "--port", str(port))
    assert done.returncode in (1, 2)
    assert f"127.0.0.1:{port}" in done.stderr
    assert "address already in use" in done.stderr.lower()
    assert len(done.stderr.splitlines()) == 1


def test_the_last_port_being_taken_it_takes_another(data_dir: Path) -> None:
    with cluster.serving(data_dir) as first:
        port = int(first.banner[0].rpartition(":")[2])
        assert first.end() == 0
    with socket.create_server(("127.0.0.1", port)), cluster.serving(data_dir) as second:
        assert not second.banner[0].endswith(f":{port}")
        assert Api(second.kubeconfig).ask("GET", "/readyz").text == "ok"


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cluster.run("up", "--data-dir", tmp_path / "file")
    assert done.returncode == 2
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_state_is_refused_and_left_alone(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    state = data_dir / "state.db"
    state.write_bytes(b"this is no database" * 1000)
    done = cluster.run("up", "--data-dir", data_dir)
    assert done.returncode == 1
    assert "state.db" in done.stderr
    assert "Traceback" not in done.stderr
    assert state.read_bytes() == b"this is no database" * 1000


GATES = (
    "FailureRecoveryPolicy",
    "JobPodFailurePolicy",
    "JobPodReplacementPolicy",
    "PodDisruptionConditions",
    "RetriableAndNonRetriableFailures",
    "TaintForceEviction",
)


@cases(
    "flags want_words",
    {
        "an unknown gate": (["--feature-gates", "Nope=true"], ["Nope", *GATES]),
        "a gate without a value": (
            ["--feature-gates", "TaintForceEviction"],
            ["TaintForceEviction", "Name=true"],
        ),
        "a gate that is neither on nor off": (
            ["--feature-gates", "TaintForceEviction=maybe"],
            ["TaintForceEviction=maybe", "Name=true"],
        ),
        "an unknown controller": (["--controllers", "nope"], ["nope", "*", "none"]),
        "an unknown one left out": (["--controllers", "*,-nope"], ["-nope", "*", "none"]),
        "no address": (["--bind-address", "nowhere"], ["nowhere"]),
        "a port out of range": (["--port", "70000"], ["70000", "65535"]),
        "an unknown flag": (["--nope"], ["--nope"]),
        "a file that is not there": (["--config", "absent.yaml"], ["absent.yaml"]),
    },
)
def test_wrong_use_is_told_and_changes_nothing(
    data_dir: Path, flags: list[str], want_words: list[str]
) -> None:
    done = cluster.run("up", "--data-dir", data_dir, *flags)
    assert done.returncode == 2
    assert done.stdout == ""
    assert [word for word in want_words if word not in done.stderr] == []
    assert "Traceback" not in done.stderr
    assert not data_dir.exists()


CONFIGURATION = "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"


@cases(
    "content want_words",
    {
        "not YAML": ("a: [", ["is not YAML"]),
        "no version": ("kind: Configuration", ["apiVersion", "config.refloat.dev"]),
        "unknown field": (f"{CONFIGURATION}nope: 1", ["nope: unknown field", "featureGates"]),
        "unknown gate": (f"{CONFIGURATION}featureGates: {{Nope: true}}", ["'Nope'", *GATES]),
        "a gate's value of the wrong type": (
            f"{CONFIGURATION}featureGates: {{TaintForceEviction: 'yes'}}",
            ["featureGates.TaintForceEviction", "'yes'", "expected true or false"],
        ),
    },
)
def test_a_bad_configuration_is_told_with_its_field(
    tmp_path: Path, content: str, want_words: list[str]
) -> None:
    file = tmp_path / "refloat.yaml"
    file.write_text(content)
    done = cluster.run("up", "--data-dir", tmp_path / "data", "--config", file)
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert [word for word in want_words if word not in done.stderr] == []
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [[], ["up"], ["version"]], ids=["refloat", "up", "version"])
def test_help_fits_80_columns(args: list[str]) -> None:
    done = cluster.run(*args, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("Usage: ")
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_help_of_up_names_every_option() -> None:
    output = cluster.run("up", "--help").stdout
    options = ["data-dir", "port", "controllers", "config", "feature-gates", "nodes"]
    assert [name for name in options if f"--{name} " not in output] == []


def test_version_names_both_versions() -> None:
    done = cluster.run("version")
    assert done.returncode == 0
    pattern = rf"refloat {re.escape(refloat.__version__)} \(Kubernetes API v1\.\d+\.\d+\)\n"
    assert re.fullmatch(pattern, done.stdout)


def test_an_unknown_command_is_wrong_use() -> None:
    done: subprocess.CompletedProcess[str] = cluster.run("nope")
    assert done.returncode == 2
    assert "nope" in done.stderr
