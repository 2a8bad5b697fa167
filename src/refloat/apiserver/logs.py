# SPDX-License-Identifier: Apache-2.0
"""`pods/log`: the request goes on to the node that has the log, and its answer comes back.

What is wrong with the request is said here, in Kubernetes' order and words;
what is wrong with the container, the node says. The node is asked over TLS with
the server's own client certificate. Nothing is kept.
"""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from multidict import MultiMapping
from yarl import URL

from refloat.api import errors, fields, kinds, times
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.apiserver import options, stored
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.registry import Registry
from refloat.apiserver.targets import Target

TEXT = "text/plain"

# A node of this machine or network answers at once or is not there.
CONNECT_SECONDS = 10.0

# Of a node's refusal; Kubernetes reads as much.
MAX_REFUSAL = 50_000

# By name a node can rarely be found from here, so its addresses come first.
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")

_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")

_NODES = kinds.of("nodes")

_LATER = "asked us to try again later"
_ALLOTTED = "the time allotted, but may still be processing the request"
_UNTOLD = "the status code %d but did not return more information"
_PREVENTED = "prevented the request from succeeding"

# The reason and the message of a refusal, by the code that the node gave it.
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

    def __init__(self, objects: Registry, tls: ssl.SSLContext | None) -> None:
        self._registry = objects
        self._tls = tls if tls is not None else _unverified()

    async def serve(self, exchange: Exchange, target: Target) -> web.StreamResponse:
        wish = _wish(exchange.query, target.name)
        entry = self._registry.get(target.resource, target.namespace, target.name)
        pod = stored.unpack(target.resource, entry)
        container = _container(pod, exchange.query.get("container", ""))
        node = pod["spec"].get("nodeName")
        if not node:
            return exchange.answer(b"", status=204, media=TEXT)
        host, port = self._address(node)
        path = f"/containerLogs/{target.namespace}/{target.name}/{container}"
        query = f"?{urlencode(sorted(wish.items()))}" if wish else ""
        return await self._fetch(exchange, target, (host, port), path + query)

    def _address(self, name: str) -> tuple[str, int]:
        try:
            node = stored.unpack(_NODES, self._registry.get(_NODES, "", name))
        except errors.StatusError as error:
            if error.code != 404:
                raise
            raise errors.not_found("", "pods", name) from error
        return _address(node)

    async def _fetch(
        self, exchange: Exchange, target: Target, where: tuple[str, int], path: str
    ) -> web.StreamResponse:
        host, port = where
        shown = f"[{host}]" if ":" in host else host
        url = f"https://{shown}:{port}{path}"
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=1, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            try:
                answer = await session.get(URL(url, encoded=True), allow_redirects=False)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise _unreachable(url, f"{shown}:{port}", error) from error
            async with answer:
                if not 200 <= answer.status <= 206:
                    body = await answer.content.read(MAX_REFUSAL)
                    raise _refused(answer.status, target.name, body.decode(errors="replace"))
                return await _relay(exchange, answer)


async def _relay(exchange: Exchange, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass on what comes, as it comes; a node that goes away ends the answer unfinished."""
    response = await exchange.stream(TEXT)
    try:
        async for part in answer.content.iter_any():
            await response.write(part)
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionAbortedError("the node broke off its answer") from error
    await response.write_eof()
    return response


def _unverified() -> ssl.SSLContext:
    """Any certificate will do, as it does for a kube-apiserver that is not told which."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _wish(query: MultiMapping[str], pod: str) -> dict[str, str]:
    """What the node is asked for; raises 400 and 422."""
    numbers = {name: options.integer(query[name]) for name in _NUMBERS if name in query}
    since = _time(query["sinceTime"]) if "sinceTime" in query else None
    mistakes = _mistakes(numbers, since, query.get("stream"))
    if mistakes:
        raise errors.invalid("", "PodLogOptions", pod, mistakes)
    wish = {name: "true" for name in _FLAGS if options.flag(query, name)}
    wish |= {name: str(number) for name, number in numbers.items()}
    return wish | ({"sinceTime": since} if since is not None else {})


def _time(text: str) -> str | None:
    try:
        return times.normalize(text)
    except times.TimeError as error:
        raise errors.bad_request(str(error)) from error


def _mistakes(
    numbers: Mapping[str, int], since: str | None, stream: str | None
) -> list[FieldError]:
    found = []
    if (tail := numbers.get("tailLines")) is not None and tail < 0:
        found.append(fields.invalid("tailLines", tail, "must be greater than or equal to 0"))
    if (limit := numbers.get("limitBytes")) is not None and limit < 1:
        found.append(fields.invalid("limitBytes", limit, "must be greater than 0"))
    seconds = numbers.get("sinceSeconds")
    if seconds is not None and since is not None:
        text = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        found.append(fields.forbidden("[]", text))
    elif seconds is not None and seconds < 1:
        found.append(fields.invalid("sinceSeconds", seconds, "must be greater than 0"))
    if stream is not None:
        found.append(fields.forbidden("stream", "may not be specified"))
    return found


def _container(pod: Object, wanted: str) -> str:
    """The container that is meant; raises 400 when that cannot be told."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    kinds_of = ("initContainers", "containers", "ephemeralContainers")
    every = [each["name"] for kind in kinds_of for each in spec.get(kind) or ()]
    if wanted:
        if wanted not in every:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(spec["containers"]) == 1:
        only: str = spec["containers"][0]["name"]
        return only
    text = f"a container name must be specified for pod {name}, choose one of: "
    raise errors.bad_request(f"{text}[{' '.join(every)}]")


def _address(node: Object) -> tuple[str, int]:
    """Where a node is asked; raises 500 when it did not say, 501 when it has nothing to ask."""
    status = node.get("status") or {}
    known = status.get("addresses") or ()
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    for kind in _ADDRESS_TYPES:
        for each in known:
            if each["type"] == kind:
                if not endpoint.get("Port"):
                    raise errors.not_implemented(_nothing(node))
                return each["address"], endpoint["Port"]
    told = " ".join(f"{{{each['type']} {each['address']}}}" for each in known)
    raise errors.StatusError(500, "", f"no preferred addresses found; known addresses: [{told}]")


def _nothing(node: Object) -> str:
    name = node["metadata"]["name"]
    return f"node {fields.quote(name)} has no logs: it serves none, as simulated nodes do not"


def _unreachable(url: str, where: str, error: Exception) -> errors.StatusError:
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        why = f"dial tcp {where}: i/o timeout"
    elif isinstance(cause, ConnectionRefusedError):
        why = f"dial tcp {where}: connect: connection refused"
    else:
        why = f"dial tcp {where}: {cause}"
    return errors.StatusError(500, "", f'Get "{url}": {why}')


def _refused(code: int, pod: str, body: str) -> errors.StatusError:
    """What a client is told of a node's refusal."""
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
