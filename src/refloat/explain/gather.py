# SPDX-License-Identifier: Apache-2.0
"""Asks a cluster for what an explanation is made of.

What the asker may not read is left out: an explanation with less in it is
better than none.
"""

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from refloat.api import names, self_fence
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Node, Pod
from refloat.api.events import Event
from refloat.api.self_fence import Promise
from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.base.errors import UsageError
from refloat.client import errors, kinds
from refloat.client.contract import EVERYTHING, Client, Kind, Selector
from refloat.config import actors as records_of
from refloat.config.actors import FAILURE_RECOVERY, FORCE_EVICTION
from refloat.explain import node as nodes
from refloat.explain import pod as pods
from refloat.explain.account import Account
from refloat.explain.actors import Actors
from refloat.explain.surroundings import Surroundings

T = TypeVar("T", bound=ApiObject)

_KINDS = {
    "po": "pod",
    "pod": "pod",
    "pods": "pod",
    "no": "node",
    "node": "node",
    "nodes": "node",
}


class Asker:
    """Explains objects of one cluster."""

    def __init__(
        self, client: Client, clock: Clock, server_now: Callable[[], datetime | None] | None = None
    ) -> None:
        """`server_now` is the time of the API server, where it is known."""
        self._client = client
        self._clock = clock
        self._server_clock = server_now

    async def explain(self, what: str, namespace: str) -> Account:
        """`pod/NAME` or `node/NAME`; raises what `client.errors` has if it is not there."""
        kind, slash, name = what.partition("/")
        if kind.lower() not in _KINDS or not (slash and name):
            raise UsageError(f"{what!r}: expected pod/NAME or node/NAME")
        _check_name(name, repr(what))
        _check_name(namespace, f"namespace {namespace!r}")
        if _KINDS[kind.lower()] == "node":
            return await self._node(name)
        return await self._pod(name, namespace)

    def _server_now(self) -> datetime:
        now = None if self._server_clock is None else self._server_clock()
        return now or self._clock.now()

    async def _pod(self, name: str, namespace: str) -> Account:
        pod = await self._client.get(kinds.PODS, name, namespace=namespace)
        node, hidden = await self._host(pod)
        actors = await self._actors()
        around = Surroundings(
            now=self._clock.now(),
            recovery=actors.outlook(FAILURE_RECOVERY, namespace),
            node=node,
            node_hidden=hidden,
            namespaces=await self._labels([pod]),
            events=await self._events(pod, namespace),
            of_node=[] if node is None else await self._events(node, ""),
            promises=await self._promises(pod.spec.node_name),
        )
        return pods.explain(pod, around)

    async def _node(self, name: str) -> Account:
        node = await self._client.get(kinds.NODES, name)
        there = await self._all(kinds.PODS, Selector(fields=f"spec.nodeName={name}"))
        actors = await self._actors()
        around = Surroundings(
            now=self._clock.now(),
            recovery=actors.outlook(FAILURE_RECOVERY),
            force_eviction=actors.outlook(FORCE_EVICTION),
            node=node,
            pods=there,
            namespaces=await self._labels(there),
            events=await self._events(node, ""),
            promises=await self._promises(name),
        )
        return nodes.explain(node, around)

    async def _host(self, pod: Pod) -> tuple[Node | None, bool]:
        """The pod's node, and whether it is hidden from the asker."""
        if not pod.spec.node_name:
            return None, False
        try:
            return await self._client.get(kinds.NODES, pod.spec.node_name), False
        except errors.NotFound:
            return None, False
        except errors.Forbidden:
            return None, True

    async def _promises(self, node: str) -> Mapping[str, Promise] | None:
        """The self-fenced pods that the Lease of a node lists; None if the Lease is hidden."""
        if not node:
            return {}
        try:
            lease = await self._client.get(kinds.LEASES, node, namespace=NODE_NAMESPACE)
        except errors.NotFound:
            return {}
        except errors.Forbidden:
            return None
        return self_fence.read_listed(lease)

    async def _labels(self, there: list[Pod]) -> dict[str, dict[str, str]]:
        found = {}
        for name in dict.fromkeys(pod.metadata.namespace for pod in there):
            try:
                namespace = await self._client.get(kinds.NAMESPACES, name)
            except (errors.NotFound, errors.Forbidden):
                continue
            found[name] = dict(namespace.metadata.labels or {})
        return found

    async def _actors(self) -> Actors:
        """The processes that reported, of the one namespace where tenants cannot write."""
        try:
            records = await self._client.get(
                kinds.CONFIG_MAPS, records_of.NAME, namespace=records_of.NAMESPACE
            )
            published = records_of.read(records.data)
        except errors.NotFound:
            published = []
        except errors.Forbidden:
            return Actors(self._server_now())
        leases = {}
        for controller, name in records_of.LEASES.items():
            with contextlib.suppress(errors.NotFound, errors.Forbidden):
                leases[controller] = await self._client.get(
                    kinds.LEASES, name, namespace=records_of.NAMESPACE
                )
        return Actors(self._server_now(), published, leases)

    async def _events(self, of: ApiObject, namespace: str) -> list[Event]:
        """By name, as events of nodes are told of uids that no Node ever had."""
        chosen = Selector(fields=f"regarding.name={of.metadata.name}")
        found = await self._all(kinds.EVENTS, chosen, namespace)
        return [each for each in found if each.regarding.kind == _kind_of(of)]

    async def _all(
        self, kind: Kind[T], selector: Selector = EVERYTHING, namespace: str = ""
    ) -> list[T]:
        try:
            pages = self._client.list(kind, selector=selector, namespace=namespace)
            return [each async for page in pages for each in page.items]
        except errors.Forbidden:
            return []


def _check_name(name: str, what: str) -> None:
    if wrong := names.path_segment(name):
        raise UsageError(f"{what}: a name {' and '.join(wrong)}")


def _kind_of(of: ApiObject) -> str:
    return "Node" if isinstance(of, Node) else "Pod"
