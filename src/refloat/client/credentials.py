# SPDX-License-Identifier: Apache-2.0
"""Who we are at this moment: the headers and the certificate of the next request.

Tokens and certificates change while we run: files are renewed in place,
plugins' credentials expire, and an API server may refuse what seemed good. A
plugin runs once for all who wait for it. Nothing here sends a request.
"""

import asyncio
import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from refloat.base.clock import Clock
from refloat.base.tasks import Tasks
from refloat.client import access, errors
from refloat.client.exec_plugin import Credential, ExecPlugin
from refloat.client.settings import Settings
from refloat.client.watched import Content

log = logging.getLogger(__name__)

Header = tuple[str, str]
Outcome = Credential | errors.Unauthorized


@dataclass(frozen=True, slots=True)
class Identity:
    """What one request proves itself with. Compared by what it holds."""

    headers: tuple[Header, ...] = field(default=(), repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


class Credentials:
    """A user's credentials on one cluster."""

    def __init__(self, where: access.Access, clock: Clock, settings: Settings) -> None:
        user = where.user
        self._given = _Given(user, clock)
        self._authority = Content(where.cluster.authority, clock)
        self._clock = clock
        self._plugin = (
            ExecPlugin(user.plugin, where.cluster, clock, settings) if user.plugin else None
        )
        self._tasks = Tasks()
        self._running: asyncio.Task[Outcome] | None = None
        self._printed: Credential | None = None

    async def current(self) -> Identity:
        """What to use now; raises `Unauthorized` when there is nothing to be had."""
        if self._plugin is None:
            return self._given.identity()
        printed = self._printed
        if printed is None or self._has_expired(printed):
            printed = await self._run(self._plugin)
        return self._given.identity(printed)

    def _has_expired(self, printed: Credential) -> bool:
        return printed.expires is not None and self._clock.now() > printed.expires

    async def renewed(self, refused: Identity) -> Identity | None:
        """Something else, after this was refused; None if there is nothing else."""
        if self._plugin is None:
            found = self._given.identity(now=True)
        elif (held := self._printed) and (found := self._given.identity(held)) != refused:
            return found  # somebody else was refused too, and has renewed it
        else:
            found = self._given.identity(await self._run(self._plugin))
        return found if found != refused else None

    async def _run(self, plugin: ExecPlugin) -> Credential:
        """Run the plugin, or wait for the run that is under way.

        The run is nobody's own: who stops waiting does not stop it for others.
        """
        running = self._running or self._start(plugin)
        await asyncio.wait({running})
        if running.cancelled():
            raise errors.Unauthorized("no credentials: this client is closed")
        outcome = running.result()
        if isinstance(outcome, errors.Unauthorized):
            raise errors.Unauthorized(str(outcome)) from outcome
        return outcome

    def _start(self, plugin: ExecPlugin) -> asyncio.Task[Outcome]:
        task = self._tasks.spawn(self._once(plugin), name="credential-plugin")
        task.add_done_callback(self._ended)
        self._running = task
        return task

    def _ended(self, _task: asyncio.Task[Outcome]) -> None:
        self._running = None

    async def _once(self, plugin: ExecPlugin) -> Outcome:
        """A failure is a value here: it is for those who wait, not for the log."""
        try:
            self._printed = await plugin.run(self._read_authority())
        except errors.Unauthorized as error:
            return error
        return self._printed

    def _read_authority(self) -> bytes:
        try:
            return self._authority.read()
        except OSError:
            return b""  # the TLS layer complains about it in better words

    async def close(self) -> None:
        await self._tasks.close()


class _Given:
    """What the kubeconfig itself holds, with the files that it names."""

    def __init__(self, user: access.User, clock: Clock) -> None:
        self._user = user
        self._token = Content(access.Source(path=user.token_file), clock)
        self._certificate = Content(user.certificate, clock)
        self._key = Content(user.key, clock)
        self._as = tuple(_impersonation(user.impersonate))
        self._held: tuple[tuple[object, ...], Identity] | None = None

    def identity(self, printed: Credential | None = None, *, now: bool = False) -> Identity:
        """The present identity; the same object as long as nothing changes."""
        try:
            token = self._token.read(now=now)
            pair = (self._certificate.read(now=now), self._key.read(now=now))
        except OSError as error:
            raise errors.Unauthorized(
                f"no credentials: {error.filename}: cannot be read: {error.strerror}"
            ) from error
        seen = (token, pair, printed)
        if self._held is None or self._held[0] != seen:
            self._held = (seen, self._made(token, pair, printed))
        return self._held[1]

    def _made(
        self, token: bytes, pair: tuple[bytes, bytes], printed: Credential | None
    ) -> Identity:
        authorization = self._authorization(token, printed)
        if printed is not None and printed.certificate:
            pair = (printed.certificate, printed.key)
        return Identity((*authorization, *self._as), *pair)

    def _authorization(self, token: bytes, printed: Credential | None) -> Sequence[Header]:
        user = self._user
        if user.username or user.password:
            pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            return [("Authorization", f"Basic {pair}")]
        # A file is the newer word than what stands beside it in the kubeconfig.
        bearer = token.decode(errors="replace").strip() or user.token
        bearer = bearer or (printed.token if printed is not None else "")
        return [("Authorization", f"Bearer {bearer}")] if bearer else []


def _impersonation(wanted: access.Impersonation | None) -> list[Header]:
    if wanted is None:
        return []
    headers = [("Impersonate-User", wanted.user)]
    if wanted.uid:
        headers.append(("Impersonate-Uid", wanted.uid))
    headers += [("Impersonate-Group", group) for group in wanted.groups]
    headers += [(f"Impersonate-Extra-{_escaped(key)}", value) for key, value in wanted.extra]
    return headers


def _escaped(key: str) -> str:
    """A key as part of a header's name: what may not stand there is percent-encoded."""
    allowed = "!#$&'*+-.^_`|~"
    return "".join(
        char
        if char.isascii() and (char.isalnum() or char in allowed)
        else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in key
    )
