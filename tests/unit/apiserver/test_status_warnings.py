# SPDX-License-Identifier: Apache-2.0
"""A write of a status is warned of what is in the status, and of nothing else."""

from typing import Any

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver.routes import Target
from tests import builders
from tests.apiserver_fixture import NODES, PODS, ServerFixture
from tests.cases import cases

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
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1m"}}},
}
NODE = {**builders.node(), "spec": {"podCIDR": "2001:DB8::/64", "podCIDRs": ["2001:DB8::/64"]}}

ODD = 'IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")'

CASES: dict[str, tuple[Object, kinds.Resource, Object, list[str]]] = {
    "a pod's address": (
        builders.pod(),
        PODS,
        {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "2001:DB8::1"}]},
        [f"status.podIPs[1].ip: {ODD}"],
    ),
    "a balancer's address, and not those of the spec": (
        SERVICE,
        SERVICES,
        {"loadBalancer": {"ingress": [{"ip": "2001:DB8::1", "ipMode": "VIP"}]}},
        [f"status.loadBalancer.ingress[0]: {ODD}"],
    ),
    "balancer's name": (SERVICE, SERVICES, {"loadBalancer": {"ingress": [{"hostname": "h"}]}}, []),
    "not a claim's odd size": (CLAIM, CLAIMS, {"phase": "Pending"}, []),
    "not a node's odd range": (NODE, NODES, {"phase": "Running"}, []),
}


@cases("obj resource status want", CASES)
async def test_a_status_is_warned_of(
    world: ServerFixture, obj: Object, resource: kinds.Resource, status: Object, want: list[str]
) -> None:
    await world.create(obj)
    namespace = "default" if resource.namespaced else ""
    call = world.call()

    def produce(old: Object) -> dict[str, Any]:
        return {**old, "status": {**old["status"], **status}}

    target = Target(resource, namespace, obj["metadata"]["name"], "status")
    await world.registry.modify(call, target, produce)
    assert call.warnings == want
