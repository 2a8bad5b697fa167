# SPDX-License-Identifier: Apache-2.0
"""The default values of a Service's fields. Refloat allocates no addresses."""

from refloat.api.defaults import pod
from refloat.api.meta import Object

CLIENT_IP_SECONDS = 3 * 3600
_WITH_CLUSTER_IP = ("ClusterIP", "NodePort", "LoadBalancer")


def apply(service: Object) -> None:
    spec = service.setdefault("spec", {})
    pod.fill(spec, {"sessionAffinity": "None"})
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            seconds = {"timeoutSeconds": CLIENT_IP_SECONDS}
            spec["sessionAffinityConfig"] = {"clientIP": seconds}
    pod.fill(spec, {"type": "ClusterIP"})
    for port in spec.get("ports") or ():
        pod.fill(port, {"protocol": "TCP", "targetPort": port.get("port", 0)})
    if is_reachable_from_outside(spec):
        pod.fill(spec, {"externalTrafficPolicy": "Cluster"})
    if spec["type"] in _WITH_CLUSTER_IP:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        balancer = (service.get("status") or {}).get("loadBalancer") or {}
        for ingress in balancer.get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def is_reachable_from_outside(spec: Object) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or bool(
        kind == "ClusterIP" and spec.get("externalIPs")
    )


def prepare_create(service: Object) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service["spec"]
    _list_address(spec)
    if spec.get("clusterIP") == "None":
        _headless_families(spec)


def _headless_families(spec: Object) -> None:
    """Without a selector the families of its endpoints are unknown, so both are possible."""
    families = ["IPv4"] if spec.get("selector") else ["IPv4", "IPv6"]
    policy = "SingleStack" if spec.get("selector") else "RequireDualStack"
    spec.setdefault("ipFamilies", families)
    spec.setdefault("ipFamilyPolicy", policy)


def _list_address(spec: Object) -> None:
    """A single address is the first of the list."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


# The fields that an update of the type keeps or drops, unless the update changes them.
_ADDRESSING = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def prepare_update(new: Object, old: Object) -> None:
    """Keep the address that an update omits; drop the fields that its type cannot have."""
    spec, before = new["spec"], old["spec"]
    if "ExternalName" not in (spec["type"], before.get("type")):
        for name in _ADDRESSING:
            if before.get(name) and not spec.get(name):
                spec[name] = before[name]
    elif spec["type"] == "ExternalName" and before.get("type") != "ExternalName":
        for name in (*_ADDRESSING, "internalTrafficPolicy"):
            if name in spec and spec[name] == before.get(name):
                del spec[name]
    is_changed = spec.get("clusterIP") and spec["clusterIP"] != before.get("clusterIP")
    # A client that changes only the address changes the list too.
    if is_changed and spec.get("clusterIPs") == before.get("clusterIPs"):
        spec.pop("clusterIPs", None)
    _list_address(spec)
    if spec.get("clusterIP") == "None" and spec["type"] != "ExternalName":
        _headless_families(spec)
