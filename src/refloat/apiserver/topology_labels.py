# SPDX-License-Identifier: Apache-2.0
"""A pod is labelled with the zone and the region of the node that it is given to.

So its containers can be told where they run (KEP-4742). It happens when a pod
comes with a node's name, in `admission.py`, and when it is bound, in
`binding.py`; a node that moves later takes no pod along.
"""

from refloat.api import kinds
from refloat.apiserver import stored
from refloat.store.contract import Store

_NODES = kinds.of("nodes")

LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")

# What both begin with: a node that says it nowhere need not be decoded.
_PREFIX = b'"topology.kubernetes.io/'


def of_node(store: Store, name: str) -> dict[str, str]:
    """The labels that a pod on this node gets; none where there is no such node."""
    entry = store.get(stored.key(_NODES, "", name))
    if entry is None or _PREFIX not in entry.value:
        return {}
    labels = stored.labels(entry)
    return {key: labels[key] for key in LABELS if key in labels}
