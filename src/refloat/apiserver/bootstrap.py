# SPDX-License-Identifier: Apache-2.0
"""The objects that every cluster begins with."""

from refloat.api import errors, kinds
from refloat.api.meta import Object
from refloat.apiserver.identity import ADMINS, Call, Identity
from refloat.apiserver.registry import Registry
from refloat.base.clock import Clock

_USER = Identity("system:apiserver", (ADMINS,))

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

# (name, value, description): the two classes that Kubernetes brings.
PRIORITY_CLASSES = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        (
            "Used for system critical pods that must run in the cluster, "
            "but can be moved to another node if necessary."
        ),
    ),
)


async def ensure(registry: Registry, clock: Clock) -> None:
    """Create the missing objects, and leave the others as they are."""
    for name in NAMESPACES:
        await _ensure(registry, clock, "namespaces", "", {"metadata": {"name": name}, "spec": {}})
    for name, value, description in PRIORITY_CLASSES:
        obj = {"metadata": {"name": name}, "value": value, "description": description}
        await _ensure(registry, clock, "priorityclasses", "scheduling.k8s.io", obj)


async def _ensure(
    registry: Registry, clock: Clock, plural: str, group: str, fields: Object
) -> None:
    resource = kinds.of(plural, group)
    try:
        registry.get(resource, "", fields["metadata"]["name"])
    except errors.StatusError:
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, **fields}
        registry.strategies[resource].default(obj)
        await registry.create(Call(_USER, clock.now()), resource, "", obj)
