# SPDX-License-Identifier: Apache-2.0
"""Sends what the generators make to a real server, and judges the answers.

Every case is made from the run's seed and the case's number alone, so that one
can be made again without those before it. A server must answer all of them
with less than 500, and refuse with a Status. The server must answer soon, stay
alive, write no traceback and not grow.
"""

import http.client
import json
import ssl
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.e2e import cluster
from tests.fuzz import requests, wire

# A request is answered in milliseconds; this is for a machine that is busy.
ANSWER_SECONDS = 10.0

# What is no request may be taken for the beginning of one, and waited for.
DOUBT_SECONDS = 0.2

# What a server may grow by after some of all cases: caches fill,
# and memory that is freed does not all go back to the system.
GROWTH_BYTES = 96 * 1024 * 1024
WARM_UP = 500

# Of the answers with 500 or more, those that Kubernetes gives to the same
# request: 500 without a reason is what the server makes of an error of the client's
# without a known cause, and Refloat does the same. A bug has a reason.
OWN_REASONS: dict[int, set[str | None]] = {500: {None}, 501: {"NotImplemented"}, 504: {"Timeout"}}

# Answers that are no Status in Kubernetes either.
PLAIN = (b"404 page not found\n", b"")


# Warnings are headers, and Kubernetes sends more of them than this library reads.
http.client._MAXHEADERS = 1000  # type: ignore[attr-defined]


class WrongAnswer(AssertionError):
    """What a server must not do."""


@dataclass
class FuzzReport:
    """What a run has seen."""

    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    rss: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        sizes = "→".join(f"{size // 2**20} MiB" for size in self.rss)
        return f"{self.cases} cases  {codes}  {sizes}"


class Fuzzer:
    """One run against one server."""

    def __init__(self, server: cluster.ServerProcess, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._api = cluster.Api(server.kubeconfig)
        self._connection: ssl.SSLSocket | None = None
        self.report = FuzzReport()

    def prepare(self) -> None:
        """Make the namespace that most requests are for."""
        meta = {"name": requests.NAMESPACE}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        self._api.ask("POST", "/api/v1/namespaces", body)

    def run(self, first: int, *, count: int | None = None, seconds: float | None = None) -> None:
        """Send cases from this number on, until there were so many or the time is over."""
        deadline = None if seconds is None else time.monotonic() + seconds
        number = first
        while count is None or number < first + count:
            if deadline is not None and time.monotonic() >= deadline:
                break
            self.one(number)
            number += 1
            if (number - first) % WARM_UP == 0:
                self.check_server()
        self.check_server()

    def case(self, number: int) -> tuple[str, bytes]:
        """The bytes of the case with this number, and the kind of the case."""
        random = Random(f"{self._seed}/{number}")
        kind = random.choices(("request", "malformed", "half"), (90, 7, 3))[0]
        make = {"request": requests.request, "malformed": wire.malformed, "half": wire.half}[kind]
        return kind, make(random, self._api.token)

    def one(self, number: int) -> None:
        """Send one case and check the answer; raises with the replay command."""
        kind, raw = self.case(number)
        self.report.cases += 1
        try:
            getattr(self, f"_{kind}")(raw)
        except (WrongAnswer, OSError, http.client.HTTPException) as error:
            self._drop()
            replay = f"python -m tests.fuzz --seed {self._seed} --only {number}"
            request = raw[:2000].replace(self._api.token.encode(), b"TOKEN")
            why = f"{type(error).__name__}: {error}"
            raise WrongAnswer(f"{why}\nreplay: {replay}\nsent: {request!r}") from error

    # -- kinds of cases --------------------------------------------------

    def _request(self, raw: bytes) -> None:
        sock = self._connection or self._connect()
        self._connection = sock
        try:
            sock.sendall(raw)
            self._judge(sock, raw)
        except (ConnectionError, ssl.SSLError, http.client.RemoteDisconnected) as error:
            raise WrongAnswer(f"the connection ended without an answer: {error}") from error

    def _malformed(self, raw: bytes) -> None:
        sock = self._connect()
        sock.settimeout(DOUBT_SECONDS)
        try:
            sock.sendall(raw)
            self._judge(sock, raw)
        except (TimeoutError, ConnectionError, ssl.SSLError):
            pass  # the server waits for more, or has ended the connection
        except http.client.RemoteDisconnected:
            pass
        finally:
            sock.close()

    def _half(self, raw: bytes) -> None:
        sock = self._connect()
        sock.sendall(raw)
        sock.close()

    # -- judging ---------------------------------------------------------

    def _judge(self, sock: ssl.SSLSocket, raw: bytes) -> None:
        method = raw.partition(b" ")[0].decode("latin-1")
        answer = http.client.HTTPResponse(sock, method=method)
        started = time.monotonic()
        try:
            answer.begin()
            body = answer.read()
        finally:
            answer.close()
        if time.monotonic() - started > ANSWER_SECONDS:
            raise WrongAnswer(f"answered after {time.monotonic() - started:.1f} s")
        self.report.codes[answer.status] += 1
        if answer.will_close:
            self._drop()
        check(answer.status, answer.headers.get("Content-Type", ""), body, method)

    def check_server(self) -> None:
        """Is the server alive, silent and no larger than before?"""
        if self._api.ask("GET", "/readyz").text != "ok":
            raise WrongAnswer("the server is not ready")
        complaints = self._server.errors()
        if "Traceback" in complaints:
            raise WrongAnswer(f"the server wrote:\n{complaints[-4000:]}")
        self.report.rss.append(_rss(self._server.process.pid))
        if self.report.rss[-1] - self.report.rss[0] > GROWTH_BYTES:
            raise WrongAnswer(f"the server grows: {self.report}")

    def _connect(self) -> ssl.SSLSocket:
        sock = self._api.connect()
        sock.settimeout(ANSWER_SECONDS)
        return sock

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._drop()


def check(status: int, media: str, body: bytes, method: str) -> None:
    """Is this an answer that a client can do something with?"""
    if status < 400 or method == "HEAD" or (status < 500 and body in PLAIN):
        return
    text = body.decode("utf-8", "replace")
    answer = _status(media, body)
    if (answer.get("kind"), answer.get("code")) != ("Status", status):
        raise WrongAnswer(f"{status} without a Status, as {media}: {text[:500]}")
    if status >= 500 and answer.get("reason") not in OWN_REASONS.get(status, set()):
        raise WrongAnswer(f"{status}: {text[:2000]}")


def _status(media: str, body: bytes) -> dict[str, Any]:
    """An answer as a mapping; empty for any other answer."""
    answer = None
    if media.startswith("application/json"):
        answer = json.loads(body)
    elif media == "application/yaml":
        answer = yaml.safe_load(body)
    return answer if isinstance(answer, dict) else {}


def _rss(pid: int) -> int:
    """The memory that a process has, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such process")
