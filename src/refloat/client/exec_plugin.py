# SPDX-License-Identifier: Apache-2.0
"""Runs a credential plugin: a command that prints an ExecCredential.

Of `client.authentication.k8s.io` v1 and v1beta1. The command gets what it
needs in KUBERNETES_EXEC_INFO, and a terminal only if it may have one. What it
says on stderr is logged, and told when it fails; what it prints on stdout is
a secret and appears nowhere. When to run it is `credentials`' business.
"""

import asyncio
import base64
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from refloat.api import times
from refloat.base.clock import Clock
from refloat.client import access, errors
from refloat.client.settings import Settings

log = logging.getLogger(__name__)

# Certificates and tokens are a few kilobytes; the rest is not an answer.
MAX_OUTPUT_BYTES = 1024 * 1024

# How much of a plugin's complaints an error tells: the last of it says most.
MAX_TOLD = 500


@dataclass(frozen=True, slots=True)
class Credential:
    """What a plugin printed."""

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


class PluginFailed(errors.Unauthorized):
    """No credentials came of it."""


class ExecPlugin:
    """One plugin of one user."""

    def __init__(
        self, plugin: access.Plugin, cluster: access.Cluster, clock: Clock, settings: Settings
    ) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._clock = clock
        self._settings = settings

    async def run(self, authority: bytes) -> Credential:
        """Run it once; `authority` is told to a plugin that asks for its cluster."""
        interactive = self._is_interactive()
        process = await self._start(interactive, self._info(interactive, authority))
        settings = self._settings
        seconds = settings.sign_in_seconds if interactive else settings.plugin_seconds
        try:
            async with self._clock.timeout(seconds):
                output, complaints = await asyncio.gather(
                    _read(process.stdout), _read(process.stderr)
                )
                code = await process.wait()
        except TimeoutError as error:
            raise self._failed(f"gave no credentials within {seconds:g} s") from error
        finally:
            await _end(process, is_group=not interactive)
        return self._result(code, output, complaints.decode(errors="replace").strip())

    def _is_interactive(self) -> bool:
        mode = self._plugin.interactive
        if mode == "Never":
            return False
        has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if mode == "Always" and not has_terminal:
            raise self._failed("wants to ask somebody, but standard input is not a terminal")
        return has_terminal

    def _info(self, interactive: bool, authority: bytes) -> bytes:
        spec: dict[str, Any] = {}
        if self._plugin.wants_cluster:
            told = {**self._cluster.info}
            if authority:
                told["certificate-authority-data"] = base64.b64encode(authority).decode()
            spec["cluster"] = {key: value for key, value in told.items() if value}
        spec["interactive"] = interactive
        info = {"kind": "ExecCredential", "apiVersion": self._plugin.api_version, "spec": spec}
        return msgspec.json.encode(info)

    async def _start(self, interactive: bool, info: bytes) -> asyncio.subprocess.Process:
        plugin = self._plugin
        environment: Mapping[str, str] = {
            **os.environ,
            **dict(plugin.env),
            "KUBERNETES_EXEC_INFO": info.decode(),
        }
        try:
            return await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
                env=environment,
                # A group of its own, so that its children end with it; but a
                # terminal belongs to the group that we are in.
                start_new_session=not interactive,
            )
        except OSError as error:
            hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
            raise self._failed(f"cannot be run: {error.strerror}{hint}") from error

    def _result(self, code: int, output: bytes, complaints: str) -> Credential:
        if complaints:
            log.info("credential plugin %s: %s", self._plugin.command, complaints)
        if code:
            told = f": {complaints[-MAX_TOLD:]}" if complaints else ""
            raise self._failed(f"ended with code {code}{told}")
        try:
            return self._checked(_decoder.decode(output))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise self._failed("did not print an ExecCredential") from error

    def _checked(self, printed: _ExecCredential) -> Credential:
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
        expires = status.expiration_timestamp
        return Credential(
            status.token or "",
            (certificate or "").encode(),
            (key or "").encode(),
            times.parse(expires) if expires else None,
        )

    def _failed(self, problem: str) -> PluginFailed:
        return PluginFailed(f"no credentials: plugin {self._plugin.command!r} {problem}")


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """All of a pipe up to the bound; the rest is read too, lest the writer hangs."""
    content = bytearray()
    while stream is not None and (piece := await stream.read(65536)):
        content += piece[: MAX_OUTPUT_BYTES - len(content)]
    return bytes(content)


async def _end(process: asyncio.subprocess.Process, *, is_group: bool) -> None:
    """Leave nothing running, whatever the plugin has started."""
    with suppress(ProcessLookupError):
        if is_group:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    # Its pipes first: where a child of the plugin has left the group and holds
    # them open, there would be no end to wait for.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - the only way
    await process.wait()
