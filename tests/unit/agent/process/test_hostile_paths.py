# SPDX-License-Identifier: Apache-2.0
"""Containers that change a path while the agent or the keeper uses it.

Each swap happens between two system calls of the agent's, in the way in which a
process of a container can do this at any time: a rename, and a link instead.
"""

import ctypes
import errno
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import mounts, paths, syscalls
from refloat.agent.process import pod_files, volumes
from refloat.agent.process.volumes import PodFolder
from refloat.agent.runtime import StartError
from tests.cases import cases
from tests.unit.agent.process.node import IS_ROOT, ProcessNode, node, pod
from tests.unit.agent.process.test_mounts import folder, in_child
from tests.unit.agent.process.test_volumes import with_volume

__all__ = ["folder"]  # a fixture

NOBODY = 65534


def swap(victim: Path, outside: Path) -> None:
    """Replace a container's folder by a link to a forbidden folder."""
    victim.rename(victim.with_name(victim.name + ".old"))
    victim.symlink_to(outside)


def once(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, act: Callable[..., object]
) -> None:
    """Have something happen just before the first call of a function that `act` agrees to."""
    real = getattr(module, name)
    is_over = False

    def replaced(*arguments: Any, **more: Any) -> Any:
        nonlocal is_over
        if not is_over and act(*arguments):
            is_over = True
        return real(*arguments, **more)

    monkeypatch.setattr(module, name, replaced)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no container may change."""
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o700)
    (folder / "precious").mkdir(mode=0o700)
    (folder / "precious" / "file").write_text("kept")
    return folder


def untouched(outside: Path) -> bool:
    entries = [each.name for each in outside.iterdir()]
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (outside, outside / "precious")}
    file = outside / "precious" / "file"
    return entries == ["precious"] and modes == {0o700} and file.read_text() == "kept"


def sub_path(pod_folder: PodFolder, inner: str) -> list[dict[str, Any]]:
    """The agent's request for a container with a subPath of its emptyDir."""
    manifest = pod(
        "u",
        "true",
        volumes=[{"name": "v", "emptyDir": {}}],
        volumeMounts=[{"name": "v", "mountPath": "/data", "subPath": inner}],
    )
    return volumes.mounts(pod_folder, manifest, manifest["spec"]["containers"][0], str)


def test_a_part_of_a_volume_is_not_made_behind_a_link_that_was_put_there_meanwhile(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod_folder = PodFolder(tmp_path, "u")
    inside = pod_folder.volume("v") / "a"
    inside.mkdir(parents=True)

    def act(*_: object) -> bool:
        swap(inside, outside)
        return True

    once(monkeypatch, os, "mkdir", act)
    with suppress(StartError):
        sub_path(pod_folder, "a/b")
    assert inside.is_symlink()
    assert untouched(outside)


RENAME_EXCHANGE = 2  # at any time both entries are there


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """A process of a container that swaps two entries of a volume in a loop."""
    libc = ctypes.CDLL(None)
    pair = -100, os.fsencode(one), -100, os.fsencode(other)
    ready, say = os.pipe()
    process = os.fork()
    if process == 0:
        if IS_ROOT:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        failed = libc.renameat2(*pair, RENAME_EXCHANGE)
        os.write(say, b"0" if failed else b"1")
        while True:
            libc.renameat2(*pair, RENAME_EXCHANGE)
    try:
        assert os.read(ready, 1) == b"1"
        yield
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(ready)
        os.close(say)


@pytest.fixture
def volume(folder: Path) -> Path:
    """An emptyDir of pod u, with a folder `a` and a link `link` to the outside."""
    volume = PodFolder(folder, "u").volume("v")
    (volume / "a").mkdir(parents=True)
    for each in (folder, folder / "u", folder / "u" / "volumes"):
        each.chmod(0o755)
    volume.chmod(0o777)
    return volume


ROUNDS = 300


def test_a_container_that_races_has_nothing_made_outside_of_its_volume(
    folder: Path, volume: Path, outside: Path
) -> None:
    (volume / "link").symlink_to(outside)
    pod_folder = PodFolder(folder, "u")
    refusals = 0
    with exchanging(volume / "a", volume / "link"):
        for number in range(ROUNDS):
            try:
                sub_path(pod_folder, f"a/{number}")
            except StartError:
                refusals += 1
            except OSError:
                pass  # the older form of the same error
    assert refusals  # the process did race
    assert untouched(outside)


def test_a_container_that_races_has_nothing_removed_outside_of_its_volume(
    folder: Path, volume: Path, outside: Path
) -> None:
    (volume / "link").symlink_to(outside)
    (volume / "a" / "precious").mkdir()
    for number in range(ROUNDS):
        (volume / "a" / "precious" / str(number)).mkdir()
    with exchanging(volume / "a", volume / "link"), suppress(OSError):
        PodFolder(folder, "u").remove()
    assert untouched(outside)
    PodFolder(folder, "u").remove()
    assert not (folder / "u").exists()


def test_a_removal_that_failed_is_not_tried_again_by_the_path(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod_folder = PodFolder(tmp_path, "u")
    inside = pod_folder.volume("v") / "a"
    (inside / "precious").mkdir(parents=True)

    def act(*arguments: Any) -> bool:
        if "precious" not in map(str, arguments):
            return False
        monkeypatch.undo()
        swap(inside, outside)
        raise PermissionError(errno.EACCES, "not now", "precious")

    once(monkeypatch, os, "open", act)
    once(monkeypatch, syscalls, "openat2", act)
    with suppress(OSError):
        pod_folder.remove()
    assert untouched(outside)
    pod_folder.remove()
    assert not pod_folder.path.exists()


def test_a_removal_does_not_cross_a_mount(tmp_path: Path, outside: Path) -> None:
    kind = mounts.probe()
    (tmp_path / "u" / "volumes" / "v" / "mounted").mkdir(parents=True)

    def act() -> None:
        mounts.enter(kind)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
        target = tmp_path / "u" / "volumes" / "v" / "mounted"
        syscalls.mount(str(outside), str(target), None, syscalls.MS_BIND)
        with pytest.raises(OSError, match="cross-device"):
            PodFolder(tmp_path, "u").remove()

    assert kind == mounts.NONE or in_child(act) == 0
    assert untouched(outside)


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "u" / "volumes" / "v"
    top.mkdir(parents=True)
    at = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        PodFolder(tmp_path, "u").remove()
        assert not (tmp_path / "u").exists()
    finally:
        subprocess.run(["rm", "-rf", str(top)], check=True)  # pytest itself could not


def test_a_folder_that_its_owner_cannot_read_is_removed() -> None:
    """Not below pytest's own folder, which other users cannot enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shut = folder / "u" / "volumes" / "v" / "shut"
        (shut / "inside" / "more").mkdir(parents=True)

        def act() -> None:
            PodFolder(folder, "u").remove()

        def as_nobody() -> None:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()

        if IS_ROOT:
            for each in (folder, *folder.rglob("*")):
                os.chown(each, NOBODY, NOBODY)
        (shut / "inside").chmod(0)
        shut.chmod(0)
        assert in_child(as_nobody if IS_ROOT else act) == 0
        assert not (folder / "u").exists()


def test_a_file_of_messages_that_is_a_link_is_not_opened_for_all(tmp_path: Path) -> None:
    pod_folder = PodFolder(tmp_path / "pods", "u")
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    message = pod_folder.message("main", 0)
    message.parent.mkdir(parents=True)
    message.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        pod_folder.prepare("main", 0)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_what_is_behind_a_link_that_was_put_there_meanwhile_is_not_counted(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod_folder = PodFolder(tmp_path, "u")
    inside = pod_folder.volume("v") / "a"
    inside.mkdir(parents=True)
    (outside / "large").write_bytes(b"x" * 1_000_000)

    def act(at: Any) -> bool:
        """Before `a` itself is listed."""
        if isinstance(at, int):
            at = Path(f"/proc/self/fd/{at}").readlink()
        if Path(at) != inside:
            return False
        swap(inside, outside)
        return True

    once(monkeypatch, os, "scandir", act)
    assert pod_folder.used_bytes()["volumes/v"] < 500_000
    assert inside.is_symlink()


@pytest.mark.parametrize("is_file", [False, True], ids=["a volume", "a file of messages"])
def test_a_mount_below_a_volume_makes_nothing_behind_a_link_that_was_put_there_meanwhile(
    folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    """Two volumes, one in the other: the second needs a folder to be mounted on."""
    kind = mounts.probe()
    (folder / "volume" / "a").mkdir()
    (folder / "second").touch() if is_file else (folder / "second").mkdir()

    def act(*arguments: Any) -> bool:
        name = Path(str(arguments[0])).name
        if name not in ("b", "c"):
            return False
        swap(folder / "volume" / "a", outside)
        return True

    def show() -> None:
        once(monkeypatch, os, "mkdir", act)
        volumes = [
            {"source": str(folder / "volume"), "target": "/refloat-new", "name": "v"},
            {"source": str(folder / "second"), "target": "/refloat-new/a/b/c", "name": "w"},
        ]
        with suppress(OSError):
            mounts.show(volumes, kind, str(folder / "scratch"))

    assert kind == mounts.NONE or in_child(show) == 0
    assert kind == mounts.NONE or (folder / "volume" / "a").is_symlink()
    assert untouched(outside)


def test_a_mount_in_a_folder_of_another_user_makes_nothing_behind_a_link(
    folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder gets a stand-in, but the owner can still rename the folder."""
    kind = mounts.probe()
    (folder / "theirs").mkdir()

    def act(*arguments: Any) -> bool:
        if Path(str(arguments[0])).name != "new":
            return False
        os.write(requests[1], b"x")
        os.read(answers[0], 1)
        return True

    # Another process without the stand-in: no process can rename a mount point that it sees.
    requests, answers = os.pipe(), os.pipe()

    def show() -> None:
        if os.fork() == 0:
            os.read(requests[0], 1)
            swap(folder / "theirs", outside)
            os.write(answers[1], b"x")
            os._exit(0)
        once(monkeypatch, os, "mkdir", act)
        target = str(folder / "theirs" / "new" / "er")
        volumes = [{"source": str(folder / "volume"), "target": target, "name": "v"}]
        with suppress(OSError):
            mounts.show(volumes, kind, str(folder / "scratch"))

    assert kind == mounts.NONE or in_child(show) == 0
    assert kind == mounts.NONE or (folder / "theirs").is_symlink()
    assert untouched(outside)


async def test_a_link_that_stays_in_its_volume_is_refused_too(here: ProcessNode) -> None:
    await here.run(with_volume("a", "mkdir $V/real; ln -s real $V/link", "/data"))
    with pytest.raises(StartError, match="link/x: a symbolic link") as error:
        await here.start(with_volume("a", "true", "/data", subPath="link/x"), attempt=1)
    assert error.value.reason == "CreateContainerConfigError"


async def test_a_path_of_the_machine_is_not_made_behind_a_link_of_another_user(
    folder: Path, outside: Path
) -> None:
    if not IS_ROOT:
        return  # no other user can be had
    link = folder / "link"
    link.symlink_to(outside)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    for kind in ("DirectoryOrCreate", "FileOrCreate"):
        volume = {"hostPath": {"path": str(link / "new"), "type": kind}}
        async with node(folder) as here:
            with pytest.raises(StartError, match="link is a symbolic link of user 65534"):
                await here.start(with_volume("a", "true", "/data", volume))
    assert untouched(outside)


@cases(
    "kind is_created want",
    {
        "a folder": ("Directory", "dir", ""),
        "a file for a folder": ("Directory", "file", "is not a directory"),
        "a file": ("File", "file", ""),
        "a folder for a file": ("File", "dir", "is not a file"),
        "nothing for a file": ("File", "", "is not a file"),
        "a file for a socket": ("Socket", "file", "is not a socket file"),
        "a file for a device": ("CharDevice", "file", "is not a character device"),
        "a file for a disk": ("BlockDevice", "file", "is not a block device"),
        "a folder that is made": ("DirectoryOrCreate", "", ""),
        "a file is in its place": ("DirectoryOrCreate", "file", "is not a directory"),
        "a file that is made": ("FileOrCreate", "", ""),
        "nothing": ("", "", "is not a path"),
        "anything": ("", "file", ""),
    },
)
async def test_the_type_of_a_path_of_the_machine_holds(
    tmp_path: Path, kind: str, is_created: str, want: str
) -> None:
    path = tmp_path / "deep" / "path"
    if is_created:
        path.parent.mkdir()
        path.mkdir() if is_created == "dir" else path.touch()
    host = {"hostPath": {"path": str(path), "type": kind}}
    async with node(tmp_path) as here:
        if want:
            with pytest.raises(StartError, match=f"{path} {want}") as error:
                await here.start(with_volume("a", "true", "/data", host))
            assert error.value.reason == ""
        else:
            assert (await here.run(with_volume("a", "ls -d $V", "/data", host))).exit_code == 0
            assert path.is_dir() == (kind.startswith("Directory"))


@pytest.mark.parametrize("kind", ["", "Directory", "DirectoryOrCreate", "FileOrCreate"])
async def test_a_zero_in_a_path_of_the_machine_is_refused(tmp_path: Path, kind: str) -> None:
    host = {"hostPath": {"path": f"{tmp_path}/a\0b", "type": kind}}
    async with node(tmp_path / "node") as here:
        with pytest.raises(StartError, match="null byte"):
            await here.start(with_volume("a", "true", "/data", host))


async def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    host = {"hostPath": {"path": str(tmp_path / "circle" / "x")}}
    async with node(tmp_path / "node") as here:
        with pytest.raises(StartError, match="too many levels of symbolic links"):
            await here.start(with_volume("a", "true", "/data", host))


@pytest.fixture(params=["openat2", "walk"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the system call, and on a kernel without the call."""

    def missing(*_: object) -> int:
        raise OSError(errno.ENOSYS, "not there")

    if request.param == "walk":
        monkeypatch.setattr(syscalls, "openat2", missing)
    return str(request.param)


@cases(
    "path want",
    {
        "a file": ("dir/file", 0),
        "a folder": ("./dir//", 0),
        "itself": (".", 0),
        "nothing": ("dir/nothing", errno.ENOENT),
        "below a file": ("dir/file/more", errno.ENOTDIR),
        "through a link": ("out/file", errno.ELOOP),
        "a link itself": ("dir/in", errno.ELOOP),
        "upwards": ("dir/../..", errno.EXDEV),
        "an absolute path": ("/etc", errno.EXDEV),
    },
)
def test_nothing_above_and_no_link_is_opened(
    tmp_path: Path, opening: str, path: str, want: int
) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").touch()
    (tmp_path / "dir" / "in").symlink_to("file")
    (tmp_path / "out").symlink_to("dir")
    with paths.closing(os.open(tmp_path, paths.FOLDER)) as top:
        try:
            os.close(paths.open_below(top, path))
            count = 0
        except OSError as error:
            count = error.errno or -1
    assert count == want


def test_folders_are_made_with_their_mode_and_those_that_are_there_keep_theirs(
    tmp_path: Path, opening: str
) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    with paths.closing(os.open(tmp_path, paths.FOLDER)) as top:
        os.close(paths.make_folders(top, "a/b/c", 0o777))
    modes = [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("a", "a/b", "a/b/c")]
    assert modes == [0o700, 0o777, 0o777]


def test_sizes_are_those_of_all_files_below(tmp_path: Path, opening: str) -> None:
    (tmp_path / "v" / "a" / "b").mkdir(parents=True)
    (tmp_path / "v" / "a" / "b" / "f").write_bytes(b"x" * 100_000)
    (tmp_path / "v" / "loop").symlink_to("..")
    with paths.closing(os.open(tmp_path, paths.FOLDER)) as top:
        assert 100_000 <= pod_files.size(top, "v") < 150_000
        assert pod_files.size(top, "nothing") == 0


def test_a_pod_whose_uid_is_a_path_has_no_folder(tmp_path: Path) -> None:
    for uid in ("../x", "", ".", "..", "/etc"):
        with pytest.raises(ValueError, match="is no name of a folder"):
            PodFolder(tmp_path, uid)
