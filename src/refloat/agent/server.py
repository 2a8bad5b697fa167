# SPDX-License-Identifier: Apache-2.0
"""Serves logs to API servers, at the node's own address.

The paths, the answers and the errors are a kubelet's, so that any API server can use
them. Requests come over TLS, with a certificate of an authority that the node trusts.
The node answers only API servers and administrators. Errors are plain text.
"""

import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from refloat.agent import logs
from refloat.agent.logs import LogOptions, NoLog
from refloat.agent.runtime import Attempts
from refloat.api import times
from refloat.api.core import Pod
from refloat.api.fields import quote
from refloat.base.clock import Clock
from refloat.runtime.mini_http import Page, PageServer, Request

# Kubernetes' own groups of administrators, and the user names of API servers.
ADMINISTRATORS = ("system:masters", "kubeadm:cluster-admins")
API_SERVERS = ("kube-apiserver", "kube-apiserver-kubelet-client")

_FALSE = ("", "0", "false")


class Host(Protocol):
    """The pods and logs of the node."""

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def attempts(self, uid: str, container: str) -> Attempts | None: ...

    def log_file(self, uid: str, container: str, attempt: int) -> Path: ...


class _RequestError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NodeServer:
    """Serves one node until `close`."""

    def __init__(self, host: Host, *, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._pages = PageServer(self._handle, clock=clock)

    async def start(self, address: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        _, bound = await self._pages.start(address, port, tls)
        return bound

    async def close(self) -> None:
        await self._pages.close()

    async def _handle(self, request: Request) -> Page:
        """Answers API servers and administrators only."""
        try:
            if not request.certificate:
                raise _RequestError(401, "Unauthorized")
            fields = [each for part in request.certificate.get("subject", ()) for each in part]
            user = next((value for key, value in fields if key == "commonName"), "")
            groups = {value for key, value in fields if key == "organizationName"}
            if user not in API_SERVERS and not groups & set(ADMINISTRATORS):
                action = f"user={user}, verb=get, resource=nodes, subresource(s)=[proxy]"
                raise _RequestError(403, f"Forbidden ({action})")
            match request.path.strip("/").split("/"):
                case ["healthz"]:
                    return Page(b"ok")
                case ["containerLogs", namespace, name, container]:
                    return self._logs(request, namespace, name, container)
            raise _RequestError(404, "404: Page Not Found")
        except _RequestError as refusal:
            return Page(str(refusal).encode(), refusal.status)

    def _logs(self, request: Request, namespace: str, name: str, container: str) -> Page:
        options = self._options(request.query)
        pod = self._host.pod(namespace, name)
        if pod is None:
            raise _RequestError(404, f"pod {quote(name)} does not exist")
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if all(each.name != container for each in containers):
            raise _RequestError(404, f"container {quote(container)} not found in pod {quote(name)}")
        uid = pod.metadata.uid
        attempts = self._host.attempts(uid, container)
        try:
            number = logs.attempt(pod, attempts, container, previous=options.previous).attempt
        except NoLog as error:
            raise _RequestError(400, str(error)) from error
        path = self._host.log_file(uid, container, number)
        if not path.exists():
            raise _RequestError(400, f"unable to retrieve container logs for {container}")

        def is_running() -> bool:
            if not request.is_read():
                return False
            now = self._host.attempts(uid, container)
            return now is not None and now.current.attempt == number and not now.current.has_ended

        lines = logs.read(path, options, clock=self._clock, is_running=is_running)
        return Page(lines, media="text/plain")

    def _options(self, query: Mapping[str, str]) -> LogOptions:
        """The options of a query; raises a kubelet's errors."""
        try:
            since = times.parse(query["sinceTime"]) if "sinceTime" in query else None
            seconds = _number(query, "sinceSeconds")
            tail, limit = _number(query, "tailLines"), _number(query, "limitBytes")
        except ValueError as error:
            raise _RequestError(400, '{"message": "Unable to decode query."}') from error
        wrong = (seconds is not None and (seconds < 1 or since is not None), (tail or 0) < 0)
        if any(wrong) or (limit is not None and limit < 1):
            raise _RequestError(422, '{"message": "Invalid request."}')
        if seconds is not None:
            since = self._clock.now() - timedelta(seconds=seconds)
        return LogOptions(
            follow=_flag(query, "follow"),
            previous=_flag(query, "previous"),
            timestamps=_flag(query, "timestamps"),
            tail_lines=tail,
            since=since,
            limit_bytes=limit,
        )


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if name in query else None


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() not in _FALSE
