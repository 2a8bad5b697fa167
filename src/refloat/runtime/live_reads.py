# SPDX-License-Identifier: Apache-2.0
"""Reads from the API server for controllers that must not act on a cache.

None stands for an object that does not exist. A refusal is noted as a missing right.
"""

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.client import errors, kinds
from refloat.client.contract import Client, Selector
from refloat.runtime.event_series import Reference
from refloat.runtime.missing_rights import Rights


async def get_node(client: Client, rights: Rights, name: str) -> Node | None:
    try:
        with rights.needed("get nodes", _reference(name)):
            return await client.get(kinds.NODES, name)
    except errors.NotFound:
        return None


async def get_lease(client: Client, rights: Rights, node: str) -> Lease | None:
    try:
        with rights.needed("get leases", _reference(node)):
            return await client.get(kinds.LEASES, node, namespace=NODE_NAMESPACE)
    except errors.NotFound:
        return None


async def list_pods(client: Client, rights: Rights, node: str) -> list[Pod]:
    """The pods bound to a node, of all namespaces."""
    pages = client.list(kinds.PODS, selector=Selector(fields=f"spec.nodeName={node}"))
    with rights.needed("list pods", _reference(node)):
        return [pod async for page in pages for pod in page.items]


def _reference(node: str) -> Reference:
    """Like a kubelet's reference to its node: the uid is not known before the read."""
    return Reference("v1", "Node", node, uid=node)


async def exists(client: Client, pod: Pod) -> bool:
    """Whether this pod still exists; another pod with its name does not count."""
    meta = pod.metadata
    try:
        current = await client.get(kinds.PODS, meta.name, namespace=meta.namespace)
    except errors.NotFound:
        return False
    return current.metadata.uid == meta.uid
