# SPDX-License-Identifier: Apache-2.0
"""A write of a status is warned of what is in the status, and of nothing else."""

from typing import Any

import pytest

from refloat.api import kinds
from refloat.api.meta import Object
from tests import builders
from tests.worlds import NODES, PODS, World

SERVICES = kinds.of("services")
CLAIMS = kinds.of("persistentvolumeclaims")

SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s"},
    "spec": {"type": "LoadBalancer", "externalIPs": ["2001:DB8::9"], "ports": [{"port": 80}]},
}
CLAIM: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "c"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1m"}},
    },
}
NODE = {**builders.node(), "spec": {"podCIDR": "2001:DB8::/64", "podCIDRs": ["2001:DB8::/64"]}}

ODD = 'IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")'

CASES: list[tuple[str, Object, kinds.Resource, Object, list[str]]] = [
    (
        "a pod's address",
        builders.pod(),
        PODS,
        {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "2001:DB8::1"}]},
        [f"status.podIPs[1].ip: {ODD}"],
    ),
    (
        "a balancer's address, and not those of the spec",
        SERVICE,
        SERVICES,
        {"loadBalancer": {"ingress": [{"ip": "2001:DB8::1", "ipMode": "VIP"}]}},
        [f"status.loadBalancer.ingress[0]: {ODD}"],
    ),
    (
        "a balancer's name",
        SERVICE,
        SERVICES,
        {"loadBalancer": {"ingress": [{"hostname": "h"}]}},
        [],
    ),
    ("not a claim's odd size", CLAIM, CLAIMS, {"phase": "Pending"}, []),
    ("not a node's odd range", NODE, NODES, {"phase": "Running"}, []),
]


@pytest.mark.parametrize(
    ("obj", "resource", "status", "want"),
    [each[1:] for each in CASES],
    ids=[each[0] for each in CASES],
)
async def test_a_status_is_warned_of(
    world: World, obj: Object, resource: kinds.Resource, status: Object, want: list[str]
) -> None:
    await world.create(obj)
    namespace = "default" if resource.namespaced else ""
    call = world.call()

    def produce(old: Object) -> dict[str, Any]:
        return {**old, "status": {**old["status"], **status}}

    await world.registry.modify(
        call, resource, namespace, obj["metadata"]["name"], produce, subresource="status"
    )
    assert call.warnings == want
