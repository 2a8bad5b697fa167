# SPDX-License-Identifier: Apache-2.0
"""The credentials of the next request: headers and client certificate.

Tokens and certificates change during a run: other programs renew the files in
place, credentials of plugins expire, and an API server may refuse credentials
that seemed good. One run of a plugin serves all requests that wait. This module
sends no request.
"""

import asyncio
import base64
import logging
from dataclasses import dataclass, field
from urllib.parse import quote

from refloat.base.clock import Clock
from refloat.base.tasks import Tasks
from refloat.client import cluster_access, errors
from refloat.client.exec_plugin import Credential, ExecPlugin
from refloat.client.reloading_files import Content
from refloat.client.settings import ClientSettings

log = logging.getLogger(__name__)

Header = tuple[str, str]
Outcome = Credential | errors.Unauthorized


@dataclass(frozen=True, slots=True)
class Identity:
    """The credentials of one request."""

    headers: tuple[Header, ...] = field(default=(), repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


class Credentials:
    """A user's credentials on one cluster."""

    def __init__(
        self, where: cluster_access.Access, clock: Clock, settings: ClientSettings
    ) -> None:
        user = where.user
        self._static = _KubeconfigIdentity(user, clock)
        self._authority = Content(where.cluster.authority, clock)
        self._clock = clock
        self._plugin = (
            ExecPlugin(user.plugin, where.cluster, clock, settings) if user.plugin else None
        )
        self._tasks = Tasks()
        self._running: asyncio.Task[Outcome] | None = None
        self._printed: Credential | None = None

    async def current(self) -> Identity:
        """The identity to use now; raises `Unauthorized` without credentials."""
        if self._plugin is None:
            return self._static.identity()
        credential = self._printed
        if credential is None or (
            credential.expires is not None and self._clock.now() > credential.expires
        ):
            credential = await self._run(self._plugin)
        return self._static.identity(credential)

    async def renewed(self, identity_in_use: Identity) -> Identity | None:
        """Another identity, after the server refused this one; None if there is no other."""
        if self._plugin is None:
            identity = self._static.identity(now=True)
        elif self._printed and self._static.identity(self._printed) != identity_in_use:
            # Another refused request has already renewed the credentials.
            return self._static.identity(self._printed)
        else:
            identity = self._static.identity(await self._run(self._plugin))
        return identity if identity != identity_in_use else None

    async def _run(self, plugin: ExecPlugin) -> Credential:
        """Run the plugin, or wait for the run in progress.

        A cancelled waiter does not stop the run for the others.
        """
        running = self._running
        if running is None:
            running = self._running = self._tasks.spawn(
                self._once(plugin), name="credential-plugin"
            )
            running.add_done_callback(self._ended)
        await asyncio.wait({running})
        if running.cancelled():
            raise errors.Unauthorized("no credentials: this client is closed")
        outcome = running.result()
        if isinstance(outcome, errors.Unauthorized):
            raise errors.Unauthorized(str(outcome)) from outcome
        return outcome

    def _ended(self, _task: asyncio.Task[Outcome]) -> None:
        self._running = None

    async def _once(self, plugin: ExecPlugin) -> Outcome:
        """Return a failure as a value, for all waiters."""
        try:
            authority = self._authority.read()
        except OSError:
            authority = b""  # the TLS layer raises an error with better words
        try:
            self._printed = await plugin.run(authority)
        except errors.Unauthorized as error:
            return error
        return self._printed

    async def close(self) -> None:
        await self._tasks.close()


class _KubeconfigIdentity:
    """The credentials in the kubeconfig and in the files that the kubeconfig names."""

    def __init__(self, user: cluster_access.User, clock: Clock) -> None:
        self._user = user
        self._token = Content(cluster_access.Source(path=user.token_file), clock)
        self._certificate = Content(user.certificate, clock)
        self._key = Content(user.key, clock)
        self._as = tuple(_impersonation(user.impersonate))
        self._cached: tuple[tuple[object, ...], Identity] | None = None

    def identity(self, credential: Credential | None = None, *, now: bool = False) -> Identity:
        """The present identity, with a plugin's credential if there is one.

        As long as nothing changes, this is the same object.
        """
        try:
            token = self._token.read(now=now)
            pair = (self._certificate.read(now=now), self._key.read(now=now))
        except OSError as error:
            raise errors.Unauthorized(
                f"no credentials: {error.filename}: cannot be read: {error.strerror}"
            ) from error
        user, credential = self._user, credential or Credential()
        inputs = (token, pair, credential)
        if self._cached is not None and self._cached[0] == inputs:
            return self._cached[1]
        if credential.certificate:
            pair = (credential.certificate, credential.key)
        headers = self._as
        if user.username or user.password:
            basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            headers = (("Authorization", f"Basic {basic}"), *headers)
        # A token file is newer than a token beside it in the kubeconfig.
        elif bearer := token.decode(errors="replace").strip() or user.token or credential.token:
            headers = (("Authorization", f"Bearer {bearer}"), *headers)
        self._cached = (inputs, Identity(headers, *pair))
        return self._cached[1]


def _impersonation(target: cluster_access.Impersonation | None) -> list[Header]:
    if target is None:
        return []
    headers = [("Impersonate-User", target.user)]
    if target.uid:
        headers.append(("Impersonate-Uid", target.uid))
    headers += [("Impersonate-Group", group) for group in target.groups]
    for key, value in target.extra:
        name = quote(key, safe="!#$&'*+-.^_`|~")  # what the name of a header may have
        headers.append((f"Impersonate-Extra-{name}", value))
    return headers
