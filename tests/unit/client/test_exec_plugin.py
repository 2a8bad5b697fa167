# SPDX-License-Identifier: Apache-2.0
"""What comes of credential plugins, good and bad ones."""

import asyncio
import base64
import json
import logging
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from refloat.base.clock import RealClock
from refloat.client import cluster_access, errors
from refloat.client.exec_plugin import Credential, ExecPlugin
from tests.clocks import ManualClock
from tests.unit.client.conftest import SETTINGS, script

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"

CLUSTER = cluster_access.ClusterEndpoint(
    "https://h:1",
    info={
        "server": "https://h:1",
        "tls-server-name": None,
        "insecure-skip-tls-verify": False,
        "certificate-authority-data": None,
        "proxy-url": "http://p",
        "config": {"a": 1},
    },
)


def printed(version: str = V1, **status: str) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status})


def plugin(command: str, clock: Any = None, version: str = V1, **how: Any) -> ExecPlugin:
    how.setdefault("interactive", "Never")
    config = cluster_access.Plugin(command, version, **how)
    return ExecPlugin(config, CLUSTER, clock or RealClock(), SETTINGS)


class TestGoodOnes:
    @pytest.mark.parametrize("version", [V1, V1BETA1])
    async def test_a_token_with_its_end(self, version: str, tmp_path: Path) -> None:
        output = printed(version, token="t", expirationTimestamp="2026-01-02T05:04:05+01:00")
        credential = await plugin(script(tmp_path, f"echo '{output}'"), version=version).run(b"")
        assert credential == Credential("t", expires=datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC))

    async def test_a_certificate_with_its_key(self, tmp_path: Path) -> None:
        output = printed(clientCertificateData="C", clientKeyData="K")
        credential = await plugin(script(tmp_path, f"echo '{output}'")).run(b"")
        assert credential == Credential(certificate=b"C", key=b"K")

    async def test_arguments_and_variables_reach_it(self, tmp_path: Path) -> None:
        output = printed(token="'$1-$EXTRA'")
        command = script(tmp_path, f"echo '{output}'")
        credential = await plugin(command, args=("a b",), env=(("EXTRA", "c"),)).run(b"")
        assert credential.token == "a b-c"

    async def test_it_is_told_what_is_expected_of_it(self, tmp_path: Path) -> None:
        info = await self._told(tmp_path)
        assert info == (
            '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
            '"spec":{"interactive":false}}'
        )

    async def test_it_is_told_its_cluster_if_it_asks(self, tmp_path: Path) -> None:
        info = json.loads(await self._told(tmp_path, wants_cluster=True))
        assert info["spec"] == {
            "cluster": {
                "server": "https://h:1",
                "certificate-authority-data": base64.b64encode(b"pem").decode(),
                "proxy-url": "http://p",
                "config": {"a": 1},
            },
            "interactive": False,
        }

    async def _told(self, tmp_path: Path, **how: Any) -> str:
        file = tmp_path / "seen"
        text = f"printf %s \"$KUBERNETES_EXEC_INFO\" > {file}; echo '{printed(token='t')}'"
        await plugin(script(tmp_path, text), **how).run(b"pem")
        return file.read_text()

    async def test_talk_on_stderr_is_logged_and_does_no_harm(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        # More than a pipe holds, before and after the answer.
        noise = "head -c 300000 /dev/zero | tr '\\0' x >&2"
        command = script(tmp_path, f"echo hear me >&2; echo '{printed(token='t')}'; {noise}")
        assert (await plugin(command).run(b"")).token == "t"
        assert "hear me" in caplog.text
        assert '"token"' not in caplog.text

    async def test_it_need_not_read_its_input(self, tmp_path: Path) -> None:
        command = script(tmp_path, f"cat; echo '{printed(token='t')}'")
        assert (await plugin(command).run(b"")).token == "t"


BAD: dict[str, tuple[str, str]] = {
    "ends with a code": ("exit 3", "ended with code 3"),
    "ends with a code and says why": ("echo no key >&2; exit 1", "ended with code 1: no key"),
    "prints nothing": ("true", "did not print an ExecCredential"),
    "prints no JSON": ("echo token=abc", "did not print an ExecCredential"),
    "prints something else": ("echo '{}'", "printed no apiVersion of no kind, expected"),
    "prints another version": (
        f"echo '{printed(V1BETA1, token='t')}'",
        f"printed {V1BETA1} ExecCredential, expected {V1} ExecCredential",
    ),
    "prints no status": (
        f'echo \'{{"kind": "ExecCredential", "apiVersion": "{V1}"}}\'',
        "printed no status",
    ),
    "prints an empty status": (f"echo '{printed()}'", "printed neither a token nor a certificate"),
    "prints half a pair": (
        f"echo '{printed(clientCertificateData='C')}'",
        "printed only one of certificate and key",
    ),
    "prints an end that is no time": (
        f"echo '{printed(token='t', expirationTimestamp='soon')}'",
        "did not print an ExecCredential",
    ),
    "prints without end": (
        "head -c 2000000 /dev/zero | tr '\\0' x",
        "did not print an ExecCredential",
    ),
}


class TestBadOnes:
    @pytest.mark.parametrize("name", BAD)
    async def test_it_is_told_what_it_did(self, name: str, tmp_path: Path) -> None:
        text, want = BAD[name]
        command = script(tmp_path, text)
        with pytest.raises(errors.Unauthorized) as error:
            await plugin(command).run(b"")
        assert f"no credentials: plugin {command!r} {want}" in str(error.value)

    @pytest.mark.parametrize(
        ("hint", "want"),
        [("", "No such file or directory"), ("get it", "No such file or directory; get it")],
    )
    async def test_one_that_is_not_there_is_told_with_its_hint(self, hint: str, want: str) -> None:
        with pytest.raises(errors.Unauthorized, match=f"cannot be run: {want}$"):
            await plugin("refloat-no-such-plugin", install_hint=hint).run(b"")

    async def test_one_that_wants_a_terminal_gets_none(self, tmp_path: Path) -> None:
        command = script(tmp_path, "exit 0")
        with pytest.raises(errors.Unauthorized, match="standard input is not a terminal"):
            await plugin(command, interactive="Always").run(b"")

    async def test_one_that_hangs_is_ended_with_all_that_it_started(self, tmp_path: Path) -> None:
        clock = ManualClock(jumps=True)
        fifo, pids = tmp_path / "fifo", tmp_path / "pids"
        os.mkfifo(fifo)
        text = f"sleep 1000 & echo $$ $! > {pids}; echo > {fifo}; wait"
        running = asyncio.ensure_future(plugin(script(tmp_path, text), clock).run(b""))
        await asyncio.to_thread(fifo.read_text)
        while not clock._timers:  # the plugin was faster than whoever started it
            await asyncio.sleep(0)
        await clock.advance(SETTINGS.plugin_seconds)
        with pytest.raises(errors.Unauthorized, match="gave no credentials within 60 s"):
            await running
        for pid in pids.read_text().split():
            while _is_running(int(pid)):  # the killed take a moment to die
                await asyncio.sleep(0)

    async def test_one_whose_child_holds_on_to_its_output_is_ended_too(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock(jumps=True)
        fifo, pid = tmp_path / "fifo", tmp_path / "pid"
        os.mkfifo(fifo)
        child = script(tmp_path, f"echo $$ > {pid}; echo > {fifo}; exec sleep 1000", "child")
        command = script(tmp_path, f"setsid {child} & exit 0")
        running = asyncio.ensure_future(plugin(command, clock).run(b""))
        await asyncio.to_thread(fifo.read_text)
        while not clock._timers:
            await asyncio.sleep(0)
        await clock.advance(SETTINGS.plugin_seconds)
        with pytest.raises(errors.Unauthorized, match="gave no credentials within 60 s"):
            await running
        os.kill(int(pid.read_text()), signal.SIGKILL)


def _is_running(pid: int) -> bool:
    """A process that was killed may still wait to be collected by its new parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
