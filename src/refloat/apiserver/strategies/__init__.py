# SPDX-License-Identifier: Apache-2.0
"""The strategy of each kind: which fields the server sets, keeps, checks and forbids.

`base.Strategy` has the behaviour of most kinds; the other modules have the kinds that
differ. `build` makes the registry's table.
"""

from refloat.api import kinds
from refloat.apiserver.strategies import base, cluster, jobs, nodes, pods, workloads
from refloat.base.gates import Gates

_CLASSES: dict[str, type[base.Strategy]] = {
    **cluster.STRATEGIES,
    **workloads.STRATEGIES,
    "jobs.batch": jobs.JobStrategy,
    "nodes": nodes.NodeStrategy,
    "pods": pods.PodStrategy,
}


def build(gates: Gates) -> dict[kinds.Resource, base.Strategy]:
    """The strategy of every resource."""
    return {each: _CLASSES[_name(each)](each, gates) for each in kinds.RESOURCES}


def _name(resource: kinds.Resource) -> str:
    if resource.group == "events.k8s.io":
        return "events.events.k8s.io"
    return resource.stored_as
