# SPDX-License-Identifier: Apache-2.0
"""From fork to exec: starts the first process of a container.

The child starts a session, joins its cgroup, sets up its view of the file system, drops
its rights and becomes the program. If a step fails, the child writes the reason into a
pipe. The exec closes that pipe, so the keeper learns of success and failure.
"""

import os
import resource
import signal
from typing import Any, NamedTuple, NoReturn

from refloat.agent.keeper import mounts, seccomp, small_files, syscalls

Spec = dict[str, Any]

MARKER = "REFLOAT_CONTAINER"
"""The environment variable with the container's id; the keeper finds orphans by it."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_REASON = 2048

# The limit for containers. The keeper itself needs more, because it has pipes of each container.
_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)


def allow_many_files() -> None:
    most = _OPEN_FILES[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Child(NamedTuple):
    """A process between fork and exec."""

    pid: int
    failure: int  # a pipe with the reason of a failure; the exec closes it
    output: tuple[int, int]  # standard output and error


def start(spec: Spec, *, groups: list[str], view: str, within: int | None = None) -> Child:
    """Fork. `within` is a process whose view of the file system the child uses."""
    failure, failure_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    out, out_end = os.pipe2(os.O_CLOEXEC)
    err, err_end = os.pipe2(os.O_CLOEXEC)
    keeper = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        for end in (failure, failure_end, out, out_end, err, err_end):
            os.close(end)
        raise
    if pid == 0:
        _run_child(spec, groups, view, within, keeper, (out_end, err_end, failure_end))
    for end in (failure_end, out_end, err_end):
        os.close(end)
    for end in (out, err):
        os.set_blocking(end, False)
    return Child(pid, failure, (out, err))


def _run_child(
    spec: Spec,
    groups: list[str],
    view: str,
    within: int | None,
    keeper: int,
    ends: tuple[int, int, int],
) -> NoReturn:
    try:
        # Ignored and blocked signals would survive the exec.
        signal.set_wakeup_fd(-1)
        for each in signal.valid_signals():
            if signal.getsignal(each) != signal.SIG_DFL:
                signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        for group in groups:
            small_files.write(f"{group}/cgroup.procs", "0")
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for source, target in ((null, 0), (ends[0], 1), (ends[1], 2)):
            os.dup2(source, target, inheritable=True)
        if within is not None:
            _enter(within)
        elif view != mounts.NONE:
            mounts.show(
                spec["mounts"],
                view,
                spec["scratch"],
                hide=spec["hidden"],
                read_only=spec.get("read_only_root", False),
            )
        _drop_rights(spec, keeper)
        folder = spec.get("cwd") or "/"
        try:
            os.chdir(folder)
        except OSError as error:
            raise OSError(f'chdir to cwd ("{folder}"): {_words(error)}') from error
        if spec.get("seccomp"):
            seccomp.install()
        _execute(spec["argv"], {**spec["env"], MARKER: spec["id"]})
    except BaseException as error:
        os.write(ends[2], _reason(error).encode()[:_MAX_REASON])
    finally:
        os._exit(128)


def _enter(pid: int) -> None:
    """Use the file system view of another process."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    if os.geteuid() != 0:
        user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        if not _is_own("user", user):
            syscalls.setns(user, syscalls.CLONE_NEWUSER)
    space = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if not _is_own("mnt", space):
        syscalls.setns(space, syscalls.CLONE_NEWNS)
        os.fchdir(root)
        os.chroot(".")


def _is_own(kind: str, descriptor: int) -> bool:
    return os.path.samestat(os.stat(f"/proc/self/ns/{kind}"), os.fstat(descriptor))


def _drop_rights(spec: Spec, keeper: int) -> None:
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if spec.get("processes") is not None:
        most = int(spec["processes"])
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    user = spec.get("user")
    if user is not None or os.geteuid() != 0:
        syscalls.drop_capabilities()
    if user is not None:
        os.setgroups(user.get("groups") or [])
        os.setgid(user["gid"])
        os.setuid(user["uid"])
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    # After the change of user, which would clear the setting. The keeper may have died before.
    syscalls.die_with_parent()
    if os.getppid() != keeper:
        os._exit(128)


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
        os.execve(path, argv, env)  # noqa: S606 - the purpose of this module
    except FileNotFoundError as error:
        # Also if the interpreter in a script's first line is missing.
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
