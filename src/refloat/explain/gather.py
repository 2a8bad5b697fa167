# SPDX-License-Identifier: Apache-2.0
"""Asks a cluster for what an explanation is made of.

What the asker may not read is left out: an explanation with less in it is
better than none.
"""

from typing import TypeVar

from refloat.api import names
from refloat.api.core import Node, Pod
from refloat.api.events import Event
from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.base.errors import UsageError
from refloat.client import errors, kinds
from refloat.client.contract import EVERYTHING, Client, Kind, Selector
from refloat.config import announced
from refloat.config.load import Configuration
from refloat.explain import node as nodes
from refloat.explain import pod as pods
from refloat.explain.account import Account
from refloat.explain.surroundings import USUAL, Surroundings

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

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

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

    async def _pod(self, name: str, namespace: str) -> Account:
        pod = await self._client.get(kinds.PODS, name, namespace=namespace)
        node, hidden = await self._host(pod)
        configuration, where = await self._configuration()
        around = Surroundings(
            now=self._clock.now(),
            configuration=configuration,
            announced_in=where,
            node=node,
            node_hidden=hidden,
            namespaces=await self._labels([pod]),
            events=await self._events(pod, namespace),
            of_node=[] if node is None else await self._events(node, ""),
        )
        return pods.explain(pod, around)

    async def _node(self, name: str) -> Account:
        node = await self._client.get(kinds.NODES, name)
        there = await self._all(kinds.PODS, Selector(fields=f"spec.nodeName={name}"))
        configuration, where = await self._configuration()
        around = Surroundings(
            now=self._clock.now(),
            configuration=configuration,
            announced_in=where,
            node=node,
            pods=there,
            namespaces=await self._labels(there),
            events=await self._events(node, ""),
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

    async def _labels(self, there: list[Pod]) -> dict[str, dict[str, str]]:
        found = {}
        for name in dict.fromkeys(pod.metadata.namespace for pod in there):
            try:
                namespace = await self._client.get(kinds.NAMESPACES, name)
            except (errors.NotFound, errors.Forbidden):
                continue
            found[name] = dict(namespace.metadata.labels or {})
        return found

    async def _configuration(self) -> tuple[Configuration | None, list[str]]:
        """What the Refloat of this cluster says that it goes by, and where one says so.

        Any tenant can write such a ConfigMap: those of the usual namespaces come first.
        """
        chosen = Selector(
            labels=f"{announced.LABEL}={announced.IN_FORCE}",
            fields=f"metadata.name={announced.NAME}",
        )
        found = {
            each.metadata.namespace: configuration
            for each in await self._all(kinds.CONFIG_MAPS, chosen)
            if (configuration := announced.read(each.data)) is not None
        }
        where = sorted(found, key=_rank)
        return (found[where[0]] if where else None), where

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


def _rank(namespace: str) -> tuple[int, str]:
    return USUAL.index(namespace) if namespace in USUAL else len(USUAL), namespace


def _check_name(name: str, what: str) -> None:
    if wrong := names.path_segment(name):
        raise UsageError(f"{what}: a name {' and '.join(wrong)}")


def _kind_of(of: ApiObject) -> str:
    return "Node" if isinstance(of, Node) else "Pod"
