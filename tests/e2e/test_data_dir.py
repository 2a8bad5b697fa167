# SPDX-License-Identifier: Apache-2.0
"""`refloat up` on a changed data directory, and on a full disk."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import builders
from tests.cases import cases
from tests.e2e import cluster
from tests.e2e.cluster import Api
from tests.e2e.node_cluster import wait

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MEBIBYTE = 1024 * 1024


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def refusal(data_dir: Path, *flags: str) -> tuple[int, str]:
    """The exit code and the one line that a start ends with."""
    done = cluster.run("up", "--data-dir", data_dir, "--nodes", "0", *flags)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("refloat: ")
    return done.returncode, line.removeprefix("refloat: ")


def planted_token(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    (data_dir / "theirs").write_text("known")
    (data_dir / "admin.token").symlink_to("theirs")


def open_folder(data_dir: Path) -> None:
    data_dir.mkdir()
    data_dir.chmod(0o777)


def binary_token(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    (data_dir / "admin.token").write_bytes(b"\xff\xfe")
    (data_dir / "admin.token").chmod(0o600)


def empty_certificate(data_dir: Path) -> None:
    (data_dir / "pki").mkdir(mode=0o700, parents=True)
    data_dir.chmod(0o700)
    for name in ("ca.crt", "ca.key"):
        (data_dir / "pki" / name).touch(mode=0o600)


@cases(
    "prepare want",
    {
        "a planted token": (planted_token, "admin.token is a symbolic link"),
        "an open folder": (open_folder, "--data-dir: other users may put files"),
        "a binary token": (binary_token, "admin.token is not a token"),
        "an empty certificate": (empty_certificate, "ca.crt is not a certificate"),
    },
)
def test_a_directory_that_is_not_trustworthy_is_refused_in_one_line(
    data_dir: Path, prepare: Callable[[Path], None], want: str
) -> None:
    prepare(data_dir)
    code, line = refusal(data_dir)
    assert code == 2
    assert want in line


def test_a_server_without_its_newest_writes_starts_only_when_told_to(data_dir: Path) -> None:
    with cluster.serving(data_dir) as first:
        api = Api(first.kubeconfig)
        config_map = api.create(MAPS, builders.config_map("lost"))
        first.kill()
    newest = int(config_map["metadata"]["resourceVersion"])
    log = data_dir / "state.db-wal"
    log.write_bytes(log.read_bytes()[:-1])
    code, line = refusal(data_dir, "--controllers", "none")
    assert code == 1
    assert f"state.db ends at revision {newest - 1}, but revision {newest} was acknowledged" in line
    with cluster.serving(data_dir, "--accept-lost-writes") as second:
        assert api.ask("GET", f"{MAPS}/lost").status == 404
        assert int(api.get(MAPS)["metadata"]["resourceVersion"]) > newest
        answer = api.ask("GET", f"{MAPS}?watch=true&resourceVersion={newest}&timeoutSeconds=1")
        assert '"reason":"Expired"' in answer.text
        assert second.end() == 0


@dataclass(frozen=True)
class SmallDisk:
    """A file system in a mount namespace of the test."""

    folder: Path
    """The path in that namespace."""
    seen: Path
    """The path in the namespace of the tests."""
    within: list[str]
    """The command that runs another one in that namespace."""

    @property
    def api(self) -> Api:
        return Api(self.seen / "data" / "kubeconfig")


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """A file system of this size; ends with the last process in the namespace."""
    folder.mkdir()
    script = f"mount -t tmpfs -o size={mebibytes}m,mode=0700 tmpfs '{folder}' && echo && exec cat"
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *users, "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n", "the file system is not there"
        enter = ["nsenter", f"--target={holder.pid}", "--mount", *(["--user"] if users else [])]
        try:
            yield SmallDisk(folder, Path(f"/proc/{holder.pid}/root{folder}"), enter)
        finally:
            holder.kill()


def fill(disk: Path, leave: int) -> None:
    """Have another program write to the disk until so many bytes are free."""
    with (disk / "ballast").open("ab") as ballast:
        while True:
            disk_state = os.statvfs(disk)
            size = min(disk_state.f_bavail * disk_state.f_frsize - leave, MEBIBYTE)
            if size <= 0:
                return
            try:
                os.write(ballast.fileno(), bytes(size))
            except OSError:  # the disk is full
                return


def test_a_full_disk_refuses_writes_early_and_lets_deletes_and_leases_through(
    tmp_path: Path,
) -> None:
    """On a real file system, in the steps in which another program fills and frees the disk."""
    with small_disk(tmp_path / "disk", 80) as disk:
        with cluster.serving(disk.folder / "data", within=disk.within) as server:
            api = disk.api
            for name in ("a", "b", "c"):
                api.create(MAPS, builders.config_map(name))
            assert api.ask("GET", "/readyz").status == 200
            fill(disk.seen, 20 * MEBIBYTE)
            wait(lambda: api.ask("GET", "/readyz").status == 500, "not told in readyz")
            assert "[-]disk failed: " in api.ask("GET", "/readyz").text
            check_low(api, "a")
            fill(disk.seen, 0)  # nothing is left but the reserve
            check_low(api, "b")
            server.kill()
        with cluster.serving(disk.folder / "data", within=disk.within) as server:
            api = disk.api
            wait(lambda: api.ask("GET", "/readyz").status == 500, "not told in readyz")
            check_low(api, "c")
            (disk.seen / "ballast").unlink()
            wait(lambda: api.ask("GET", "/readyz").status == 200, "not ready again")
            api.create(MAPS, builders.config_map("d"))
            assert server.end() == 0
            assert "nearly full" in server.errors()


def check_low(api: Api, there: str) -> None:
    answer = api.ask("POST", MAPS, builders.config_map("refused"))
    assert answer.status == 500
    assert "until there is room only deletes, leases and nodes" in answer.object["message"]
    assert "/" not in answer.object["message"]
    assert api.ask("DELETE", f"{MAPS}/{there}").status == 200
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}}
    assert api.ask("POST", LEASES, lease | {"metadata": {"name": there}}).status == 201
    renewed = {"spec": {"holderIdentity": "me"}}
    for _ in range(50):
        renewed["spec"]["holderIdentity"] += "e"
        assert api.patch(f"{LEASES}/{there}", renewed)["spec"] == renewed["spec"]
