# SPDX-License-Identifier: Apache-2.0
"""The folders of a pod: its volumes, its logs, what its containers say at their end.

    pods/UID/volumes/NAME                  an emptyDir, or the files of a ConfigMap and its like;
                                           for a claim, a link to the folder of its volume
    pods/UID/logs/CONTAINER/ATTEMPT.log    see `keeper.output`
    pods/UID/messages/CONTAINER/ATTEMPT    the file at terminationMessagePath
    pods/UID/root                          where the keeper builds a view of the file system

Each can be made again by an agent that crashed half-way, and all of it goes with the pod.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from refloat.agent.runtime import StartError
from refloat.api.meta import Object

_OPEN = 0o777  # an emptyDir is for whoever the container runs as


class File(Protocol):
    @property
    def content(self) -> bytes: ...

    @property
    def mode(self) -> int: ...


Files = Callable[[Object, Object], Awaitable[Mapping[str, File] | None]]
"""The files of a pod's volume, by path; None for a volume that is not made of files."""

Folder = Callable[[Object, Object], Awaitable[Path | None]]
"""Where the files of a claim's volume are; None for a volume that is no claim."""


class PodFolder:
    """What one pod has on the disk."""

    def __init__(self, pods: Path, uid: str) -> None:
        self.path = pods / uid

    @property
    def root(self) -> Path:
        return self.path / "root"

    def log(self, container: str, attempt: int) -> Path:
        return self.path / "logs" / container / f"{attempt}.log"

    def message(self, container: str, attempt: int) -> Path:
        return self.path / "messages" / container / str(attempt)

    def volume(self, name: str) -> Path:
        return self.path / "volumes" / name

    def prepare(self, container: str, attempt: int) -> int:
        """All that an attempt needs, but for volumes; what nobody can ask for any more goes.

        Which attempt was begun last, whoever remembers it: the keeper opens its log first.
        -1: none was.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        log, message = self.log(container, attempt), self.message(container, attempt)
        log.parent.mkdir(parents=True, exist_ok=True)
        message.parent.mkdir(parents=True, exist_ok=True)
        message.touch()
        message.chmod(0o666)
        begun = max((_number(each) for each in log.parent.iterdir()), default=-1)
        for old in (*log.parent.iterdir(), *message.parent.iterdir()):
            if 0 <= _number(old) < attempt - 1:
                old.unlink()
        return begun

    def remove(self) -> None:
        shutil.rmtree(self.path, onerror=_open_and_retry)

    def used_bytes(self) -> dict[str, int]:
        """Of each `volumes/NAME` and `logs/CONTAINER`; what is on disk, as `du` counts."""
        # What is behind a claim is nobody's scratch space, and a link.
        return {
            f"{kind}/{each.name}": _size(each)
            for kind in ("volumes", "logs")
            for each in _entries(self.path / kind)
            if not each.is_symlink()
        }


def _number(path: Path) -> int:
    """Of which attempt a file is; -1: of none."""
    number = path.name.partition(".")[0]
    return int(number) if number.isdigit() else -1


async def make_volumes(folder: PodFolder, pod: Object, files: Files, claimed: Folder) -> None:
    """Those of the pod that are not there yet; raises `StartError`."""
    for volume in pod["spec"].get("volumes") or ():
        path = folder.volume(volume["name"])
        if volume.get("hostPath") is not None or path.exists():
            continue
        found = await files(pod, volume)
        if found is not None:
            _write_files(path, found)
        elif volume.get("emptyDir") is not None:
            path.mkdir(parents=True)
            path.chmod(_OPEN)
        elif (target := await claimed(pod, volume)) is not None:
            _link(path, target)
        else:
            kind = next((key for key in volume if key != "name"), "none")
            raise StartError(f'volume "{volume["name"]}": {kind} is not a volume of this runtime')


def _link(path: Path, target: Path) -> None:
    if not target.exists():
        target.mkdir(parents=True)
        target.chmod(_OPEN)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _write_files(path: Path, files: Mapping[str, File]) -> None:
    """Under another name first: one that is there is whole."""
    making = path.with_name(f"{path.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    for name, file in files.items():
        target = making / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    making.rename(path)


def mounts(
    folder: PodFolder, pod: Object, container: Object, expand: Callable[[str], str]
) -> list[dict[str, Any]]:
    """What the keeper is to show where; raises `StartError`."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    return [
        _mount(folder, volumes, each, container["name"], expand)
        for each in container.get("volumeMounts") or ()
    ]


def _mount(
    folder: PodFolder,
    volumes: Mapping[str, Object],
    mount: Object,
    container: str,
    expand: Callable[[str], str],
) -> dict[str, Any]:
    name = mount["name"]
    volume = volumes.get(name)
    if volume is None:
        raise StartError(f'cannot find volume "{name}" to mount into container "{container}"')
    host = volume.get("hostPath")
    source = folder.volume(name) if host is None else _host_path(name, host)
    inner = mount.get("subPath") or expand(mount.get("subPathExpr") or "")
    if inner:
        source = _within(source, inner, name)
    claim = volume.get("persistentVolumeClaim")
    fixed = host is None and claim is None and volume.get("emptyDir") is None
    target = os.path.normpath(os.path.join("/", mount["mountPath"]))  # noqa: PTH118
    return {
        "source": str(source),
        "target": target,
        "read_only": fixed or mount.get("readOnly", False) or (claim or {}).get("readOnly", False),
        "name": name,
    }


def _host_path(name: str, host: Object) -> Path:
    path, kind = Path(host["path"]), host.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    if not path.exists() or (kind == "Directory" and not path.is_dir()):
        why = f"hostPath type check failed: {path} is not a {(kind or 'path').lower()}"
        raise StartError(f'MountVolume.SetUp failed for volume "{name}" : {why}', reason="")
    return path


def _within(source: Path, inner: str, name: str) -> Path:
    """A part of a volume; links must not lead out of it."""
    path = (source / inner).resolve()
    if not path.is_relative_to(source.resolve()):
        raise StartError(f"subPath `{inner}` of volume {name} leads out of it")
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(stat.S_IMODE(source.stat().st_mode))
    return path


def _open_and_retry(function: Callable[..., Any], path: str, _: object) -> None:
    """A container may have shut its own folders; what went by itself is as good."""
    with contextlib.suppress(FileNotFoundError):
        for each in (Path(path).parent, Path(path)):
            if not each.is_symlink() and each.is_dir():
                each.chmod(0o700)
        if function in (os.scandir, os.open, os.lstat):
            shutil.rmtree(path)
        else:
            function(path)


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _size(path: Path) -> int:
    total, waiting = 0, [path]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for each in entries:
                with contextlib.suppress(OSError):
                    total += each.stat(follow_symlinks=False).st_blocks * 512
                    if each.is_dir(follow_symlinks=False):
                        waiting.append(Path(each.path))
    return total
