# SPDX-License-Identifier: Apache-2.0
"""A view of the file system for one process, also for one without rights."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from refloat.agent.keeper import mounts, syscalls
from refloat.agent.process import start_request
from refloat.agent.process.images import Images, ImageSettings
from refloat.agent.process.security_context import Machine
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import PodFolder
from tests.unit.agent.process.node import IS_ROOT, pod

NOBODY = 65534
TEMPORARY = Path(tempfile.gettempdir())
PR_SET_DUMPABLE = 4


def in_child(act: Callable[[], None]) -> int:
    """Call `act` in a child. Returns the exit code of the child; 0: success."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a volume and a mount point for a view, for the present user."""
    for name in ("volume", "scratch"):
        (tmp_path / name).mkdir()
        if IS_ROOT:
            os.chown(tmp_path / name, NOBODY, NOBODY)
    for each in (tmp_path, *tmp_path.parents):
        if each != TEMPORARY and each.is_relative_to(TEMPORARY):
            each.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("target", ["/refloat-new/volume", "/etc/refloat-new"])
@pytest.mark.parametrize("kind", [mounts.NAMESPACE, mounts.USER_NAMESPACE])
def test_a_volume_is_shown_to_one_process_alone(folder: Path, target: str, kind: str) -> None:
    if not can(kind):
        assert mounts.probe() != kind
        return

    def act() -> None:
        drop_rights(kind)
        volumes = [{"source": str(folder / "volume"), "target": target, "read_only": False}]
        mounts.show(volumes, kind, str(folder / "scratch"))
        Path(target, "file").write_text("seen")
        assert Path("/etc/passwd").read_text()

    assert in_child(act) == 0
    assert (folder / "volume" / "file").read_text() == "seen"
    assert not Path(target).exists()
    assert list((folder / "scratch").iterdir()) == []


def drop_rights(kind: str) -> None:
    if kind == mounts.USER_NAMESPACE and IS_ROOT:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        syscalls.prctl(PR_SET_DUMPABLE, 1)  # as a process that never had any


def can(kind: str) -> bool:
    """Whether the kernel lets this user."""

    def act() -> None:
        drop_rights(kind)
        mounts.enter(kind)

    return in_child(act) == 0


def test_only_the_caller_goes_on_after_a_probe_that_fails_unexpectedly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_kind: str) -> None:
        raise ValueError

    monkeypatch.setattr(mounts, "enter", fail)
    record = tmp_path / "processes"

    def act() -> None:
        try:
            assert mounts.probe() == mounts.NONE
        finally:
            with record.open("a") as file:
                file.write(f"{os.getpid()}\n")

    assert in_child(act) == 0
    assert len(record.read_text().splitlines()) == 1


def test_a_volume_that_may_only_be_read_cannot_be_written(folder: Path) -> None:
    kind = mounts.probe()

    def act() -> None:
        volumes = [{"source": str(folder / "volume"), "target": "/refloat-new", "read_only": True}]
        mounts.show(volumes, kind, str(folder / "scratch"))
        with pytest.raises(OSError, match="Read-only file system"):
            Path("/refloat-new/file").touch()

    assert kind == mounts.NONE or in_child(act) == 0


def test_a_folder_with_too_many_entries_gets_no_stand_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = mounts.probe()
    monkeypatch.setattr(mounts, "MAX_ENTRIES", 2)

    def act() -> None:
        volumes = [{"source": str(folder / "volume"), "target": "/etc/refloat-new"}]
        with pytest.raises(OSError, match="more than 2 entries beside it"):
            mounts.show(volumes, kind, str(folder / "scratch"))

    assert kind == mounts.NONE or in_child(act) == 0


def test_where_nothing_can_be_mounted_a_container_is_told_where_its_volumes_are(
    tmp_path: Path,
) -> None:
    manifest = pod(
        "u",
        "true",
        volumes=[{"name": "my-data", "emptyDir": {}}],
        volumeMounts=[{"name": "my-data", "mountPath": "/data"}],
    )
    folder = PodFolder(tmp_path, "u")
    request = {
        view: start_request.build(
            ProcessSettings(tmp_path),
            Images(ImageSettings()),
            manifest,
            manifest["spec"]["containers"][0],
            0,
            {},
            folder,
            mark="0" * 8,
            machine=Machine(view=view),
        )["env"]
        for view in (mounts.NONE, mounts.NAMESPACE)
    }
    assert request[mounts.NONE]["REFLOAT_VOLUME_MY_DATA"] == str(folder.volume("my-data"))
    assert request[mounts.NONE]["REFLOAT_TERMINATION_LOG"] == str(folder.message("main", 0))
    assert not any(name.startswith("REFLOAT") for name in request[mounts.NAMESPACE])
