# SPDX-License-Identifier: Apache-2.0
"""From fork to exec: how a process becomes a container's.

The child makes itself a session, joins its cgroup, gets its view of the file
system, gives up its rights, and becomes the program. What goes wrong on the
way is written into a pipe that exec closes, so the keeper hears of either.
"""

import os
import resource
import signal
from typing import Any, NoReturn

from refloat.agent.keeper import linux, mounts, seccomp

Spec = dict[str, Any]

MARKER = "REFLOAT_CONTAINER"
"""In the environment of all that a container starts: its id, by which strays are found."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_REASON = 2048

# What containers get; the keeper itself takes all it can, for it holds pipes of each.
_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)


def allow_many_files() -> None:
    most = _OPEN_FILES[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Started:
    """A child on its way to exec."""

    __slots__ = ("failure", "output", "pid")

    def __init__(self, pid: int, failure: int, output: tuple[int, int]) -> None:
        self.pid = pid
        self.failure = failure  # says why it did not get there; closed when it did
        self.output = output  # its standard output and error


def start(spec: Spec, *, groups: list[str], view: str, within: int | None = None) -> Started:
    """Fork. `within` is a process whose view of the file system is taken over."""
    failure, told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    out, out_end = os.pipe2(os.O_CLOEXEC)
    err, err_end = os.pipe2(os.O_CLOEXEC)
    keeper = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        for end in (failure, told, out, out_end, err, err_end):
            os.close(end)
        raise
    if pid == 0:
        _child(spec, groups, view, within, keeper, (out_end, err_end, told))
    for end in (told, out_end, err_end):
        os.close(end)
    for end in (out, err):
        os.set_blocking(end, False)
    return Started(pid, failure, (out, err))


def _child(
    spec: Spec,
    groups: list[str],
    view: str,
    within: int | None,
    keeper: int,
    ends: tuple[int, int, int],
) -> NoReturn:
    try:
        _reset_signals()
        os.setsid()
        _join(groups)
        _open_standard(ends[0], ends[1])
        if within is not None:
            _enter(within)
        elif view != mounts.NONE:
            _show(spec, view)
        _give_up_rights(spec, keeper)
        _change_folder(spec.get("cwd") or "/")
        if spec.get("seccomp"):
            seccomp.install()
        _execute(spec["argv"], {**spec["env"], MARKER: spec["id"]})
    except BaseException as error:
        os.write(ends[2], _reason(error).encode()[:_MAX_REASON])
    finally:
        os._exit(128)


def _reset_signals() -> None:
    """What is ignored or held back survives exec, whoever above the keeper began with it."""
    signal.set_wakeup_fd(-1)
    for each in signal.valid_signals():
        if signal.getsignal(each) != signal.SIG_DFL:
            signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _join(groups: list[str]) -> None:
    for group in groups:
        descriptor = os.open(f"{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, b"0")
        os.close(descriptor)


def _open_standard(out: int, err: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target, inheritable=True)


def _show(spec: Spec, view: str) -> None:
    mounts.show(
        spec["mounts"],
        view,
        spec["scratch"],
        hidden=spec["hidden"],
        read_only=spec.get("read_only_root", False),
    )


def _enter(pid: int) -> None:
    """See what that process sees."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    if os.geteuid() != 0:
        user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        if not _is_own("user", user):
            linux.setns(user, linux.CLONE_NEWUSER)
    space = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if not _is_own("mnt", space):
        linux.setns(space, linux.CLONE_NEWNS)
        os.fchdir(root)
        os.chroot(".")


def _is_own(kind: str, descriptor: int) -> bool:
    return os.path.samestat(os.stat(f"/proc/self/ns/{kind}"), os.fstat(descriptor))


def _give_up_rights(spec: Spec, keeper: int) -> None:
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if spec.get("processes") is not None:
        most = int(spec["processes"])
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    user = spec.get("user")
    if user is not None or os.geteuid() != 0:
        linux.drop_capabilities()
    if user is not None:
        os.setgroups(user.get("groups") or [])
        os.setgid(user["gid"])
        os.setuid(user["uid"])
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    # After the change of user, which would clear it. A keeper that died before is seen below.
    linux.die_with_parent()
    if os.getppid() != keeper:
        os._exit(128)


def _change_folder(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise OSError(f'chdir to cwd ("{folder}"): {_words(error)}') from error


def _execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    name = argv[0]
    if "/" in name:
        _exec(name, argv, env)
    denied = False
    for folder in (env.get("PATH") or _DEFAULT_PATH).split(":"):
        path = f"{folder or '.'}/{name}"
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                _exec(path, argv, env)
            denied = True
    why = "permission denied" if denied else "executable file not found in $PATH"
    raise OSError(f'exec: "{name}": {why}')


def _exec(path: str, argv: list[str], env: dict[str, str]) -> NoReturn:
    if os.path.isdir(path):
        raise OSError(f'exec: "{path}": is a directory')
    try:
        os.execve(path, argv, env)  # noqa: S606 - what this is for
    except FileNotFoundError as error:
        # Also where the interpreter in a script's first line is missing.
        raise OSError(f'exec: "{path}": stat {path}: no such file or directory') from error
    except OSError as error:
        raise OSError(f'exec: "{path}": {_words(error)}') from error


def _words(error: OSError) -> str:
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {_words(error)}"
    return str(error) or type(error).__name__
