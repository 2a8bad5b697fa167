# SPDX-License-Identifier: Apache-2.0
"""The folders of a pod: its volumes, its logs, what its containers say at their end.

    pods/UID/volumes/NAME                  an emptyDir, or the files of a ConfigMap and its like;
                                           for a claim, a link to the folder of its volume
    pods/UID/logs/CONTAINER/ATTEMPT.log    see `keeper.output`
    pods/UID/messages/CONTAINER/ATTEMPT    the file at terminationMessagePath
    pods/UID/root                          where the keeper builds a view of the file system

Each can be made again by an agent that crashed half-way, and all of it goes with the pod.

Containers write into `volumes/NAME`, and perhaps their file of messages, and nowhere
else in here. What is below a volume is opened by descriptor only (`keeper.paths`).
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from refloat.agent.keeper import paths
from refloat.agent.keeper.paths import closing
from refloat.agent.process import host_paths, pod_files
from refloat.agent.runtime import StartError
from refloat.api.meta import Object

_GROUP_READS = 0o440  # what a kubelet adds to files for `fsGroup`
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


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of the machine that mean something to the agent."""

    shared: Path | None = None
    """Where the folders behind claims are that agents made for them."""

    hidden: tuple[Path, ...] = ()
    """What no container may see."""

    def hides(self, path: Path) -> bool:
        real = Path(os.path.realpath(path))  # `resolve` fails at a circle of links
        return any(real.is_relative_to(each.resolve()) for each in self.hidden)


NOWHERE = Places()


class PodFolder:
    """What one pod has on the disk."""

    def __init__(self, pods: Path, uid: str) -> None:
        if "/" in uid or uid in ("", ".", ".."):
            raise ValueError(f"uid {uid!r} is no name of a folder")
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
        _make_open_file(message)
        begun = max((_number(each) for each in log.parent.iterdir()), default=-1)
        for old in (*log.parent.iterdir(), *message.parent.iterdir()):
            if 0 <= _number(old) < attempt - 1:
                old.unlink()
        return begun

    def remove(self) -> None:
        pod_files.remove(self.path)

    def used_bytes(self) -> dict[str, int]:
        """Of each `volumes/NAME` and `logs/CONTAINER`; what is on disk, as `du` counts."""
        return {
            f"{kind}/{name}": size
            for kind in ("volumes", "logs")
            for name, size in _sizes(self.path / kind)
        }


def _sizes(path: Path) -> Iterator[tuple[str, int]]:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    with closing(folder), os.scandir(folder) as entries:
        for each in entries:
            # What is behind a claim is a link, and no scratch space of the pod's.
            if not each.is_symlink():
                yield each.name, pod_files.size(folder, each.name)


def _make_open_file(path: Path) -> None:
    """An empty file that any user can write; raises `OSError` if something else is there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with closing(os.open(path, flags, 0o666)) as file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        os.fchmod(file, 0o666)


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
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if found is not None:
            _write_files(path, found, group)
        elif volume.get("emptyDir") is not None:
            _make_empty(path, group)
        elif (target := await claimed(pod, volume)) is not None:
            _link(path, target)
        else:
            kind = next((key for key in volume if key != "name"), "none")
            raise StartError(f'volume "{volume["name"]}": {kind} is not a volume of this runtime')


def _make_empty(path: Path, group: int | None) -> None:
    """Under another name first: one that is there can be written."""
    making = path.with_name(f"{path.name}.making")
    pod_files.remove(making)
    making.mkdir(parents=True)
    if group is not None:
        os.chown(making, -1, group)
    making.chmod(_OPEN if group is None else _OPEN | stat.S_ISGID)
    making.rename(path)


def _link(path: Path, target: Path) -> None:
    if not target.exists():
        target.mkdir(parents=True)
        target.chmod(_OPEN)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _write_files(path: Path, files: Mapping[str, File], group: int | None) -> None:
    """Under another name first: one that is there is whole."""
    making = path.with_name(f"{path.name}.making")
    pod_files.remove(making)
    making.mkdir(parents=True)
    with closing(os.open(making, paths.FOLDER | os.O_NOFOLLOW)) as folder:
        for name, file in files.items():
            _write_file(folder, name, file, group)
    making.rename(path)


def _write_file(folder: int, name: str, file: File, group: int | None) -> None:
    above, last = os.path.split(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing(paths.make_folders(folder, above, 0o755)) as parent:
        descriptor = os.open(last, flags, 0o600, dir_fd=parent)
    with open(descriptor, "wb") as written:  # noqa: PTH123 - a descriptor has no path
        written.write(file.content)
        if group is not None:
            os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, file.mode if group is None else file.mode | _GROUP_READS)


def mounts(
    folder: PodFolder,
    pod: Object,
    container: Object,
    expand: Callable[[str], str],
    places: Places = NOWHERE,
) -> list[dict[str, Any]]:
    """What the keeper is to show where; raises `StartError`."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    return [
        _mount(folder, volumes, each, container["name"], expand, places)
        for each in container.get("volumeMounts") or ()
    ]


def _mount(
    folder: PodFolder,
    volumes: Mapping[str, Object],
    mount: Object,
    container: str,
    expand: Callable[[str], str],
    places: Places,
) -> dict[str, Any]:
    name = mount["name"]
    volume = volumes.get(name)
    if volume is None:
        raise StartError(f'cannot find volume "{name}" to mount into container "{container}"')
    host = volume.get("hostPath")
    claim = volume.get("persistentVolumeClaim")
    if host is not None:
        # Before its type has the agent make something there, and once more when it is there.
        _check_visible(name, Path(host["path"]), places)
        source = host_paths.find(name, host)
    else:
        source = folder.volume(name)
    if claim is not None:
        source = source.readlink()
    of_machine = host is not None or (claim is not None and source.parent != places.shared)
    if of_machine:
        _check_visible(name, source, places)
    inner = mount.get("subPath") or expand(mount.get("subPathExpr") or "")
    if inner:
        _make_inner(source, inner, name, container)
    fixed = host is None and claim is None and volume.get("emptyDir") is None
    target = os.path.normpath(os.path.join("/", mount["mountPath"]))  # noqa: PTH118
    return {
        "source": str(source),
        "inner": inner,
        "target": target,
        "of_machine": of_machine,
        "read_only": fixed or mount.get("readOnly", False) or (claim or {}).get("readOnly", False),
        "name": name,
    }


def _check_visible(volume: str, path: Path, places: Places) -> None:
    if places.hides(path):
        why = f"{path} is in the data directory of the agent"
        raise StartError(f'MountVolume.SetUp failed for volume "{volume}" : {why}', reason="")


def _make_inner(source: Path, inner: str, name: str, container: str) -> None:
    """Have the part of a volume that is to be shown; the keeper opens it again by itself.

    A link on the way is refused, also one that stays in the volume: the container could
    make it lead elsewhere at any time.
    """
    try:
        with closing(os.open(source, paths.FOLDER)) as volume:
            mode = stat.S_IMODE(os.fstat(volume).st_mode)
            os.close(paths.make_folders(volume, inner, mode))
    except OSError as error:
        why = "a symbolic link" if error.errno == errno.ELOOP else (error.strerror or "").lower()
        raise StartError(
            f'failed to prepare subPath for volumeMount "{name}" of container "{container}": '
            f"{inner}: {why}",
            reason="CreateContainerConfigError",
        ) from error
