# SPDX-License-Identifier: Apache-2.0
"""Two nodes with a pod each, on a store in memory, behind a server without TLS.

Every object is named for a pod: `s-p1` is a secret that
pod `p1` names, and pod `p1` is bound to node `n1`.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver import ApiServer, bootstrap, identity
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.identity import Call, Identity
from refloat.apiserver.registry import Registry
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.store.memory import MemoryStore
from tests import servers

TOKENS: dict[str, Identity] = {
    "admin": identity.ADMIN,
    "readonly": identity.READ_ONLY,
    "n1": identity.node("n1"),
    "n2": identity.node("n2"),
    "nobody": Identity("nobody"),
}

MERGE = {"Content-Type": "application/merge-patch+json"}


def pod(name: str, node: str = "") -> Object:
    """A pod that names a claim, ConfigMaps and Secrets in every way there is."""
    bound = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name},
        "spec": {
            **bound,
            "serviceAccountName": f"sa-{name}",
            "imagePullSecrets": [{"name": f"pull-{name}"}],
            "containers": [_container("main", name)],
            "initContainers": [_container("before", f"init-{name}")],
            "volumes": _volumes(name),
        },
    }


def _container(name: str, suffix: str) -> Object:
    def key_of(what: str) -> Object:
        return {"name": f"env-{suffix}", "key": what}

    return {
        "name": name,
        "image": "registry.example/i",
        "envFrom": [
            {"configMapRef": {"name": f"from-{suffix}"}},
            {"secretRef": {"name": f"from-{suffix}"}},
        ],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": key_of("a")}},
            {"name": "B", "valueFrom": {"secretKeyRef": key_of("b")}},
            {"name": "C", "value": "c"},
        ],
    }


def _volumes(name: str) -> list[Object]:
    secret = {"secretRef": {"name": f"volume-{name}"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    sources: dict[str, Object] = {
        "configMap": {"name": f"cm-{name}"},
        "secret": {"secretName": f"s-{name}"},
        "persistentVolumeClaim": {"claimName": f"pvc-{name}"},
        "ephemeral": {"volumeClaimTemplate": {"spec": claim}},
        "projected": {
            "sources": [
                {"configMap": {"name": f"projected-{name}"}},
                {"secret": {"name": f"projected-{name}"}},
                {"downwardAPI": {}},
            ]
        },
        "csi": {"driver": "d", "nodePublishSecretRef": {"name": f"csi-{name}"}},
        "azureFile": {"secretName": f"azure-{name}", "shareName": "s"},
        "rbd": {"monitors": ["m"], "image": "i", **secret},
        "emptyDir": {},
    }
    return [{"name": source.lower(), source: volume} for source, volume in sources.items()]


@dataclass
class NodesApiAnswer:
    """What came back from one request."""

    status: int
    headers: Mapping[str, str]
    body: Any


class NodesApi:
    """Asks a server as one user or another."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tokens: Tokens) -> None:
        self._session = session
        self._url = url
        self.tokens = tokens

    async def ask(
        self,
        user: str,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    ) -> NodesApiAnswer:
        """As the user with this token; anonymous without one."""
        pairs = list(dict(headers).items()) if isinstance(headers, Mapping) else list(headers or ())
        if user and not any(name == "Authorization" for name, _ in pairs):
            pairs.append(("Authorization", f"Bearer {user}"))
        async with self._session.request(
            method, self._url + path, json=body, headers=pairs
        ) as response:
            is_json = response.content_type == "application/json"
            content = await response.json() if is_json else await response.text()
            return NodesApiAnswer(response.status, response.headers, content)


async def filled() -> MemoryStore:
    """A store with the nodes and their pods, and one pod that is bound to none."""
    store = MemoryStore()
    registry, clock = _registry(store), RealClock()
    await bootstrap.ensure(registry, clock)
    call = Call(identity.ADMIN, clock.now())
    nodes = kinds.of("nodes")
    for name in ("n1", "n2"):
        node = {"metadata": {"name": name}, "spec": {}, "status": {}}
        await registry.create(call, nodes, "", node)
    for name, node_name in (("p1", "n1"), ("p2", "n2"), ("p0", "")):
        await create_pod(store, pod(name, node_name))
    return store


async def create_pod(store: MemoryStore, obj: Object) -> None:
    registry, clock = _registry(store), RealClock()
    call = Call(identity.ADMIN, clock.now())
    pod = registry.decode(call, kinds.of("pods"), msgspec.json.encode(obj), "json")
    await registry.create(call, kinds.of("pods"), "default", pod)


def _registry(store: MemoryStore) -> Registry:
    return ApiServer(store, RealClock(), Rand(1), Gates()).registry


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[NodesApi]:
    """A server on such a store, until the end of the block."""
    tokens = Tokens(TOKENS)
    async with (
        servers.serving(store=await filled(), tokens=tokens) as server,
        aiohttp.ClientSession(headers={"User-Agent": "tests"}) as session,
    ):
        yield NodesApi(session, f"http://127.0.0.1:{server.port}", tokens)
