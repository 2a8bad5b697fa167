# SPDX-License-Identifier: Apache-2.0
"""The token files of a data directory; the right to read one makes the user.

    DIR/admin.token          the administrator
    DIR/readonly.token       reads everything but secrets
    DIR/nodes/NAME.token     the agent of node NAME

All files have mode 0600. Another process may make a node's token while the server
runs, so for an unknown token the server reads the directory again.
"""

import contextlib
import logging
import os
import re
from pathlib import Path

from refloat.api import names
from refloat.apiserver import authentication, identity
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.identity import Identity
from refloat.app import private_files
from refloat.base import rand
from refloat.base.errors import UsageError

log = logging.getLogger(__name__)

_SUFFIX = ".token"

# The characters that a client can send behind `Bearer`.
_TOKEN = re.compile(rb"[!-~]+")


def admin_token(data_dir: Path) -> str:
    return _ensured(data_dir / f"admin{_SUFFIX}")


def readonly_token(data_dir: Path) -> str:
    return _ensured(data_dir / f"readonly{_SUFFIX}")


def node_token(data_dir: Path, name: str) -> str:
    """The token of a node's agent; the first call makes it."""
    if complaints := names.dns_subdomain(name):
        raise UsageError(f"node name {name!r}: {complaints[0]}")
    folder = data_dir / "nodes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _ensured(folder / f"{name}{_SUFFIX}")


def accepted(data_dir: Path) -> Tokens:
    """The tokens that a server on this directory accepts."""
    nodes = _Nodes(data_dir / "nodes")
    return Tokens(
        {
            admin_token(data_dir): identity.ADMIN,
            readonly_token(data_dir): identity.READ_ONLY,
        },
        more=nodes.find,
    )


class _Nodes:
    """The nodes' tokens; each file is read once.

    A wrong token costs a listing of the directory and reads no file. A check of
    the directory's mtime would cost less, but misses a second file within one tick
    of the clock. A file appears in one step and never changes; to revoke a node's
    token, remove the file and restart the server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: set[str] = set()
        self._identities: dict[bytes, Identity] = {}

    def find(self, hashed: bytes) -> Identity | None:
        with contextlib.suppress(FileNotFoundError):
            for path in list(self._folder.iterdir()):
                if path.name.endswith(_SUFFIX) and path.name not in self._read:
                    self._load(path)
        return self._identities.get(hashed)

    def _load(self, path: Path) -> None:
        try:
            token = _read_whole(path)
        except (OSError, UsageError) as error:
            fields = {"file": path.name, "reason": str(error)}
            log.warning("cannot use a node's token", extra={"fields": fields})
            self._read.add(path.name)  # log this file once
            return
        if token:
            self._read.add(path.name)
            user = identity.node(path.name.removesuffix(_SUFFIX))
            self._identities[authentication.digest(token)] = user


def _ensured(path: Path) -> str:
    """The token in a file; makes a token if the file is missing or empty.

    If two processes make a token at the same time, both return that of the first.
    """
    with contextlib.suppress(FileNotFoundError):
        if token := _read_whole(path):
            return token
        path.unlink()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    private_files.write(beside, rand.token().encode())
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(beside)
    finally:
        beside.unlink(missing_ok=True)
    return _read_whole(path)


def _read_whole(path: Path) -> str:
    """Like `_read`, also for a token that has a second name.

    The second name is from `_ensured` in a process that makes the token now, or was killed.
    """
    try:
        return _read(path)
    except UsageError:
        for beside in path.parent.glob(f".{path.name}.*"):
            with contextlib.suppress(OSError):
                if os.path.samestat(beside.lstat(), path.lstat()):
                    beside.unlink()
        return _read(path)


def _read(path: Path) -> str:
    """The token in a file that no other user can have written; "" in a blank file."""
    content = private_files.read(path, secret=True).strip()
    if content and not _TOKEN.fullmatch(content):
        raise UsageError(
            f"{path} is not a token: it has characters that no HTTP header carries; "
            "remove it, and the server makes a new one"
        )
    return content.decode()
