# SPDX-License-Identifier: Apache-2.0
"""Runs a credential plugin: a command that prints an ExecCredential.

The formats are `client.authentication.k8s.io` v1 and v1beta1. The command gets
its input in KUBERNETES_EXEC_INFO, and a terminal only if the kubeconfig allows
that. Refloat logs the command's stderr, and adds stderr to the error of a failed
run. The command's stdout is a secret and appears nowhere. `credentials` decides
when to run the command.
"""

import asyncio
import base64
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from refloat.api import times
from refloat.base.clock import Clock
from refloat.client import cluster_access, errors
from refloat.client.settings import ClientSettings

log = logging.getLogger(__name__)

# Certificates and tokens have a few kilobytes; larger output is no credential.
MAX_OUTPUT_BYTES = 1024 * 1024

# An error has so many characters from the end of a plugin's stderr.
MAX_STDERR = 500


@dataclass(frozen=True, slots=True)
class Credential:
    """The credentials that a plugin printed."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: datetime | None = None


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_ExecCredential)

_Transport: TypeAlias = asyncio.SubprocessTransport
_Process: TypeAlias = asyncio.subprocess.Process

_PIPE_BYTES = 64 * 1024


class PluginFailed(errors.Unauthorized):
    """The plugin gave no credentials."""


class ExecPlugin:
    """One plugin of one user."""

    def __init__(
        self,
        plugin: cluster_access.Plugin,
        cluster: cluster_access.ClusterEndpoint,
        clock: Clock,
        settings: ClientSettings,
    ) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._clock = clock
        self._settings = settings

    async def run(self, authority: bytes) -> Credential:
        """Run the plugin once; `authority` goes to a plugin that wants cluster information."""
        mode, stdin = self._plugin.interactive, sys.stdin
        has_terminal = stdin is not None and not stdin.closed and stdin.isatty()
        if mode == "Always" and not has_terminal:
            raise self._failed("asks the user, but standard input is not a terminal")
        interactive = has_terminal and mode != "Never"
        transport, process = await self._start(interactive, authority)
        settings = self._settings
        seconds = settings.sign_in_seconds if interactive else settings.plugin_seconds
        try:
            async with self._clock.timeout(seconds):
                output, stderr = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                code = await process.wait()
        except TimeoutError as error:
            raise self._failed(f"gave no credentials within {seconds:g} s") from error
        finally:
            await _end(transport, process, is_group=not interactive)
        if text := stderr.decode(errors="replace").strip():
            log.info("credential plugin %s: %s", self._plugin.command, text)
        if code:
            tail = f": {text[-MAX_STDERR:]}" if text else ""
            raise self._failed(f"ended with code {code}{tail}")
        return self._parse(output)

    async def _start(self, interactive: bool, authority: bytes) -> tuple[_Transport, _Process]:
        plugin, loop = self._plugin, asyncio.get_running_loop()
        spec: dict[str, Any] = {}
        if plugin.wants_cluster:
            cluster = {**self._cluster.info}
            if authority:
                cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
            spec["cluster"] = {key: value for key, value in cluster.items() if value}
        spec["interactive"] = interactive
        info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
        variables = {**dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            # As asyncio.create_subprocess_exec, which keeps the transport to itself.
            transport, protocol = await loop.subprocess_exec(
                lambda: asyncio.subprocess.SubprocessStreamProtocol(_PIPE_BYTES, loop),
                plugin.command,
                *plugin.args,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
                env={**os.environ, **variables},
                # A group of its own, so that Refloat can end its children too. But only
                # Refloat's own group may read from the terminal.
                start_new_session=not interactive,
            )
        except OSError as error:
            hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
            raise self._failed(f"cannot be run: {error.strerror}{hint}") from error
        return transport, asyncio.subprocess.Process(transport, protocol, loop)

    def _parse(self, output: bytes) -> Credential:
        try:
            printed = _decoder.decode(output)
            expires = printed.status.expiration_timestamp if printed.status else None
            end = times.parse(expires) if expires else None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise self._failed("did not print an ExecCredential") from error
        if printed.kind != "ExecCredential" or printed.api_version != self._plugin.api_version:
            raise self._failed(
                f"printed {printed.api_version or 'no apiVersion'} {printed.kind or 'of no kind'}, "
                f"expected {self._plugin.api_version} ExecCredential"
            )
        status = printed.status
        if status is None:
            raise self._failed("printed no status")
        certificate, key = status.client_certificate_data, status.client_key_data
        if bool(certificate) != bool(key):
            raise self._failed("printed only one of certificate and key")
        if not status.token and not certificate:
            raise self._failed("printed neither a token nor a certificate")
        return Credential(
            status.token or "", (certificate or "").encode(), (key or "").encode(), end
        )

    def _failed(self, problem: str) -> PluginFailed:
        return PluginFailed(f"no credentials: plugin {self._plugin.command!r} {problem}")


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """The content of a pipe up to the bound. Reads the rest too, because the writer would hang."""
    content = bytearray()
    while stream is not None and (piece := await stream.read(65536)):
        content += piece[: MAX_OUTPUT_BYTES - len(content)]
    return bytes(content)


async def _end(transport: _Transport, process: _Process, *, is_group: bool) -> None:
    """End the plugin and all processes that it has started."""
    with suppress(ProcessLookupError):
        if is_group:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    # Close the pipes first: a child that has left the group may hold them open, and `wait`
    # waits for their end.
    transport.close()
    await process.wait()
