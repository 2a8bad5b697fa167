# SPDX-License-Identifier: Apache-2.0
"""A `refloat up` as a separate process, and two clients.

`ServerProcess` starts, ends and kills the process; `Api` speaks HTTP to the server without
any client library in between, so that a test sees what is on the wire;
`Kubectl` runs kubectl as a user does. Nothing here reaches into the server.
"""

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from tests.e2e import kubectl

REFLOAT = Path(sys.executable).parent / "refloat"

# A machine that is busy with other things may be this slow; nothing waits
# this long when all is well.
PATIENCE_SECONDS = 300.0

Object = dict[str, Any]


def free_port() -> int:
    """A port of the loopback on which no process listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a `refloat` command that is to end by itself."""
    return subprocess.run(
        [REFLOAT, *args], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


@dataclass(frozen=True)
class NodeCommands:
    """`refloat node` for the nodes of a data directory."""

    data_dir: Path

    def fail(self, name: str, fault: str) -> None:
        done = run("node", fault, name, "--data-dir", self.data_dir)
        assert done.returncode == 0, done.stderr

    def heal(self, name: str) -> None:
        self.fail(name, "heal")


class PipeLines:
    """The lines of a pipe, with a deadline for each."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._rest = b""

    def next(self) -> str:
        """The next line; empty at the end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._rest:
            timeout = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._stream], [], [], timeout)
            assert ready, f"no line within {PATIENCE_SECONDS:.0f} s; got {self._rest!r}"
            more = os.read(self._stream.fileno(), 65536)
            if not more:
                break
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


class ServerProcess:
    """A running `refloat up`."""

    def __init__(self, data_dir: Path, *flags: str, within: Sequence[str] = ()) -> None:
        """The API server alone, unless the flags start more.

        `within` is a command that runs the next command.
        """
        if "--nodes" not in flags:
            flags = (*flags, "--nodes", "0")
        if not {"--controllers", "--simulated-nodes"} & set(flags):
            flags = (*flags, "--controllers", "none")
        self.data_dir = data_dir
        self._errors = data_dir.with_name(f"{data_dir.name}.stderr")
        started = time.monotonic()
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*within, *self.command("up", "--data-dir", str(data_dir), *flags)],
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        try:
            self.banner = self._until_ready(PipeLines(self.process.stdout))
        except BaseException:
            self.kill()
            raise
        self.seconds_to_ready = time.monotonic() - started

    def command(self, *args: str) -> list[str]:
        """The command; a subclass may put another command before this one."""
        return [str(REFLOAT), *args]

    def _until_ready(self, lines: PipeLines) -> list[str]:
        banner: list[str] = []
        while not (banner and banner[-1].startswith("Ctrl-C")):
            banner.append(lines.next())
            if not banner[-1]:
                raise AssertionError(f"refloat up has ended: {self.errors()}")
        return banner

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    def errors(self) -> str:
        """All that was written to the standard error by servers of this directory."""
        return self._errors.read_text()

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Ask the server to stop; the exit code."""
        self.process.send_signal(by)
        code = self.process.wait(PATIENCE_SECONDS)
        self._close()
        return code

    def kill(self) -> None:
        """Kill the server with SIGKILL, if it still runs."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()

    def has_left_processes(self) -> bool:
        """Is there still a process of the server's session?"""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 0)
            return True
        return False


@contextlib.contextmanager
def serving(data_dir: Path, *flags: str, within: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """A server until the end of the block, however the block ends; checks the standard error."""
    server = ServerProcess(data_dir, *flags, within=within)
    try:
        yield server
    finally:
        server.kill()
        complaints = server.errors()
    assert "Traceback" not in complaints, complaints


@dataclass
class ApiAnswer:
    """What came back from one request."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def object(self) -> Object:
        obj: Object = json.loads(self.text)
        return obj


class OpenWatch:
    """An open watch: the events, one by one."""

    def __init__(self, connection: http.client.HTTPSConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status
        assert self.status == 200, self._response.read().decode()

    def next(self) -> tuple[str, Object]:
        """The next event's type and object; type and object are empty at the end."""
        line = self._response.readline()
        if not line:
            return "", {}
        event = json.loads(line)
        return event["type"], event["object"]

    def names(self, count: int) -> list[tuple[str, str]]:
        """The types and names of the next events."""
        events = [self.next() for _ in range(count)]
        return [(kind, obj["metadata"].get("name", "")) for kind, obj in events]

    def rest(self) -> list[tuple[str, Object]]:
        """All events until the server ends the stream."""
        return list(iter(self.next, ("", {})))

    def close(self) -> None:
        self._response.close()
        self._connection.close()


@dataclass
class Api:
    """HTTP with the credentials of a kubeconfig."""

    kubeconfig: Path
    _host: str = field(init=False)
    _context: ssl.SSLContext = field(init=False)
    token: str = field(init=False)

    def __post_init__(self) -> None:
        document = yaml.safe_load(self.kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._host = urllib.parse.urlsplit(cluster["server"]).netloc
        self.token = document["users"][0]["user"]["token"]
        self._context = ssl.create_default_context()
        if authority := cluster.get("certificate-authority-data"):
            self._context.load_verify_locations(cadata=b64decode(authority).decode())
        else:  # a cluster that is not ours may have none
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE

    def connect(self) -> ssl.SSLSocket:
        """A connection to send bytes through that need not be HTTP."""
        host, _, port = self._host.rpartition(":")
        plain = socket.create_connection((host.strip("[]"), int(port)), PATIENCE_SECONDS)
        return self._context.wrap_socket(plain, server_hostname=host.strip("[]"))

    def connection(self) -> http.client.HTTPSConnection:
        """A connection for requests; the caller adds the token."""
        return http.client.HTTPSConnection(
            self._host, context=self._context, timeout=PATIENCE_SECONDS
        )

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiAnswer:
        """One request on a separate connection, with any answer."""
        connection = self._send(method, path, body, content_type, accept)
        try:
            response = connection.getresponse()
            return ApiAnswer(response.status, response.headers, response.read().decode())
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, body: object, content_type: str, accept: str
    ) -> http.client.HTTPSConnection:
        connection = self.connection()
        headers = {"Accept": accept}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = content_type
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, payload, headers)
        return connection

    def done(self, method: str, path: str, body: object = None, **how: str) -> Object:
        """One request that must succeed."""
        answer = self.ask(method, path, body, **how)
        assert 200 <= answer.status < 300, answer.text
        return answer.object

    def get(self, path: str) -> Object:
        return self.done("GET", path)

    def create(self, path: str, obj: Object) -> Object:
        return self.done("POST", path, obj)

    def patch(self, path: str, patch: Object) -> Object:
        return self.done("PATCH", path, patch, content_type="application/merge-patch+json")

    @contextlib.contextmanager
    def watch(
        self, path: str, *, accept: str = "application/json", **query: object
    ) -> Iterator[OpenWatch]:
        """A watch of a collection until the end of the block."""
        text = urllib.parse.urlencode({"watch": "true", **query})
        stream = OpenWatch(self._send("GET", f"{path}?{text}", None, "", accept))
        try:
            yield stream
        finally:
            stream.close()


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig, a home and a namespace for one test."""

    kubeconfig: Path
    home: Path
    namespace: str = "default"

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [str(kubectl.path()), "--namespace", self.namespace, *args]

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
        }

    def run(
        self, *args: str, stdin: object = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl to the end; an object as input becomes JSON."""
        return subprocess.run(
            self._command(args),
            input=json.dumps(stdin) if stdin is not None else "",
            capture_output=True,
            text=True,
            env={**self._environment, **environment},
            timeout=PATIENCE_SECONDS,
        )

    def __call__(self, *args: str, stdin: object = None) -> str:
        """The standard output of a kubectl that must succeed."""
        done = self.run(*args, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}{done.stdout}"
        return done.stdout

    def refused(self, *args: str, stdin: object = None) -> str:
        """The standard error of a kubectl that must fail."""
        done = self.run(*args, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(args)} went well: {done.stdout}"
        return done.stderr

    def object(self, *args: str) -> Object:
        """The object that kubectl prints with `-o json`."""
        obj: Object = json.loads(self(*args, "-o", "json"))
        return obj

    @contextlib.contextmanager
    def started(self, *args: str) -> Iterator[PipeLines]:
        """A kubectl that runs until the end of the block: the printed lines."""
        with self.process(*args) as process:
            assert process.stdout is not None
            yield PipeLines(process.stdout)

    @contextlib.contextmanager
    def process(self, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            self._command(args), stdout=subprocess.PIPE, env=self._environment
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
