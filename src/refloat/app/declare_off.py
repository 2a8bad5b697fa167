# SPDX-License-Identifier: Apache-2.0
"""Declares a node of the embedded cluster off, so that its pods are force evicted (KEP-36).

The declaration must be true. Here the cluster itself ran the node, and sees that
neither agent nor containers run any more. Earlier, and while the node is Ready,
force eviction would refuse.
"""

import asyncio
from pathlib import Path

import msgspec

from refloat.api import structs
from refloat.app import control_socket
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.base.rand import Rand
from refloat.client import errors, kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.force_eviction import REQUEST_TAINT

SHOWN = f"{REQUEST_TAINT.key}={REQUEST_TAINT.value}:{REQUEST_TAINT.effect}"

# A shutdown takes less, and a node that stops without a report is lost after 50 s.
PATIENCE_SECONDS = 120.0

_POLL_SECONDS = 0.1


async def declare_off(data_dir: Path, node: str, clock: Clock, rand: Rand) -> None:
    """Wait until the node is off, and add the taint."""
    access = kubeconfig.find(data_dir / "kubeconfig")
    settings = ClientSettings(component="node", field_manager="refloat-node")
    client = HttpClient(access, clock=clock, rand=rand, settings=settings)
    try:
        async with clock.timeout(PATIENCE_SECONDS):
            while not await _is_off(data_dir, node):
                await clock.sleep(_POLL_SECONDS)
            while not await _has_taint(client, node):
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise RefloatError(
            f"node {node} is not off after {PATIENCE_SECONDS:g} s; when it is, run "
            f"`kubectl taint node {node} {SHOWN}`"
        ) from error
    finally:
        await client.close()


async def _is_off(data_dir: Path, node: str) -> bool:
    request = {"do": "look", "node": node}
    loop = asyncio.get_running_loop()
    answer = await loop.run_in_executor(None, control_socket.ask, data_dir, request)
    return bool(answer["off"])


async def _has_taint(client: HttpClient, name: str) -> bool:
    """Add the taint, once the node is not Ready; whether the node has it now."""
    node = await client.get(kinds.NODES, name)
    if structs.is_true(node.status.conditions, "Ready"):
        return False
    if not force_eviction.request_taints(node):
        meta, taints = node.metadata, (*(node.spec.taints or ()), REQUEST_TAINT)
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "spec": {"taints": msgspec.to_builtins(taints)},
        }
        try:
            await client.patch(kinds.NODES, name, patch)
        except errors.Conflict:
            return False
    return True
