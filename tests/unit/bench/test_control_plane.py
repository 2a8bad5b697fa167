# SPDX-License-Identifier: Apache-2.0
"""A control plane that cannot start says why, and leaves nothing behind.

The real programs are started by `make test-kubernetes`; here are small ones
that take the same flags.
"""

import os
import socket
from pathlib import Path

import pytest

from refloat.base.errors import UsageError
from refloat.bench import control_plane
from refloat.bench.control_plane import (
    APISERVER,
    CONTROLLER_MANAGER,
    ETCD,
    PROGRAMS,
    ControlPlaneSettings,
)
from refloat.bench.daemons import DaemonError
from tests.unit.kubernetes import impostors


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def settings(tmp_path: Path) -> ControlPlaneSettings:
    return ControlPlaneSettings(impostors.programs(tmp_path / "bin"), tmp_path / "run")


def pids(settings: ControlPlaneSettings) -> list[int]:
    return [int(each.read_text()) for each in settings.binaries.glob("*.pid")]


def test_it_runs_until_the_block_ends(settings: ControlPlaneSettings) -> None:
    told: list[str] = []
    with control_plane.running(settings, told.append) as plane:
        assert [each.split()[2] for each in told] == list(PROGRAMS)
        assert all(is_there(plane.pid(each)) for each in PROGRAMS)
        assert plane.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert [pid for pid in pids(settings) if is_there(pid)] == []


def test_it_ends_when_the_block_fails(settings: ControlPlaneSettings) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        control_plane.running(
            ControlPlaneSettings(settings.binaries, settings.folder, api_only=True)
        ),
    ):
        raise ZeroDivisionError
    assert len(pids(settings)) == 2
    assert [pid for pid in pids(settings) if is_there(pid)] == []


def test_one_program_that_dies_ends_the_others(settings: ControlPlaneSettings) -> None:
    impostors.write(settings.binaries / CONTROLLER_MANAGER, "raise SystemExit('no such flag')")
    with (
        pytest.raises(DaemonError, match=r"(?s)kube-controller-manager: .*no such flag"),
        control_plane.running(settings),
    ):
        raise AssertionError
    assert len(pids(settings)) == 2
    assert [pid for pid in pids(settings) if is_there(pid)] == []


def test_no_credentials_are_readable_for_others(settings: ControlPlaneSettings) -> None:
    with control_plane.running(settings):
        found = [each for each in settings.folder.rglob("*") if each.is_file()]
        secret = [each for each in found if each.suffix not in (".log", ".crt")]
        assert {"tokens.csv", "service-accounts.key", "kubeconfig"} <= {x.name for x in secret}
        assert [each for each in secret if each.stat().st_mode & 0o077] == []


def test_a_port_that_is_taken_is_told_before_anything_runs(settings: ControlPlaneSettings) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        taken = ControlPlaneSettings(settings.binaries, settings.folder, port)
        with (
            pytest.raises(UsageError, match=rf"port {port} of 127.0.0.1: Address already in use"),
            control_plane.running(taken),
        ):
            raise AssertionError
    assert pids(settings) == []


def test_missing_programs_are_named(tmp_path: Path) -> None:
    (tmp_path / ETCD).touch()
    with (
        pytest.raises(UsageError, match=f"no {APISERVER}, kube-controller"),
        control_plane.running(ControlPlaneSettings(tmp_path, tmp_path)),
    ):
        raise AssertionError


class TestFindBinaries:
    def test_the_newest_complete_version_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        for version, programs in (("1.9.0", PROGRAMS), ("1.10.0", PROGRAMS), ("1.11.0", (ETCD,))):
            folder = tmp_path / "refloat" / f"kubernetes-{version}"
            folder.mkdir(parents=True)
            for each in programs:
                (folder / each).touch()
        assert control_plane.find_binaries().name == "kubernetes-1.10.0"

    def test_a_folder_that_is_named_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
        for each in PROGRAMS:
            (tmp_path / each).touch()
        assert control_plane.find_binaries() == tmp_path

    def test_without_any_it_is_told_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(UsageError, match=r"`make test-kubernetes`.*KUBEBUILDER_ASSETS"):
            control_plane.find_binaries()


def test_ports_are_all_different() -> None:
    assert len(set(control_plane.free_ports(20))) == 20
