# SPDX-License-Identifier: Apache-2.0
"""The containers of a pod: those that run, that prepare, and that debug.

What all containers obey comes first, then what each sort has of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from refloat.api import go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation import pod_env, pod_probes, pod_resources, pod_security
from refloat.api.validation import pod_mounts as mounts
from refloat.api.validation.rules import Errors

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "Never", "OnFailure")

MAX_RESTART_RULES = 20
MAX_EXIT_CODES = 255

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESTART_ACTIONS = ("Restart", "RestartAllContainers")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_EPHEMERAL_FORBIDDEN = (
    *("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
)


@dataclass(slots=True)
class PodContext:
    """What containers refer to in their pod."""

    volumes: Mapping[str, Object]  # the valid ones, by name
    claims: Mapping[str, Object]  # claimed devices, by name
    grace: int | None
    restart_policy: str
    host_users: bool


def check_containers(
    containers: Sequence[Object], pod: PodContext, path: str, errors: Errors
) -> None:
    if not containers:
        errors.required(path)
        return
    names_so_far: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_common(container, pod, where, errors)
        errors.unique(f"{where}.name", container.get("name", ""), names_so_far)
        pod_probes.check_probes_and_hooks(container, pod.grace, where, errors)
        _check_restart(container, where, errors)
    _check_host_ports(containers, path, errors)


def check_init_containers(
    containers: Sequence[Object],
    others: Sequence[Object],
    pod: PodContext,
    path: str,
    errors: Errors,
) -> None:
    names_so_far = {each.get("name", "") for each in others}
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_common(container, pod, where, errors)
        _check_restart(container, where, errors, is_init=True)
        name = container.get("name", "")
        if not errors.repeated(f"{where}.name", name, names_so_far) and name:
            names_so_far.add(name)
        _check_host_ports((container,), path, errors)
        if container.get("restartPolicy") == "Always":
            pod_probes.check_probes_and_hooks(container, pod.grace, where, errors)
            continue
        # The kubelet neither probes nor restarts a container that ends before the pod starts.
        for key in ("lifecycle", *pod_probes.PROBES):
            if container.get(key) is not None:
                errors.forbidden(f"{where}.{key}", _ONLY_SIDECARS)
        for j, policy in enumerate(container.get("resizePolicy") or ()):
            if (restart := policy.get("restartPolicy")) == "RestartContainer":
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                errors.invalid(f"{where}.resizePolicy[{j}].restartPolicy", restart, detail)


def check_ephemeral_containers(
    containers: Sequence[Object],
    others: Sequence[Object],
    pod: PodContext,
    path: str,
    errors: Errors,
) -> None:
    targets = {each.get("name", "") for each in others}
    names_so_far = set(targets)
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_common(container, pod, where, errors)
        check_image_unpadded(container, where, errors)
        errors.unique(f"{where}.name", container.get("name", ""), names_so_far)
        target = container.get("targetContainerName", "")
        if target and target not in targets:
            errors.not_found(f"{where}.targetContainerName", target)
        for key in _EPHEMERAL_FORBIDDEN:
            if container.get(key):
                errors.forbidden(f"{where}.{key}", _NOT_EPHEMERAL)
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            for key in ("subPath", "subPathExpr"):
                if mount.get(key):
                    errors.forbidden(f"{where}.volumeMounts[{j}].{key}", _NOT_EPHEMERAL)


def check_image_unpadded(container: Object, path: str, errors: Errors) -> None:
    image = container.get("image", "")
    if image != image.strip():
        errors.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")


def _check_common(container: Object, pod: PodContext, path: str, errors: Errors) -> None:
    errors.required_name(f"{path}.name", container.get("name", ""), names.dns_label)
    errors.required_keys(container, ("image",), path)
    policy = container.get("terminationMessagePolicy", "")
    errors.required_one_of(f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES)
    for key, check in _PARTS.items():
        if part := container.get(key):
            check(part, f"{path}.{key}", errors)
    mounts.check_mounts_and_devices(container, pod.volumes, path, errors)
    policy = container.get("imagePullPolicy", "")
    errors.required_one_of(f"{path}.imagePullPolicy", policy, PULL_POLICIES)
    if resources := container.get("resources"):
        pod_resources.check_container(resources, pod.claims, f"{path}.resources", errors)
    resource_names: set[str] = set()
    for i, each in enumerate(container.get("resizePolicy") or ()):
        where, name = f"{path}.resizePolicy", each.get("resourceName", "")
        if name in resource_names:
            errors.duplicate(f"{where}[{i}]", go_internal_types.typed(name))
        resource_names.add(name)
        errors.required_one_of(where, name, ("cpu", "memory"))
        restart = each.get("restartPolicy", "")
        errors.required_one_of(where, restart, _RESIZE_POLICIES)
        if pod.restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.invalid(where, go_internal_types.typed(restart), detail)
    if context := container.get("securityContext"):
        where = f"{path}.securityContext"
        pod_security.check_container(context, where, errors, host_users=pod.host_users)


def _check_ports(ports: Sequence[Object], path: str, errors: Errors) -> None:
    names_so_far: set[str] = set()
    for i, port in enumerate(ports):
        where = f"{path}[{i}]"
        if name := port.get("name"):
            if complaints := names.port_name(name):
                errors.each(f"{where}.name", name, complaints)
            else:
                errors.unique(f"{where}.name", name, names_so_far)
        if number := port.get("containerPort"):
            errors.each(f"{where}.containerPort", number, names.port_number(number))
        else:
            errors.required(f"{where}.containerPort")
        if number := port.get("hostPort"):
            errors.each(f"{where}.hostPort", number, names.port_number(number))
        protocol = port.get("protocol", "")
        errors.required_one_of(f"{where}.protocol", protocol, PROTOCOLS)


def _check_host_ports(containers: Sequence[Object], path: str, errors: Errors) -> None:
    """Only one container can have a port of the host."""
    ports: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            if number := port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                errors.unique(f"{path}[{i}].ports[{j}].hostPort", key, ports)


def _check_restart(container: Object, path: str, errors: Errors, *, is_init: bool = False) -> None:
    """A container's own restart policy, with rules by exit code."""
    policy, restart_rules = container.get("restartPolicy"), container.get("restartPolicyRules")
    if policy is None and restart_rules:
        detail = "must specify restartPolicy when restart rules are used"
        errors.required(f"{path}.restartPolicy", detail)
    if policy is None and is_init:
        return  # Kubernetes does not look at the rules of an init container without a policy
    errors.one_of(f"{path}.restartPolicy", policy, RESTART_POLICIES)
    where = f"{path}.restartPolicyRules"
    errors.too_many(where, restart_rules or (), MAX_RESTART_RULES)
    for i, rule in enumerate(restart_rules or ()):
        errors.one_of(f"{where}[{i}].action", rule.get("action", ""), _RESTART_ACTIONS)
        codes: Object | None = rule.get("exitCodes")
        if codes is None:
            errors.required(f"{where}[{i}].exitCodes", "must be specified")
            continue
        operator, values = codes.get("operator", ""), codes.get("values") or ()
        errors.one_of(f"{where}[{i}].exitCodes.operator", operator, ("In", "NotIn"))
        errors.too_many(f"{where}[{i}].exitCodes.values", values, MAX_EXIT_CODES)


_PARTS = {
    "ports": _check_ports,
    "env": pod_env.check_env,
    "envFrom": pod_env.check_env_from,
}
