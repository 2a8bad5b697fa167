# SPDX-License-Identifier: Apache-2.0
"""The token files of a data directory: who may read one is who it names.

    DIR/admin.token          the administrator
    DIR/readonly.token       reads everything but secrets
    DIR/nodes/NAME.token     the agent of node NAME

All are of mode 0600. A node's token may be made by any process while the
server runs, so the server looks at the directory again when it meets a token
that it does not know.
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
from refloat.app import files
from refloat.base import rand
from refloat.base.errors import UsageError

log = logging.getLogger(__name__)

_SUFFIX = ".token"

# What a client can send behind `Bearer`.
_TOKEN = re.compile(rb"[!-~]+")


def admin_token(data_dir: Path) -> str:
    return _ensured(data_dir / f"admin{_SUFFIX}")


def readonly_token(data_dir: Path) -> str:
    return _ensured(data_dir / f"readonly{_SUFFIX}")


def node_token(data_dir: Path, name: str) -> str:
    """The token of a node's agent, made when it is first asked for."""
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
    """The nodes' tokens, each read once, when it is first looked for.

    A wrong token costs a listing of the directory and reads no file. The time
    at which the directory changed would cost less, but two files that are
    made within one tick of the clock do not differ by it. A file appears in
    one step and is never changed; to take a node's token back, remove its
    file and restart the server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: set[str] = set()
        self._identities: dict[bytes, Identity] = {}

    def find(self, hashed: bytes) -> Identity | None:
        self._reload()
        return self._identities.get(hashed)

    def _reload(self) -> None:
        try:
            found = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return
        for name in found:
            if name.endswith(_SUFFIX) and name not in self._read:
                self._load(self._folder / name)

    def _load(self, path: Path) -> None:
        try:
            token = _read_whole(path)
        except (OSError, UsageError) as error:
            fields = {"file": path.name, "reason": str(error)}
            log.warning("cannot use a node's token", extra={"fields": fields})
            self._read.add(path.name)  # once is enough to complain
            return
        if token:
            self._read.add(path.name)
            user = identity.node(path.name.removesuffix(_SUFFIX))
            self._identities[authentication.digest(token)] = user


def _ensured(path: Path) -> str:
    """The token in a file; a new one where there is none, or nothing in it.

    Of two processes that make one at the same time the first wins, and both
    return its token.
    """
    with contextlib.suppress(FileNotFoundError):
        if token := _read_whole(path):
            return token
        path.unlink()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    files.write(beside, rand.token().encode())
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(beside)
    finally:
        beside.unlink(missing_ok=True)
    return _read_whole(path)


def _read_whole(path: Path) -> str:
    """As `_read`, also of a token whose maker has not removed its second name yet."""
    try:
        return _read(path)
    except UsageError:
        _drop_second_name(path)
        return _read(path)


def _drop_second_name(path: Path) -> None:
    """Do the last step of `_ensured` for a process that makes this token now, or was killed."""
    for beside in path.parent.glob(f".{path.name}.*"):
        with contextlib.suppress(OSError):
            if os.path.samestat(beside.lstat(), path.lstat()):
                beside.unlink()


def _read(path: Path) -> str:
    """The token in a file, which no other user can have put there; "" if it is blank."""
    content = files.read(path, secret=True).strip()
    if content and not _TOKEN.fullmatch(content):
        raise UsageError(
            f"{path} is not a token: it has characters that no HTTP header carries; "
            "remove it, and the server makes a new one"
        )
    return content.decode()
