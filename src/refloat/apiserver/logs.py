# SPDX-License-Identifier: Apache-2.0
"""`pods/log`: the server forwards the request to the pod's node, and the answer back.

The server checks the request, in Kubernetes' order and words; the node checks the
container. The server connects over TLS with a client certificate of its own, and
keeps nothing.
"""

import contextlib
import ssl
from collections.abc import Mapping
from urllib.parse import urlencode

from aiohttp import web

from refloat.api import errors, fields, kinds, times
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.apiserver import options, storage_codec
from refloat.apiserver.http_request import Exchange
from refloat.apiserver.registry import Registry
from refloat.apiserver.routes import Target
from refloat.base.clock import Clock
from refloat.client.credentials import Identity
from refloat.client.request_sender import RequestSender
from refloat.client.requests import Request

TEXT = "text/plain"

# A node of this machine or network answers at once, or not at all.
CONNECT_SECONDS = 10.0

# Of a log, for a client that reads slowly; then the node has to wait.
HELD_BYTES = 128 * 1024

# Of the body of a node's error; Kubernetes reads as much.
MAX_REFUSAL = 50_000

# The server can rarely resolve a node's name, so the addresses come first.
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")

_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")

_NODES = kinds.of("nodes")

_LATER = "asked us to try again later"
_ALLOTTED = "the time allotted, but may still be processing the request"
_UNTOLD = "the status code %d but did not return more information"
_PREVENTED = "prevented the request from succeeding"

# The reason and the message of an error, by the node's status code.
_REFUSALS = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", ""),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("Conflict", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", f"the server has received too many requests and has {_LATER}"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", f"the server was unable to return a response in {_ALLOTTED}"),
}


class Logs:
    """Fetches logs from nodes."""

    def __init__(self, objects: Registry, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._registry = objects
        self._clock = clock
        if tls is None:  # like a kube-apiserver without a CA for kubelets, accept any certificate
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._tls = tls

    async def serve(self, exchange: Exchange, target: Target) -> web.StreamResponse:
        query = exchange.query
        numbers = {name: options.integer(query[name]) for name in _NUMBERS if name in query}
        since = _time(query["sinceTime"]) if "sinceTime" in query else None
        if mistakes := _mistakes(numbers, since, query.get("stream")):
            raise errors.invalid("", "PodLogOptions", target.name, mistakes)
        entry = self._registry.get(target.resource, target.namespace, target.name)
        pod = storage_codec.unpack(target.resource, entry)
        container = _container(pod, query.get("container", ""))
        node = pod["spec"].get("nodeName")
        if not node:
            return exchange.answer(b"", status=204, media=TEXT)
        host, port = self._address(node)
        path = f"/containerLogs/{target.namespace}/{target.name}/{container}"
        parameters = {name: "true" for name in _FLAGS if options.flag(query, name)}
        parameters |= {name: str(number) for name, number in numbers.items()}
        parameters |= {"sinceTime": since} if since is not None else {}
        if parameters:
            path += f"?{urlencode(sorted(parameters.items()))}"
        return await self._fetch(exchange, target, (host, port), path)

    def _address(self, name: str) -> tuple[str, int]:
        try:
            node = storage_codec.unpack(_NODES, self._registry.get(_NODES, "", name))
        except errors.StatusError as error:
            if error.code != 404:
                raise
            raise errors.not_found("", "pods", name) from error
        return _address(node)

    async def _fetch(
        self, exchange: Exchange, target: Target, where: tuple[str, int], path: str
    ) -> web.StreamResponse:
        host, port = where
        address = f"[{host}]" if ":" in host else host
        url = f"https://{address}:{port}{path}"
        sender = RequestSender(
            f"https://{address}:{port}",
            tls=lambda _: self._tls,
            clock=self._clock,
            user_agent="refloat-apiserver",
            connect_seconds=CONNECT_SECONDS,
        )
        try:
            answer = await sender.stream(Request("GET", path, accept="*/*"), Identity())
        except OSError as error:
            raise _unreachable(url, f"{address}:{port}", error) from error
        answer.max_held_bytes = HELD_BYTES
        with contextlib.closing(answer):
            if not 200 <= (answer.status or 0) <= 206:
                body = await answer.read()
                text = body[:MAX_REFUSAL].decode(errors="replace")
                raise _refused(answer.status or 0, target.name, text)
            response = await exchange.stream(TEXT)
            while True:
                try:
                    part = await answer.read()
                except OSError as error:
                    # This ends the client's answer unfinished.
                    raise ConnectionAbortedError("the node broke off its answer") from error
                if not part:
                    break
                await response.write(part)
            await response.write_eof()
            return response


def _time(text: str) -> str | None:
    try:
        return times.normalize(text)
    except times.TimeError as error:
        raise errors.bad_request(str(error)) from error


def _mistakes(
    numbers: Mapping[str, int], since: str | None, stream: str | None
) -> list[FieldError]:
    mistakes = []
    if (tail := numbers.get("tailLines")) is not None and tail < 0:
        mistakes.append(fields.invalid("tailLines", tail, "must be greater than or equal to 0"))
    if (limit := numbers.get("limitBytes")) is not None and limit < 1:
        mistakes.append(fields.invalid("limitBytes", limit, "must be greater than 0"))
    seconds = numbers.get("sinceSeconds")
    if seconds is not None and since is not None:
        text = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        mistakes.append(fields.forbidden("[]", text))
    elif seconds is not None and seconds < 1:
        mistakes.append(fields.invalid("sinceSeconds", seconds, "must be greater than 0"))
    if stream is not None:
        mistakes.append(fields.forbidden("stream", "may not be specified"))
    return mistakes


def _container(pod: Object, container: str) -> str:
    """The container of the log; raises 400 for an unknown or ambiguous one."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    kinds_of = ("initContainers", "containers", "ephemeralContainers")
    every = [each["name"] for kind in kinds_of for each in spec.get(kind) or ()]
    if container:
        if container not in every:
            raise errors.bad_request(f"container {container} is not valid for pod {name}")
        return container
    if len(spec["containers"]) == 1:
        only: str = spec["containers"][0]["name"]
        return only
    text = f"a container name must be specified for pod {name}, choose one of: "
    raise errors.bad_request(f"{text}[{' '.join(every)}]")


def _address(node: Object) -> tuple[str, int]:
    """The node's address and port; raises 500 without an address, 501 without a port."""
    status = node.get("status") or {}
    addresses = status.get("addresses") or ()
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    for kind in _ADDRESS_TYPES:
        for each in addresses:
            if each["type"] == kind:
                if not endpoint.get("Port"):
                    subject = f"node {fields.quote(node['metadata']['name'])}"
                    text = f"{subject} has no logs: it serves none, as simulated nodes do not"
                    raise errors.not_implemented(text)
                return each["address"], endpoint["Port"]
    texts = " ".join(f"{{{each['type']} {each['address']}}}" for each in addresses)
    raise errors.StatusError(500, "", f"no preferred addresses found; known addresses: [{texts}]")


def _unreachable(url: str, where: str, error: Exception) -> errors.StatusError:
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(cause, TimeoutError):
        why = f"dial tcp {where}: i/o timeout"
    elif isinstance(cause, ConnectionRefusedError):
        why = f"dial tcp {where}: connect: connection refused"
    else:
        why = f"dial tcp {where}: {cause}"
    return errors.StatusError(500, "", f'Get "{url}": {why}')


def _refused(code: int, pod: str, body: str) -> errors.StatusError:
    """The error for the client, from the node's."""
    if code == 400:
        return errors.bad_request(body)
    if code == 500:
        return errors.internal(body)
    reason, text = _REFUSALS.get(code, ("", f"the server responded with {_UNTOLD % code}"))
    if code == 403:
        text = body
    elif code > 500 and not reason:
        reason = "InternalError"
        text = f"an error on the server ({fields.quote(body)}) has {_PREVENTED}"
    details = {"name": pod, "kind": "pods/log"}
    return errors.StatusError(code, reason, f"{text} ( pods/log {pod})", details=details)
