# SPDX-License-Identifier: Apache-2.0
"""What a Service must be. Its addresses are looked at and never given out."""

from collections.abc import Sequence

from refloat.api import fields, internal, names
from refloat.api import meta as objects
from refloat.api.defaults import service as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import addresses, meta, rules, service_ips

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
AFFINITIES = ("ClientIP", "None")
TRAFFIC_POLICIES = ("Cluster", "Local")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
MAX_AFFINITY_SECONDS = 86400

_HINTS = "service.kubernetes.io/topology-aware-hints"
_TOPOLOGY = "service.kubernetes.io/topology-mode"
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_FOR_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"
_FOR_EXTERNAL_NAME = "may not be set for ExternalName services"


def validate_create(service: Object) -> list[FieldError]:
    """Mistakes of its addresses come alone: the server looks at them first."""
    if mistakes := service_ips.validate(service["spec"], ()):
        return mistakes
    metadata = meta.validate(service["metadata"], namespaced=True, name_check=names.dns_label)
    return metadata + _service(service, None)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    stored = old["spec"].get("clusterIPs") or ()
    if mistakes := service_ips.validate(new["spec"], stored):
        return mistakes
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *service_ips.validate_change(new["spec"], old["spec"]),
        *_class_change(new["spec"], old["spec"]),
        *_health_port_change(new["spec"], old["spec"]),
        *_service(new, old),
    ]


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    mistakes = meta.validate_update(new["metadata"], old["metadata"])
    path = "status.loadBalancer.ingress"
    items, before = _ingress(new), _ingress(old)
    if items and new["spec"].get("type") != "LoadBalancer":
        detail = "may only be used when `spec.type` is 'LoadBalancer'"
        return [*mistakes, fields.forbidden(path, detail)]
    stored = [each["ip"] for each in before if each.get("ip")]
    for i, item in enumerate(items):
        mistakes += _ingress_point(item, f"{path}[{i}]", stored)
    return mistakes


def _ingress(service: Object) -> list[Object]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return balancer.get("ingress") or []


def _ingress_point(item: Object, path: str, stored: list[str]) -> list[FieldError]:
    ip, mode, host = item.get("ip", ""), item.get("ipMode"), item.get("hostname", "")
    mistakes = addresses.validate(ip, f"{path}.ip", stored) if ip else []
    if mode is None and ip:
        mistakes.append(fields.required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif mode is not None and not ip:
        detail = "may not be specified when `ip` is not set"
        mistakes.append(fields.forbidden(f"{path}.ipMode", detail))
    elif mode is not None and mode not in ("Proxy", "VIP"):
        mistakes.append(rules.unsupported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
    if host:
        mistakes += rules.named(names.dns_subdomain(host), f"{path}.hostname", host)
        if addresses.parse(host) is not None:
            detail = "must be a DNS name, not an IP address"
            mistakes.append(fields.invalid(f"{path}.hostname", host, detail))
    return mistakes


def _service(service: Object, old: Object | None) -> list[FieldError]:
    spec = service["spec"]
    before = (old or {}).get("spec") or {}
    return [
        *_topology(objects.annotations(service)),
        *_type_needs(spec),
        *_ports(spec),
        *meta.validate_labels(spec.get("selector") or {}, "spec.selector"),
        *_affinity(spec),
        *_external_ips(spec, before.get("externalIPs") or ()),
        *_type(spec.get("type", "")),
        *_port_numbers(spec),
        *_source_ranges(service, old),
        *_balancer(spec),
        *_class(spec),
        *_external_traffic(spec),
        *_internal_traffic(spec),
    ]


def _topology(annotations: dict[str, str]) -> list[FieldError]:
    hints, mode = annotations.get(_HINTS), annotations.get(_TOPOLOGY)
    if hints is None or mode is None or hints == mode:
        return []
    path = f"metadata.annotations[{_TOPOLOGY}]"
    detail = f"must match annotations[{_HINTS}] when both are specified"
    return [fields.invalid(path, mode, detail)]


def _type_needs(spec: Object) -> list[FieldError]:
    kind, headless = spec.get("type"), service_ips.is_headless(spec)
    mistakes = []
    if not spec.get("ports") and not headless and kind != "ExternalName":
        mistakes.append(fields.required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {kind} services"
        mistakes.append(fields.invalid("spec.clusterIPs[0]", spec["clusterIPs"][0], detail))
    return mistakes + (_external_name(spec) if kind == "ExternalName" else [])


def _external_name(spec: Object) -> list[FieldError]:
    mistakes = [
        fields.forbidden(f"spec.{name}", _FOR_EXTERNAL_NAME)
        for name in ("clusterIPs", "ipFamilies")
        if spec.get(name)
    ]
    if spec.get("ipFamilyPolicy") is not None:
        mistakes.append(fields.forbidden("spec.ipFamilyPolicy", _FOR_EXTERNAL_NAME))
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        return [*mistakes, fields.required("spec.externalName")]
    return mistakes + rules.named(names.dns_subdomain(name), "spec.externalName", name)


def _ports(spec: Object) -> list[FieldError]:
    ports = spec.get("ports") or []
    mistakes = []
    seen: set[str] = set()
    for i, port in enumerate(ports):
        path, name = f"spec.ports[{i}]", port.get("name", "")
        if name:
            mistakes += rules.named(names.dns_label(name), f"{path}.name", name)
            if name in seen:
                mistakes.append(fields.duplicate(f"{path}.name", name))
            seen.add(name)
        elif len(ports) > 1:
            mistakes.append(fields.required(f"{path}.name"))
        mistakes += _port(port, path)
    return mistakes


def _port(port: Object, path: str) -> list[FieldError]:
    number, target = port.get("port", 0), port.get("targetPort", 0)
    mistakes = rules.named(names.port_number(number), f"{path}.port", number)
    protocol = port.get("protocol", "")
    if not protocol:
        mistakes.append(fields.required(f"{path}.protocol"))
    elif protocol not in PROTOCOLS:
        mistakes.append(rules.unsupported(f"{path}.protocol", protocol, PROTOCOLS))
    check = names.port_name(target) if isinstance(target, str) else names.port_number(target)
    mistakes += rules.named(check, f"{path}.targetPort", target)
    if (app := port.get("appProtocol")) is not None:
        mistakes += rules.named(names.qualified_name(app), f"{path}.appProtocol", app)
    return mistakes


def _affinity(spec: Object) -> list[FieldError]:
    affinity, path = spec.get("sessionAffinity", ""), "spec.sessionAffinity"
    if not affinity:
        return [fields.required(path)]
    if affinity not in AFFINITIES:
        return [rules.unsupported(path, affinity, AFFINITIES)]
    config, path = spec.get("sessionAffinityConfig"), f"{path}Config"
    if affinity == "None":
        if config is None:
            return []
        detail = "must not be set when session affinity is None"
        return [fields.forbidden(path, detail)]
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is None:
        return [fields.required(path, "when session affinity type is ClientIP")]
    if 0 < seconds <= MAX_AFFINITY_SECONDS:
        return []
    detail = f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"
    return [fields.invalid(f"{path}.clientIP.timeoutSeconds", seconds, detail)]


def _external_ips(spec: Object, stored: Sequence[str]) -> list[FieldError]:
    mistakes = []
    for i, ip in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{i}]"
        mistakes += addresses.validate(ip, path, stored) or addresses.validate_endpoint(ip, path)
    return mistakes


def _type(kind: str) -> list[FieldError]:
    if not kind:
        return [fields.required("spec.type")]
    return [] if kind in TYPES else [rules.unsupported("spec.type", kind, TYPES)]


def _port_numbers(spec: Object) -> list[FieldError]:
    ports = spec.get("ports") or []
    mistakes = []
    if spec.get("type") == "ClusterIP":
        detail = "may not be used when `type` is 'ClusterIP'"
        for i, port in enumerate(ports):
            if port.get("nodePort"):
                mistakes.append(fields.forbidden(f"spec.ports[{i}].nodePort", detail))
    seen = set()
    for i, port in enumerate(ports):
        if not (number := port.get("nodePort")):
            continue
        if (port.get("protocol"), number) in seen:
            mistakes.append(fields.duplicate(f"spec.ports[{i}].nodePort", number))
        seen.add((port.get("protocol"), number))
    return mistakes + _repeated_ports(ports)


def _repeated_ports(ports: list[Object]) -> list[FieldError]:
    mistakes = []
    seen = set()
    for i, port in enumerate(ports):
        pair = port.get("protocol"), port.get("port", 0)
        if pair in seen:
            key = {"protocol": pair[0], "port": pair[1]}
            shown = internal.shown("core.ServicePort", key)
            mistakes.append(fields.duplicate(f"spec.ports[{i}]", shown))
        seen.add(pair)
    return mistakes


def _source_ranges(service: Object, old: Object | None) -> list[FieldError]:
    spec = service["spec"]
    if spec.get("loadBalancerSourceRanges"):
        return _listed_ranges(spec, ((old or {}).get("spec") or {}))
    value = objects.annotations(service).get(_SOURCE_RANGES)
    if value is None:
        return []
    path = f"metadata.annotations[{_SOURCE_RANGES}]"
    balancer = spec.get("type") == "LoadBalancer"
    mistakes = [] if balancer else [fields.forbidden(path, _FOR_LOAD_BALANCER)]
    if old is not None and objects.annotations(old).get(_SOURCE_RANGES) == value:
        return mistakes
    for text in value.split(",") if value.strip() else ():
        mistakes += addresses.validate_cidr(text.strip(), path)
    return mistakes


def _listed_ranges(spec: Object, old: Object) -> list[FieldError]:
    path = "spec.LoadBalancerSourceRanges"
    balancer = spec.get("type") == "LoadBalancer"
    mistakes = [] if balancer else [fields.forbidden(path, _FOR_LOAD_BALANCER)]
    stored = [text.strip() for text in old.get("loadBalancerSourceRanges") or ()]
    for i, text in enumerate(spec["loadBalancerSourceRanges"]):
        mistakes += addresses.validate_cidr(text.strip(), f"{path}[{i}]", stored)
    return mistakes


def _balancer(spec: Object) -> list[FieldError]:
    name = "allocateLoadBalancerNodePorts"
    balancer, allocate = spec.get("type") == "LoadBalancer", spec.get(name)
    if allocate is not None and not balancer:
        return [fields.forbidden(f"spec.{name}", _FOR_LOAD_BALANCER)]
    return [fields.required(name)] if balancer and allocate is None else []


def _class(spec: Object) -> list[FieldError]:
    name, path = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    if name is None:
        return []
    if spec.get("type") != "LoadBalancer":
        return [fields.forbidden(path, _FOR_LOAD_BALANCER)]
    return rules.named(names.qualified_name(name), path, name)


def _class_change(new: Object, old: Object) -> list[FieldError]:
    name = new.get("loadBalancerClass")
    both = new.get("type") == old.get("type") == "LoadBalancer"
    if both and name != old.get("loadBalancerClass"):
        detail = "may not change once set"
        return [fields.invalid("spec.loadBalancerClass", name, detail), *_class(new)]
    return _class(new)


def _needs_health_check(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _health_port_change(new: Object, old: Object) -> list[FieldError]:
    if not _needs_health_check(new) or not _needs_health_check(old):
        return []
    if new.get("healthCheckNodePort") == old.get("healthCheckNodePort"):
        return []
    return [fields.forbidden("spec.healthCheckNodePort", meta.IMMUTABLE)]


def _external_traffic(spec: Object) -> list[FieldError]:
    policy, path = spec.get("externalTrafficPolicy", ""), "spec.externalTrafficPolicy"
    mistakes = []
    if not defaults.is_reachable_from_outside(spec):
        if policy:
            detail = "may only be set for externally-accessible services"
            mistakes.append(fields.invalid(path, internal.typed(policy), detail))
    elif not policy:
        mistakes.append(fields.required(path))
    elif policy not in TRAFFIC_POLICIES:
        mistakes.append(rules.unsupported(path, policy, TRAFFIC_POLICIES))
    return mistakes + _health_port(spec)


def _health_port(spec: Object) -> list[FieldError]:
    """No port is given out here, so none is asked for where it would be."""
    port, path = spec.get("healthCheckNodePort", 0), "spec.healthCheckNodePort"
    if not port:
        return []
    if _needs_health_check(spec):
        return rules.named(names.port_number(port), path, port)
    detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
    return [fields.invalid(path, port, detail)]


def _internal_traffic(spec: Object) -> list[FieldError]:
    policy, path = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    mistakes = []
    if policy is None and spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
        mistakes.append(fields.required(path))
    if policy is not None and policy not in TRAFFIC_POLICIES:
        mistakes.append(rules.unsupported(path, policy, TRAFFIC_POLICIES))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        path = "spec.trafficDistribution"
        mistakes.append(fields.not_supported(path, distribution, DISTRIBUTIONS))
    return mistakes


def warnings(service: Object) -> list[str]:
    """What is accepted but is ignored, or should be written otherwise."""
    spec = service["spec"]
    found = []
    if _HINTS in objects.annotations(service):
        found.append(f"annotation {_HINTS} is deprecated, please use {_TOPOLOGY} instead")
    found += service_ips.warnings(spec)
    if spec.get("type") == "ExternalName" and spec.get("externalIPs"):
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("type") != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def status_warnings(service: Object) -> list[str]:
    """The same for a Service's status."""
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return [
        warning
        for i, each in enumerate(balancer.get("ingress") or ())
        for warning in addresses.warnings(each.get("ip", ""), f"status.loadBalancer.ingress[{i}]")
    ]
