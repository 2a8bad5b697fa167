# SPDX-License-Identifier: Apache-2.0
"""Labels a pod with the zone and region of its node, for the pod's containers (KEP-4742).

`admission` does so for a new pod with a node's name, and `binding` when it binds a
pod. Later changes of the node's labels do not change its pods.
"""

from refloat.api import kinds
from refloat.apiserver import storage_codec
from refloat.store.contract import Store

_NODES = kinds.of("nodes")

LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")

# The prefix of both; a node without it needs no decoding.
_PREFIX = b'"topology.kubernetes.io/'


def of_node(store: Store, name: str) -> dict[str, str]:
    """The labels for a pod on this node; none if the node does not exist."""
    entry = store.get(storage_codec.key(_NODES, "", name))
    if entry is None or _PREFIX not in entry.value:
        return {}
    labels = storage_codec.labels(entry)
    return {key: labels[key] for key in LABELS if key in labels}
