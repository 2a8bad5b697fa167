# SPDX-License-Identifier: Apache-2.0
"""Calls, answers, and servers that are asked the same at the same time."""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import cluster

# Warnings are headers, and Kubernetes sends more of them than this library reads.
http.client._MAXHEADERS = 1000  # type: ignore[attr-defined]

# The name of the caller on both servers. The name becomes the field manager.
AGENT = "differential/1"

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Raw:
    """A body that is sent unchanged."""

    text: str


@dataclass(frozen=True)
class ApiCall:
    """One request, without a server."""

    method: str
    path: str
    body: Any = None
    media: str = "application/json"
    accept: str = "application/json"

    def __str__(self) -> str:
        kind = "" if self.body is None else f" [{self.media}] {_text(self.body)}"
        accept = "" if self.accept == "application/json" else f" Accept: {self.accept}"
        return f"{self.method} {self.path}{accept}{kind}"


def _text(body: Any) -> str:
    return body.text if isinstance(body, Raw) else json.dumps(body)


@dataclass(frozen=True)
class ComparedAnswer:
    """What a client sees of an answer."""

    status: int
    body: Any
    warnings: tuple[str, ...] = ()
    retry_after: str | None = None
    media: str = ""

    @property
    def found(self) -> dict[str, Any] | None:
        """The object, where the answer is one."""
        return self.body if self.status < 300 and isinstance(self.body, dict) else None


# Kubernetes ends the connection where that code has panicked.
NO_ANSWER = ComparedAnswer(0, "the connection was closed without an answer")


@dataclass(frozen=True)
class CallPair:
    """The same call to both; two, as uids and resourceVersions are each server's own."""

    left: ApiCall
    right: ApiCall

    @classmethod
    def same(cls, call: ApiCall) -> "CallPair":
        return cls(call, call)


class ComparedServer:
    """A server on one connection that is kept."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        self._api = cluster.Api(kubeconfig)
        self._connection: http.client.HTTPSConnection | None = None

    def ask(self, call: ApiCall) -> ComparedAnswer:
        """One answer; once more where the server had closed the kept connection."""
        if self._connection is not None:
            try:
                return self._ask(self._connection, call)
            except (ConnectionError, ssl.SSLError):  # also RemoteDisconnected
                self.close()
        self._connection = self._api.connection()
        try:
            return self._ask(self._connection, call)
        except http.client.RemoteDisconnected:
            self.close()
            return NO_ANSWER

    def follow(self, call: ApiCall, is_last: Callable[[Any], bool]) -> ComparedAnswer:
        """The events of a watch, up to the one that is awaited."""
        connection = self._api.connection()
        try:
            response = self._request(connection, call)
            if response.status != 200:
                return _answer(response, response.read())
            return ComparedAnswer(200, list(_events(response, is_last)))
        finally:
            connection.close()

    def _ask(self, connection: http.client.HTTPSConnection, call: ApiCall) -> ComparedAnswer:
        response = self._request(connection, call)
        return _answer(response, response.read())

    def _request(
        self, connection: http.client.HTTPSConnection, call: ApiCall
    ) -> http.client.HTTPResponse:
        headers = {
            "Accept": call.accept,
            "Authorization": f"Bearer {self._api.token}",
            "User-Agent": AGENT,
        }
        if call.body is not None and call.media:
            headers["Content-Type"] = call.media
        payload = None if call.body is None else _text(call.body).encode()
        connection.request(call.method, call.path, payload, headers)
        return connection.getresponse()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _answer(response: http.client.HTTPResponse, body: bytes) -> ComparedAnswer:
    media = response.headers.get("Content-Type") or ""
    return ComparedAnswer(
        response.status,
        _decoded(body.decode(), media),
        tuple(response.headers.get_all("Warning") or ()),
        response.headers.get("Retry-After"),
        media,
    )


def _events(response: http.client.HTTPResponse, is_last: Callable[[Any], bool]) -> Iterator[Any]:
    for line in response:
        event = json.loads(line)
        yield event
        if is_last(event):
            return


def _decoded(text: str, media: str) -> Any:
    if media == "application/yaml":
        return yaml.load(text, yaml.CSafeLoader)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class ServerPair:
    """Two servers that are asked at the same time."""

    def __init__(self, left: ComparedServer, right: ComparedServer) -> None:
        self.left = left
        self.right = right
        self._other = ThreadPoolExecutor(1)

    def ask(self, step: CallPair) -> tuple[ComparedAnswer, ComparedAnswer]:
        left = self._other.submit(self.left.ask, step.left)
        right = self.right.ask(step.right)
        return left.result(), right

    def follow(
        self, step: CallPair, is_last: Callable[[Any], bool]
    ) -> tuple[ComparedAnswer, ComparedAnswer]:
        left = self._other.submit(self.left.follow, step.left, is_last)
        right = self.right.follow(step.right, is_last)
        return left.result(), right

    def both(self, call: ApiCall) -> tuple[ComparedAnswer, ComparedAnswer]:
        return self.ask(CallPair.same(call))

    def close(self) -> None:
        self._other.shutdown()
        self.left.close()
        self.right.close()
