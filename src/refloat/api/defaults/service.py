# SPDX-License-Identifier: Apache-2.0
"""What a Service's fields are when nobody says. Addresses are not given out."""

from refloat.api.meta import Object

CLIENT_IP_SECONDS = 3 * 3600
_WITH_CLUSTER_IP = ("ClusterIP", "NodePort", "LoadBalancer")


def apply(service: Object) -> None:
    spec = service.setdefault("spec", {})
    _session_affinity(spec)
    if not spec.get("type"):
        spec["type"] = "ClusterIP"
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    _traffic_policies(spec)
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        _ip_modes(service.get("status") or {})


def _session_affinity(spec: Object) -> None:
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            seconds = {"timeoutSeconds": CLIENT_IP_SECONDS}
            spec["sessionAffinityConfig"] = {"clientIP": seconds}


def is_reachable_from_outside(spec: Object) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or bool(
        kind == "ClusterIP" and spec.get("externalIPs")
    )


def _traffic_policies(spec: Object) -> None:
    if is_reachable_from_outside(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec["type"] in _WITH_CLUSTER_IP:
        spec.setdefault("internalTrafficPolicy", "Cluster")


def _ip_modes(status: Object) -> None:
    for ingress in (status.get("loadBalancer") or {}).get("ingress") or ():
        if ingress.get("ip"):
            ingress.setdefault("ipMode", "VIP")


def prepare_create(service: Object) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service["spec"]
    _list_address(spec)
    if spec.get("clusterIP") == "None":
        _headless_families(spec)


def _headless_families(spec: Object) -> None:
    """Without a selector nobody knows what its addresses are, so it may have both."""
    families = ["IPv4"] if spec.get("selector") else ["IPv4", "IPv6"]
    policy = "SingleStack" if spec.get("selector") else "RequireDualStack"
    spec.setdefault("ipFamilies", families)
    spec.setdefault("ipFamilyPolicy", policy)


def _list_address(spec: Object) -> None:
    """An address that was given alone is the first of the list."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


# What goes with the type, unless the same update says something new about it.
_ADDRESSING = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def prepare_update(new: Object, old: Object) -> None:
    """Keep the address that an update leaves out; drop what its type cannot have."""
    spec, before = new["spec"], old["spec"]
    if "ExternalName" not in (spec["type"], before.get("type")):
        for name in _ADDRESSING:
            if before.get(name) and not spec.get(name):
                spec[name] = before[name]
    elif spec["type"] == "ExternalName" and before.get("type") != "ExternalName":
        for name in (*_ADDRESSING, "internalTrafficPolicy"):
            if name in spec and spec[name] == before.get(name):
                del spec[name]
    if spec.get("clusterIP") and spec["clusterIP"] != before.get("clusterIP"):
        _forget_list(spec, before)
    _list_address(spec)
    if spec.get("clusterIP") == "None" and spec["type"] != "ExternalName":
        _headless_families(spec)


def _forget_list(spec: Object, before: Object) -> None:
    """Whoever changes the address alone means the list as well."""
    if spec.get("clusterIPs") == before.get("clusterIPs"):
        spec.pop("clusterIPs", None)
