# SPDX-License-Identifier: Apache-2.0
"""Says of a node of the embedded cluster that it is off, so that it is force evicted (KEP-36).

Whoever says so must know it: here the cluster itself ran the node, and sees
that nothing of it runs any more. Before that, and while the node is Ready,
force eviction would refuse.
"""

import asyncio
from pathlib import Path

import msgspec

from refloat.api import structs
from refloat.api.core import Node
from refloat.app import control
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.base.rand import Rand
from refloat.client import errors, kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import Settings
from refloat.policy import force_eviction
from refloat.policy.force_eviction import WISH

SHOWN = f"{WISH.key}={WISH.value}:{WISH.effect}"

# A shutdown is over in less; and a node that did not say that it goes is lost after 50 s.
PATIENCE_SECONDS = 120.0

_POLL_SECONDS = 0.1


async def say_that_it_is_off(data_dir: Path, node: str, clock: Clock, rand: Rand) -> None:
    """Wait until it is, and taint it."""
    access = kubeconfig.find(data_dir / "kubeconfig")
    settings = Settings(component="node", field_manager="refloat-node")
    client = HttpClient(access, clock=clock, rand=rand, settings=settings)
    try:
        async with clock.timeout(PATIENCE_SECONDS):
            while not await _is_off(data_dir, node):
                await clock.sleep(_POLL_SECONDS)
            while not await _tainted(client, node):
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise RefloatError(
            f"node {node} is not off after {PATIENCE_SECONDS:g} s; when it is, say so with "
            f"`kubectl taint node {node} {SHOWN}`"
        ) from error
    finally:
        await client.close()


async def _is_off(data_dir: Path, node: str) -> bool:
    ask = asyncio.get_running_loop().run_in_executor
    told = await ask(None, control.ask, data_dir, {"do": "look", "node": node})
    return bool(told["off"])


async def _tainted(client: HttpClient, name: str) -> bool:
    """Whether it has the taint now; not before it is not Ready."""
    node = await client.get(kinds.NODES, name)
    if structs.is_true(node.status.conditions, "Ready"):
        return False
    if not force_eviction.wishes(node):
        try:
            await _taint(client, node)
        except errors.Conflict:
            return False
    return True


async def _taint(client: HttpClient, node: Node) -> None:
    meta = node.metadata
    taints = (*(node.spec.taints or ()), WISH)
    patch = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "spec": {"taints": msgspec.to_builtins(taints)},
    }
    await client.patch(kinds.NODES, meta.name, patch)
