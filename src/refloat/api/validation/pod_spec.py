# SPDX-License-Identifier: Apache-2.0
"""The specification of a pod, of its own or in a template.

The parts have modules of their own; here they are put in the order in which
Kubernetes reports them, with what belongs to no part.
"""

from refloat.api import fields, names
from refloat.api.meta import Object
from refloat.api.validation import (
    addresses,
    meta,
    pod_affinity,
    pod_claims,
    pod_containers,
    pod_resources,
    pod_security,
    pod_volumes,
    pod_windows,
)
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.effects import NONE_NEW, Effects
from refloat.api.validation.pod_rules import Errors

MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
HOSTNAME_OVERRIDE_LENGTH = 64

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_NO_HOST_USERS = "when `hostUsers` is false"

_NAMED = (
    ("serviceAccountName", names.dns_subdomain),
    ("nodeName", names.dns_subdomain),
)


def check_spec(
    spec: Object,
    metadata: Object | None,
    path: str,
    errors: Errors,
    effects: Effects = NONE_NEW,
    *,
    stored: Object | None = None,
) -> None:
    """All of a pod's specification.

    `metadata` is None in a template; `stored` is the specification that is there already.
    """
    if spec.get("terminationGracePeriodSeconds") is None:
        errors.append(fields.required(f"{path}.terminationGracePeriodSeconds"))
    _check_contents(spec, metadata, path, errors)
    pod_resources.check_pod(spec, path, errors)
    if spec.get("hostNetwork"):
        _check_host_network_ports(spec, f"{path}.containers", errors, is_pod=metadata is not None)
    policy = spec.get("restartPolicy", "")
    rules.required_one_of(errors, f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    rules.required_one_of(errors, f"{path}.dnsPolicy", spec.get("dnsPolicy", ""), _DNS_POLICIES)
    if selector := spec.get("nodeSelector"):
        errors += meta.validate_labels(selector, f"{path}.nodeSelector")
    pod_security.check_pod(spec, path, errors, stored)
    _check_scheduling(spec, path, errors)
    _check_host(spec, path, errors)
    _check_identity(spec, path, errors, effects)
    _check_classes(spec, path, errors)
    _check_files_of_env(spec, path, errors)


def _check_contents(spec: Object, metadata: Object | None, path: str, errors: Errors) -> None:
    """Volumes, claims and containers."""
    volumes: dict[str, Object] = {}
    if given := spec.get("volumes"):
        name = None if metadata is None else metadata.get("name", "")
        volumes = pod_volumes.check_volumes(given, name, f"{path}.volumes", errors)
    claims = spec.get("resourceClaims") or ()
    if claims:
        pod_claims.check_device_claims(claims, metadata, f"{path}.resourceClaims", errors)
    pod = pod_containers.Surroundings(
        volumes=volumes,
        claims={each["name"]: each for each in claims if each.get("name")},
        grace=spec.get("terminationGracePeriodSeconds"),
        restart_policy=spec.get("restartPolicy", ""),
        host_users=spec.get("hostUsers") is not False,
    )
    containers = spec.get("containers") or []
    pod_containers.check_containers(containers, pod, f"{path}.containers", errors)
    init = spec.get("initContainers") or []
    if init:
        where = f"{path}.initContainers"
        pod_containers.check_init_containers(init, containers, pod, where, errors)
    if debug := spec.get("ephemeralContainers"):
        where = f"{path}.ephemeralContainers"
        others = [*containers, *init]
        pod_containers.check_ephemeral_containers(debug, others, pod, where, errors)


def _check_host_network_ports(spec: Object, path: str, errors: Errors, *, is_pod: bool) -> None:
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports") or ()):
            number = port.get("hostPort", 0)
            if (is_pod or number) and number != port.get("containerPort", 0):
                detail = "must match `containerPort` when `hostNetwork` is true"
                where = f"{path}[{i}].ports[{j}].hostPort"
                errors.append(fields.invalid(where, number, detail))


def _check_scheduling(spec: Object, path: str, errors: Errors) -> None:
    if affinity := spec.get("affinity"):
        pod_affinity.check_affinity(affinity, f"{path}.affinity", errors)
    _check_dns(spec, f"{path}.dnsConfig", errors)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        where = f"{path}.readinessGates[{i}].conditionType"
        rules.named(errors, where, kind, names.qualified_name)
    seen: set[str] = set()
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        where, name = f"{path}.schedulingGates[{i}]", gate.get("name", "")
        rules.named(errors, where, name, names.qualified_name)
        rules.repeated(errors, where, name, seen)
        seen.add(name)
    if constraints := spec.get("topologySpreadConstraints"):
        where = f"{path}.topologySpreadConstraints"
        pod_affinity.check_topology_spread(constraints, where, errors)


def _check_dns(spec: Object, path: str, errors: Errors) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            detail = "must provide `dnsConfig` when `dnsPolicy` is None"
            errors.append(fields.required(path, detail))
        elif not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errors.append(fields.required(f"{path}.nameservers", detail))
            return
    if not config:
        return
    servers = config.get("nameservers") or []
    if len(servers) > MAX_NAMESERVERS:
        detail = f"must not have more than {MAX_NAMESERVERS} nameservers"
        errors.append(fields.invalid(f"{path}.nameservers", servers, detail))
    for i, server in enumerate(servers):
        errors += addresses.validate(server, f"{path}.nameservers[{i}]")
    _check_searches(config.get("searches") or [], f"{path}.searches", errors)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(fields.required(f"{path}.options[{i}]", "must not be empty"))


def _check_searches(searches: list[str], path: str, errors: Errors) -> None:
    if len(searches) > MAX_SEARCHES:
        detail = f"must not have more than {MAX_SEARCHES} search paths"
        errors.append(fields.invalid(path, searches, detail))
    if len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        detail = (
            f"must not have more than {MAX_SEARCH_CHARACTERS} characters "
            "(including spaces) in the search list"
        )
        errors.append(fields.invalid(path, searches, detail))
    for i, search in enumerate(searches):
        if search != ".":
            domain = search.removesuffix(".")
            rules.named(errors, f"{path}[{i}]", domain, names.dns_subdomain_underscore)


def _check_host(spec: Object, path: str, errors: Errors) -> None:
    """What a pod shares with its host, or does not."""
    if _has_windows_options(spec):
        containers = list(pod_security.containers(spec, path))
        pod_windows.check_host_process(spec, path, containers, errors)
    if spec.get("hostUsers") is False:
        for key, shown in _HOST_FLAGS:
            if spec.get(key):
                errors.append(fields.forbidden(f"{path}.{shown}", _NO_HOST_USERS))
        for container, where in pod_security.containers(spec, path):
            if container.get("volumeDevices"):
                errors.append(fields.forbidden(f"{where}.volumeDevices", _NO_HOST_USERS))
    if (override := spec.get("hostnameOverride")) is not None:
        _check_hostname_override(override, spec, f"{path}.hostnameOverride", errors)


_HOST_FLAGS = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))


def _has_windows_options(spec: Object) -> bool:
    owners = (spec, *(each for each, _ in pod_security.containers(spec, "")))
    return any((each.get("securityContext") or {}).get("windowsOptions") for each in owners)


def _check_hostname_override(name: str, spec: Object, path: str, errors: Errors) -> None:
    for key in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(key):
            detail = f"may not be specified when {key} is true"
            errors.append(fields.forbidden(path, detail))
    if names.longer(name, HOSTNAME_OVERRIDE_LENGTH):
        errors.append(fields.too_long(path, HOSTNAME_OVERRIDE_LENGTH))
    rules.named(errors, path, name, names.dns_subdomain)


def _check_identity(spec: Object, path: str, errors: Errors, effects: Effects) -> None:
    for key, check in _NAMED:
        if name := spec.get(key):
            rules.named(errors, f"{path}.{key}", name, check)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        complaints = names.in_range(deadline, 1, 2**31 - 1)
        errors += fields.invalid_each(f"{path}.activeDeadlineSeconds", deadline, complaints)
    for key in ("hostname", "subdomain"):
        if name := spec.get(key):
            rules.named(errors, f"{path}.{key}", name, names.dns_label)
    if tolerations := spec.get("tolerations"):
        pod_affinity.check_tolerations(tolerations, f"{path}.tolerations", errors, effects)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        where = f"{path}.hostAliases[{i}]"
        errors += addresses.validate(alias.get("ip", ""), f"{where}.ip")
        for j, name in enumerate(alias.get("hostnames") or ()):
            rules.named(errors, f"{where}.hostnames[{j}]", name, names.dns_subdomain)


def _check_classes(spec: Object, path: str, errors: Errors) -> None:
    if name := spec.get("priorityClassName"):
        rules.named(errors, f"{path}.priorityClassName", name, names.dns_subdomain)
    if (name := spec.get("runtimeClassName")) is not None:
        rules.named(errors, f"{path}.runtimeClassName", name, names.dns_subdomain)
    if (policy := spec.get("preemptionPolicy")) is not None:
        where = f"{path}.preemptionPolicy"
        rules.required_one_of(errors, where, policy, _PREEMPTION_POLICIES)
    if overhead := spec.get("overhead"):
        pod_resources.check_overhead(overhead, f"{path}.overhead", errors)
    if spec.get("os") is not None:
        containers = list(pod_security.containers(spec, path))
        pod_windows.check_os(spec, path, containers, errors)


def _check_files_of_env(spec: Object, path: str, errors: Errors) -> None:
    """Variables out of files need a volume that the pod itself makes."""
    for container, where in pod_security.containers(spec, path):
        for i, variable in enumerate(container.get("env") or ()):
            reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if reference is not None:
                where_file = f"{where}.env[{i}].valueFrom.fileKeyRef.volumeName"
                _check_file_volume(reference.get("volumeName", ""), spec, where_file, errors)


def _check_file_volume(name: str, spec: Object, path: str, errors: Errors) -> None:
    # The last one of a name counts, as it does for Kubernetes.
    volumes = {each.get("name", ""): each for each in spec.get("volumes") or ()}
    if name not in volumes:
        errors.append(fields.not_found(path, name))
    elif volumes[name].get("emptyDir") is None:
        detail = "referenced volume must be of type emptyDir"
        errors.append(fields.invalid(path, name, detail))
