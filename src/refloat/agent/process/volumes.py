# SPDX-License-Identifier: Apache-2.0
"""The folders of a pod: volumes, logs and termination messages.

    pods/UID/volumes/NAME                  an emptyDir, or the files of a ConfigMap or Secret;
                                           for a claim, a link to the folder of the volume
    pods/UID/logs/CONTAINER/ATTEMPT.log    see `keeper.log_writer`
    pods/UID/messages/CONTAINER/ATTEMPT    the file at terminationMessagePath
    pods/UID/root                          where the keeper builds a view of the file system

An agent that crashed half-way creates the rest later. All folders end with the pod.

Containers write only into `volumes/NAME` and into their termination message. The agent
opens files below a volume by descriptor only (`keeper.paths`).
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from refloat.agent.keeper import paths
from refloat.agent.keeper.paths import closing
from refloat.agent.process import host_paths, pod_files
from refloat.agent.runtime import StartError
from refloat.api.meta import Object

_GROUP_READS = 0o440  # a kubelet adds these rights to files for `fsGroup`
_OPEN = 0o777  # containers of all users write to an emptyDir
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileContent(Protocol):
    @property
    def content(self) -> bytes: ...

    @property
    def mode(self) -> int: ...


Files = Callable[[Object, Object], Awaitable[Mapping[str, FileContent] | None]]
"""The files of a pod's volume, by path; None for a volume of another kind."""

Folder = Callable[[Object, Object], Awaitable[Path | None]]
"""The folder of a claim's volume; None for a volume of another kind."""


@dataclass(frozen=True, slots=True)
class Places:
    """Special paths of the machine."""

    shared: Path | None = None
    """The folder of the persistent volumes that agents create."""

    hidden: tuple[Path, ...] = ()
    """Paths that no container may see."""

    def hides(self, path: Path) -> bool:
        real = Path(os.path.realpath(path))  # `resolve` fails at a circle of links
        return any(real.is_relative_to(each.resolve()) for each in self.hidden)


NOWHERE = Places()


class PodFolder:
    """The folder of one pod."""

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
        """Create the files of an attempt except volumes, and remove those of old attempts.

        Returns the number of the last attempt that started, or -1. The keeper opens the log
        first, so the log proves an attempt even if no keeper knows it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        log, message = self.log(container, attempt), self.message(container, attempt)
        log.parent.mkdir(parents=True, exist_ok=True)
        message.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with closing(os.open(message, flags, 0o666)) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(message))
            os.fchmod(file, 0o666)  # containers of all users write their message
        last = max((_number(each) for each in log.parent.iterdir()), default=-1)
        for old in (*log.parent.iterdir(), *message.parent.iterdir()):
            if 0 <= _number(old) < attempt - 1:
                old.unlink()
        return last

    def remove(self) -> None:
        pod_files.remove(self.path)

    def used_bytes(self) -> dict[str, int]:
        """The bytes of each `volumes/NAME` and `logs/CONTAINER` on disk, as `du` counts."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        sizes: dict[str, int] = {}
        for kind in ("volumes", "logs"):
            try:
                folder = os.open(self.path / kind, flags)
            except OSError:
                continue
            with closing(folder), os.scandir(folder) as entries:
                for each in entries:
                    # A claim is a link, and its files are not scratch space of the pod.
                    if not each.is_symlink():
                        sizes[f"{kind}/{each.name}"] = pod_files.size(folder, each.name)
        return sizes


def _number(path: Path) -> int:
    """The attempt of a file; -1 for other files."""
    number = path.name.partition(".")[0]
    return int(number) if number.isdigit() else -1


async def make_volumes(folder: PodFolder, pod: Object, files: Files, claimed: Folder) -> None:
    """Create the missing volumes of a pod; raises `StartError`."""
    for volume in pod["spec"].get("volumes") or ():
        path = folder.volume(volume["name"])
        if volume.get("hostPath") is not None or path.exists():
            continue
        contents = await files(pod, volume)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if contents is not None or volume.get("emptyDir") is not None:
            _make_volume(path, contents, group)
        elif (target := await claimed(pod, volume)) is not None:
            if not target.exists():
                target.mkdir(parents=True)
                target.chmod(_OPEN)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        else:
            kind = next((key for key in volume if key != "name"), "none")
            raise StartError(f'volume "{volume["name"]}": {kind} is not a volume of this runtime')


def _make_volume(path: Path, files: Mapping[str, FileContent] | None, group: int | None) -> None:
    """Create an emptyDir, or a folder with files.

    The folder has another name until it is complete, so `path` never is half a volume.
    """
    making = path.with_name(f"{path.name}.making")
    pod_files.remove(making)
    making.mkdir(parents=True)
    if files is None:
        if group is not None:
            os.chown(making, -1, group)
        making.chmod(_OPEN if group is None else _OPEN | stat.S_ISGID)
    else:
        with closing(os.open(making, paths.FOLDER | os.O_NOFOLLOW)) as folder:
            for name, file in files.items():
                above, last = os.path.split(name)
                with closing(paths.make_folders(folder, above, 0o755)) as parent:
                    descriptor = os.open(last, _NEW_FILE, 0o600, dir_fd=parent)
                with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor has no path
                    stream.write(file.content)
                    if group is not None:
                        os.fchown(descriptor, -1, group)
                    os.fchmod(descriptor, file.mode | (_GROUP_READS if group is not None else 0))
    making.rename(path)


def mounts(
    folder: PodFolder,
    pod: Object,
    container: Object,
    expand: Callable[[str], str],
    places: Places = NOWHERE,
) -> list[dict[str, Any]]:
    """The mounts of a container, for the keeper; raises `StartError`."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    requests: list[dict[str, Any]] = []
    for mount in container.get("volumeMounts") or ():
        name, target = mount["name"], os.path.join("/", mount["mountPath"])  # noqa: PTH118
        volume = volumes.get(name)
        if volume is None:
            why = f'cannot find volume "{name}" to mount into container "{container["name"]}"'
            raise StartError(why)
        host = volume.get("hostPath")
        claim = volume.get("persistentVolumeClaim")
        if host is not None:
            # Before the agent creates the path, and again below when the path exists.
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
            within = places if of_machine else NOWHERE
            _make_inner(source, inner, name, container["name"], within)
        is_fixed = host is None and claim is None and volume.get("emptyDir") is None
        is_read_only = mount.get("readOnly", False) or (claim or {}).get("readOnly", False)
        requests.append(
            {
                "source": str(source),
                "inner": inner,
                "target": os.path.normpath(target),
                "of_machine": of_machine,
                "read_only": is_fixed or is_read_only,
                "name": name,
            }
        )
    return requests


def _check_visible(volume: str, path: Path, places: Places) -> None:
    if places.hides(path):
        why = f"{path} is in the data directory of the agent"
        raise StartError(f'MountVolume.SetUp failed for volume "{volume}" : {why}', reason="")


def _make_inner(source: Path, inner: str, name: str, container: str, places: Places) -> None:
    """Create the folder of a `subPath`; the keeper opens the folder again.

    A link in the path is an error, even a link within the volume, because the container
    could change its target at any time.
    """
    try:
        with closing(os.open(source, paths.FOLDER)) as volume:
            # Of the descriptor, because a container may replace the source by a link.
            real = Path(paths.by_descriptor(volume)).readlink()
            _check_visible(name, real.joinpath(*paths.components(inner)), places)
            mode = stat.S_IMODE(os.fstat(volume).st_mode)
            os.close(paths.make_folders(volume, inner, mode))
    except OSError as error:
        why = "a symbolic link" if error.errno == errno.ELOOP else (error.strerror or "").lower()
        raise StartError(
            f'failed to prepare subPath for volumeMount "{name}" of container "{container}": '
            f"{inner}: {why}",
            reason="CreateContainerConfigError",
        ) from error
