# SPDX-License-Identifier: Apache-2.0
"""What a Service must be. Refloat checks its addresses and allocates none."""

from refloat.api import go_internal_types, names
from refloat.api import meta as objects
from refloat.api.defaults import service as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import addresses, meta, rules, service_ips
from refloat.api.validation.rules import Errors

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


def validate_create(service: Object) -> list[FieldError]:
    """Errors of the addresses come alone, because the server checks them first."""
    if errors := service_ips.validate(service["spec"], ()):
        return errors
    errors = meta.validate(service["metadata"], namespaced=True, name_check=names.dns_label)
    _check_service(service, None, errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    if errors := service_ips.validate(spec, before.get("clusterIPs") or ()):
        return errors
    errors = meta.validate_update(new["metadata"], old["metadata"])
    service_ips.check_change(spec, before, errors)
    class_name = spec.get("loadBalancerClass")
    both = spec.get("type") == before.get("type") == "LoadBalancer"
    if both and class_name != before.get("loadBalancerClass"):
        errors.invalid("spec.loadBalancerClass", class_name, "may not change once set")
    _check_class(spec, errors)
    port_changes = spec.get("healthCheckNodePort") != before.get("healthCheckNodePort")
    if port_changes and _needs_health_check(spec) and _needs_health_check(before):
        errors.forbidden("spec.healthCheckNodePort", rules.IMMUTABLE)
    _check_service(new, old, errors)
    return errors


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    path = "status.loadBalancer.ingress"
    items = _ingress(new)
    if items and new["spec"].get("type") != "LoadBalancer":
        errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
        return errors
    stored = [each["ip"] for each in _ingress(old) if each.get("ip")]
    for i, item in enumerate(items):
        where, ip, host = f"{path}[{i}]", item.get("ip", ""), item.get("hostname", "")
        if ip:
            errors += addresses.validate(ip, f"{where}.ip", stored)
        mode = item.get("ipMode")
        if mode is None and ip:
            errors.required(f"{where}.ipMode", "must be specified when `ip` is set")
        elif mode is not None and not ip:
            errors.forbidden(f"{where}.ipMode", "may not be specified when `ip` is not set")
        else:
            errors.one_of(f"{where}.ipMode", mode, ("Proxy", "VIP"))
        if host:
            errors.named(f"{where}.hostname", host, names.dns_subdomain)
        if host and addresses.parse(host) is not None:
            errors.invalid(f"{where}.hostname", host, "must be a DNS name, not an IP address")
    return errors


def _ingress(service: Object) -> list[Object]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return balancer.get("ingress") or []


def _check_service(service: Object, old: Object | None, errors: Errors) -> None:
    spec = service["spec"]
    before = (old or {}).get("spec") or {}
    annotations = objects.annotations(service)
    hints, mode = annotations.get(_HINTS), annotations.get(_TOPOLOGY)
    if hints is not None and mode is not None and hints != mode:
        detail = f"must match annotations[{_HINTS}] when both are specified"
        errors.invalid(f"metadata.annotations[{_TOPOLOGY}]", mode, detail)
    _check_type_needs(spec, errors)
    _check_ports(spec, errors)
    errors += meta.validate_labels(spec.get("selector") or {}, "spec.selector")
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    errors.required_one_of("spec.sessionAffinity", affinity, AFFINITIES)
    path = "spec.sessionAffinityConfig"
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if affinity == "None" and config is not None:
        errors.forbidden(path, "must not be set when session affinity is None")
    elif affinity == "ClientIP":
        if seconds is None:
            errors.required(path, "when session affinity type is ClientIP")
        elif not 0 < seconds <= MAX_AFFINITY_SECONDS:
            detail = f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"
            errors.invalid(f"{path}.clientIP.timeoutSeconds", seconds, detail)
    stored = before.get("externalIPs") or ()
    for i, ip in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{i}]"
        errors += addresses.validate(ip, path, stored) or addresses.validate_endpoint(ip, path)
    errors.required_one_of("spec.type", spec.get("type", ""), TYPES)
    _check_port_numbers(spec, errors)
    _check_source_ranges(service, old, errors)
    name, is_balancer = "allocateLoadBalancerNodePorts", spec.get("type") == "LoadBalancer"
    if spec.get(name) is not None and not is_balancer:
        errors.forbidden(f"spec.{name}", _FOR_LOAD_BALANCER)
    elif spec.get(name) is None and is_balancer:
        errors.required(name)
    _check_class(spec, errors)
    _check_traffic(spec, errors)


def _check_type_needs(spec: Object, errors: Errors) -> None:
    kind, headless = spec.get("type"), service_ips.is_headless(spec)
    if not spec.get("ports") and not headless and kind != "ExternalName":
        errors.required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {kind} services"
        errors.invalid("spec.clusterIPs[0]", spec["clusterIPs"][0], detail)
    if kind == "ExternalName":
        detail = "may not be set for ExternalName services"
        for name in ("clusterIPs", "ipFamilies"):
            if spec.get(name):
                errors.forbidden(f"spec.{name}", detail)
        if spec.get("ipFamilyPolicy") is not None:
            errors.forbidden("spec.ipFamilyPolicy", detail)
        name = spec.get("externalName", "").removesuffix(".")
        errors.required_name("spec.externalName", name, names.dns_subdomain)


def _check_ports(spec: Object, errors: Errors) -> None:
    ports = spec.get("ports") or []
    names_so_far: set[str] = set()
    for i, port in enumerate(ports):
        path, name = f"spec.ports[{i}]", port.get("name", "")
        if name:
            errors.named(f"{path}.name", name, names.dns_label)
            errors.unique(f"{path}.name", name, names_so_far)
        elif len(ports) > 1:
            errors.required(f"{path}.name")
        number, target = port.get("port", 0), port.get("targetPort", 0)
        errors.each(f"{path}.port", number, names.port_number(number))
        errors.required_one_of(f"{path}.protocol", port.get("protocol", ""), PROTOCOLS)
        errors.each(f"{path}.targetPort", target, names.port(target))
        if (app := port.get("appProtocol")) is not None:
            errors.named(f"{path}.appProtocol", app, names.qualified_name)


def _check_port_numbers(spec: Object, errors: Errors) -> None:
    ports = spec.get("ports") or []
    if spec.get("type") == "ClusterIP":
        for i, port in enumerate(ports):
            if port.get("nodePort"):
                detail = "may not be used when `type` is 'ClusterIP'"
                errors.forbidden(f"spec.ports[{i}].nodePort", detail)
    pairs = set()
    for i, port in enumerate(ports):
        if number := port.get("nodePort"):
            if (port.get("protocol"), number) in pairs:
                errors.duplicate(f"spec.ports[{i}].nodePort", number)
            pairs.add((port.get("protocol"), number))
    pairs = set()
    for i, port in enumerate(ports):
        pair = port.get("protocol"), port.get("port", 0)
        if pair in pairs:
            key = {"protocol": pair[0], "port": pair[1]}
            errors.duplicate(f"spec.ports[{i}]", go_internal_types.shown("core.ServicePort", key))
        pairs.add(pair)


def _check_source_ranges(service: Object, old: Object | None, errors: Errors) -> None:
    spec, annotations = service["spec"], objects.annotations(service)
    is_balancer = spec.get("type") == "LoadBalancer"
    if ranges := spec.get("loadBalancerSourceRanges"):
        path, before = "spec.LoadBalancerSourceRanges", (old or {}).get("spec") or {}
        if not is_balancer:
            errors.forbidden(path, _FOR_LOAD_BALANCER)
        stored = [text.strip() for text in before.get("loadBalancerSourceRanges") or ()]
        for i, text in enumerate(ranges):
            errors += addresses.validate_cidr(text.strip(), f"{path}[{i}]", stored)
    elif (value := annotations.get(_SOURCE_RANGES)) is not None:
        path = f"metadata.annotations[{_SOURCE_RANGES}]"
        if not is_balancer:
            errors.forbidden(path, _FOR_LOAD_BALANCER)
        is_stored = old is not None and objects.annotations(old).get(_SOURCE_RANGES) == value
        for text in value.split(",") if value.strip() and not is_stored else ():
            errors += addresses.validate_cidr(text.strip(), path)


def _check_class(spec: Object, errors: Errors) -> None:
    name, path = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    if name is not None and spec.get("type") != "LoadBalancer":
        errors.forbidden(path, _FOR_LOAD_BALANCER)
    elif name is not None:
        errors.named(path, name, names.qualified_name)


def _needs_health_check(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _check_traffic(spec: Object, errors: Errors) -> None:
    policy, path = spec.get("externalTrafficPolicy", ""), "spec.externalTrafficPolicy"
    if defaults.is_reachable_from_outside(spec):
        errors.required_one_of(path, policy, TRAFFIC_POLICIES)
    elif policy:
        detail = "may only be set for externally-accessible services"
        errors.invalid(path, go_internal_types.typed(policy), detail)
    # Refloat allocates no ports, so it does not require this one.
    if port := spec.get("healthCheckNodePort"):
        if _needs_health_check(spec):
            errors.each("spec.healthCheckNodePort", port, names.port_number(port))
        else:
            types = "`type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errors.invalid("spec.healthCheckNodePort", port, f"may only be set when {types}")
    policy, path = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    if policy is None and spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
        errors.required(path)
    errors.one_of(path, policy, TRAFFIC_POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        errors.not_supported("spec.trafficDistribution", distribution, DISTRIBUTIONS)


def warnings(service: Object) -> list[str]:
    """What is accepted but is ignored, or should be written otherwise."""
    spec = service["spec"]
    texts = []
    if _HINTS in objects.annotations(service):
        texts.append(f"annotation {_HINTS} is deprecated, please use {_TOPOLOGY} instead")
    texts += service_ips.warnings(spec)
    if spec.get("type") == "ExternalName" and spec.get("externalIPs"):
        texts.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("type") != "ExternalName" and spec.get("externalName"):
        texts.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        texts.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return texts


def status_warnings(service: Object) -> list[str]:
    """The same for a Service's status."""
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return [
        warning
        for i, each in enumerate(balancer.get("ingress") or ())
        for warning in addresses.warnings(each.get("ip", ""), f"status.loadBalancer.ingress[{i}]")
    ]
