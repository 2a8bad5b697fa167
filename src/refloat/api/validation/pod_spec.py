# SPDX-License-Identifier: Apache-2.0
"""The specification of a pod or of a pod template.

The parts have modules of their own. This module puts them in the order in which
Kubernetes reports them, and checks the other fields.
"""

from refloat.api import names
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
from refloat.api.validation.effects import NONE_NEW, Effects
from refloat.api.validation.rules import Errors

MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
HOSTNAME_OVERRIDE_LENGTH = 64

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_NO_HOST_USERS = "when `hostUsers` is false"


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
        errors.required(f"{path}.terminationGracePeriodSeconds")
    _check_contents(spec, metadata, path, errors)
    pod_resources.check_pod(spec, path, errors)
    if spec.get("hostNetwork"):
        for i, container in enumerate(spec.get("containers") or ()):
            for j, port in enumerate(container.get("ports") or ()):
                number = port.get("hostPort", 0)
                is_set = metadata is not None or number
                if is_set and number != port.get("containerPort", 0):
                    detail = "must match `containerPort` when `hostNetwork` is true"
                    errors.invalid(f"{path}.containers[{i}].ports[{j}].hostPort", number, detail)
    policy = spec.get("restartPolicy", "")
    errors.required_one_of(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    errors.required_one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy", ""), _DNS_POLICIES)
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
    if volume_list := spec.get("volumes"):
        name = None if metadata is None else metadata.get("name", "")
        volumes = pod_volumes.check_volumes(volume_list, name, f"{path}.volumes", errors)
    claims = spec.get("resourceClaims") or ()
    if claims:
        pod_claims.check_device_claims(claims, metadata, f"{path}.resourceClaims", errors)
    pod = pod_containers.PodContext(
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


def _check_scheduling(spec: Object, path: str, errors: Errors) -> None:
    if affinity := spec.get("affinity"):
        pod_affinity.check_affinity(affinity, f"{path}.affinity", errors)
    config, where = spec.get("dnsConfig"), f"{path}.dnsConfig"
    is_required = spec.get("dnsPolicy") == "None"
    if config is None:
        if is_required:
            errors.required(where, "must provide `dnsConfig` when `dnsPolicy` is None")
    elif is_required and not config.get("nameservers"):
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        errors.required(f"{where}.nameservers", detail)
    elif config:
        _check_dns_config(config, where, errors)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        errors.named(f"{path}.readinessGates[{i}].conditionType", kind, names.qualified_name)
    names_so_far: set[str] = set()
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        where, name = f"{path}.schedulingGates[{i}]", gate.get("name", "")
        errors.named(where, name, names.qualified_name)
        errors.unique(where, name, names_so_far)
    if constraints := spec.get("topologySpreadConstraints"):
        pod_affinity.check_topology_spread(constraints, f"{path}.topologySpreadConstraints", errors)


def _check_dns_config(config: Object, path: str, errors: Errors) -> None:
    servers = config.get("nameservers") or []
    if len(servers) > MAX_NAMESERVERS:
        detail = f"must not have more than {MAX_NAMESERVERS} nameservers"
        errors.invalid(f"{path}.nameservers", servers, detail)
    for i, server in enumerate(servers):
        errors += addresses.validate(server, f"{path}.nameservers[{i}]")
    searches, where = config.get("searches") or [], f"{path}.searches"
    if len(searches) > MAX_SEARCHES:
        errors.invalid(where, searches, f"must not have more than {MAX_SEARCHES} search paths")
    if len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        detail = (
            f"must not have more than {MAX_SEARCH_CHARACTERS} characters "
            "(including spaces) in the search list"
        )
        errors.invalid(where, searches, detail)
    for i, search in enumerate(searches):
        if search != ".":
            domain = search.removesuffix(".")
            errors.named(f"{where}[{i}]", domain, names.dns_subdomain_underscore)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.required(f"{path}.options[{i}]", "must not be empty")


def _check_host(spec: Object, path: str, errors: Errors) -> None:
    """The fields about the pod's host."""
    containers = list(pod_security.containers(spec, path))
    owners = (spec, *(each for each, _ in containers))
    if any((each.get("securityContext") or {}).get("windowsOptions") for each in owners):
        pod_windows.check_host_process(spec, path, containers, errors)
    if spec.get("hostUsers") is False:
        for key, label in _HOST_FLAGS:
            if spec.get(key):
                errors.forbidden(f"{path}.{label}", _NO_HOST_USERS)
        for container, where in containers:
            if container.get("volumeDevices"):
                errors.forbidden(f"{where}.volumeDevices", _NO_HOST_USERS)
    if (override := spec.get("hostnameOverride")) is not None:
        where = f"{path}.hostnameOverride"
        for key in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(key):
                errors.forbidden(where, f"may not be specified when {key} is true")
        errors.too_long(where, override, HOSTNAME_OVERRIDE_LENGTH)
        errors.named(where, override, names.dns_subdomain)


_HOST_FLAGS = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))


def _check_identity(spec: Object, path: str, errors: Errors, effects: Effects) -> None:
    for key in ("serviceAccountName", "nodeName"):
        if name := spec.get(key):
            errors.named(f"{path}.{key}", name, names.dns_subdomain)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        complaints = names.in_range(deadline, 1, 2**31 - 1)
        errors.each(f"{path}.activeDeadlineSeconds", deadline, complaints)
    for key in ("hostname", "subdomain"):
        if name := spec.get(key):
            errors.named(f"{path}.{key}", name, names.dns_label)
    if tolerations := spec.get("tolerations"):
        pod_affinity.check_tolerations(tolerations, f"{path}.tolerations", errors, effects)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        where = f"{path}.hostAliases[{i}]"
        errors += addresses.validate(alias.get("ip", ""), f"{where}.ip")
        for j, name in enumerate(alias.get("hostnames") or ()):
            errors.named(f"{where}.hostnames[{j}]", name, names.dns_subdomain)


def _check_classes(spec: Object, path: str, errors: Errors) -> None:
    for key in ("priorityClassName", "runtimeClassName"):
        # An empty name of a priority class counts as none.
        if (name := spec.get(key)) or (name == "" and key == "runtimeClassName"):
            errors.named(f"{path}.{key}", name, names.dns_subdomain)
    if (policy := spec.get("preemptionPolicy")) is not None:
        errors.required_one_of(f"{path}.preemptionPolicy", policy, _PREEMPTION_POLICIES)
    if overhead := spec.get("overhead"):
        pod_resources.check_overhead(overhead, f"{path}.overhead", errors)
    if spec.get("os") is not None:
        pod_windows.check_os(spec, path, list(pod_security.containers(spec, path)), errors)


def _check_files_of_env(spec: Object, path: str, errors: Errors) -> None:
    """A variable from a file needs an emptyDir volume of the pod."""
    # The last volume of a name counts, as in Kubernetes.
    volumes = {each.get("name", ""): each for each in spec.get("volumes") or ()}
    for container, where in pod_security.containers(spec, path):
        for i, variable in enumerate(container.get("env") or ()):
            reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if reference is not None:
                where_file = f"{where}.env[{i}].valueFrom.fileKeyRef.volumeName"
                name = reference.get("volumeName", "")
                if name not in volumes:
                    errors.not_found(where_file, name)
                elif volumes[name].get("emptyDir") is None:
                    errors.invalid(where_file, name, "referenced volume must be of type emptyDir")
