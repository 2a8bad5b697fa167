# SPDX-License-Identifier: Apache-2.0
"""The containers of a pod: those that run, that prepare, and that debug.

What all containers obey comes first, then what each sort has of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refloat.api import fields, internal, names
from refloat.api.meta import Object
from refloat.api.validation import pod_env, pod_probes, pod_resources, pod_security
from refloat.api.validation import pod_mounts as mounts
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "Never", "OnFailure")

MAX_RESTART_RULES = 20
MAX_EXIT_CODES = 255

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESTART_ACTIONS = ("Restart", "RestartAllContainers")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"
_RULES_ALONE = "must specify restartPolicy when restart rules are used"
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_EPHEMERAL_FORBIDDEN = (
    *("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
)


@dataclass(slots=True)
class Surroundings:
    """What containers refer to in their pod."""

    volumes: Mapping[str, Object]  # the valid ones, by name
    claims: Mapping[str, Object]  # claimed devices, by name
    grace: int | None
    restart_policy: str
    host_users: bool


def check_containers(
    containers: Sequence[Object], pod: Surroundings, path: str, errors: Errors
) -> None:
    if not containers:
        errors.append(fields.required(path))
        return
    seen: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_common(container, pod, where, errors)
        name = container.get("name", "")
        rules.repeated(errors, f"{where}.name", name, seen)
        seen.add(name)
        pod_probes.check_probes_and_hooks(container, pod.grace, where, errors)
        _check_restart(container, where, errors)
    _check_host_ports(containers, path, errors)


def check_init_containers(
    containers: Sequence[Object],
    others: Sequence[Object],
    pod: Surroundings,
    path: str,
    errors: Errors,
) -> None:
    seen = {each.get("name", "") for each in others}
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_common(container, pod, where, errors)
        _check_init_restart(container, where, errors)
        name = container.get("name", "")
        if not rules.repeated(errors, f"{where}.name", name, seen) and name:
            seen.add(name)
        _check_host_ports((container,), path, errors)
        if container.get("restartPolicy") == "Always":
            pod_probes.check_probes_and_hooks(container, pod.grace, where, errors)
        else:
            _check_no_sidecar(container, where, errors)


def _check_no_sidecar(container: Object, path: str, errors: Errors) -> None:
    """What ends before the pod starts is neither probed nor restarted in place."""
    for key in ("lifecycle", *pod_probes.PROBES):
        if container.get(key) is not None:
            errors.append(fields.forbidden(f"{path}.{key}", _ONLY_SIDECARS))
    for i, policy in enumerate(container.get("resizePolicy") or ()):
        if policy.get("restartPolicy") == "RestartContainer":
            detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            where = f"{path}.resizePolicy[{i}].restartPolicy"
            errors.append(fields.invalid(where, "RestartContainer", detail))


def check_ephemeral_containers(
    containers: Sequence[Object],
    others: Sequence[Object],
    pod: Surroundings,
    path: str,
    errors: Errors,
) -> None:
    targets = {each.get("name", "") for each in others}
    seen = set(targets)
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_common(container, pod, where, errors)
        check_image_unpadded(container, where, errors)
        name = container.get("name", "")
        rules.repeated(errors, f"{where}.name", name, seen)
        seen.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in targets:
            errors.append(fields.not_found(f"{where}.targetContainerName", target))
        _check_ephemeral_fields(container, where, errors)


def _check_ephemeral_fields(container: Object, path: str, errors: Errors) -> None:
    errors += [
        fields.forbidden(f"{path}.{key}", _NOT_EPHEMERAL)
        for key in _EPHEMERAL_FORBIDDEN
        if container.get(key)
    ]
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        errors += [
            fields.forbidden(f"{path}.volumeMounts[{i}].{key}", _NOT_EPHEMERAL)
            for key in ("subPath", "subPathExpr")
            if mount.get(key)
        ]


def check_image_unpadded(container: Object, path: str, errors: Errors) -> None:
    image = container.get("image", "")
    if image != image.strip():
        detail = "must not have leading or trailing whitespace"
        errors.append(fields.invalid(f"{path}.image", image, detail))


def _check_common(container: Object, pod: Surroundings, path: str, errors: Errors) -> None:
    rules.required_name(errors, f"{path}.name", container.get("name", ""), names.dns_label)
    rules.required_keys(errors, container, ("image",), path)
    policy = container.get("terminationMessagePolicy", "")
    where = f"{path}.terminationMessagePolicy"
    rules.required_one_of(errors, where, policy, _MESSAGE_POLICIES)
    for key, check in _PARTS.items():
        if part := container.get(key):
            check(part, f"{path}.{key}", errors)
    mounts.check_mounts_and_devices(container, pod.volumes, path, errors)
    policy = container.get("imagePullPolicy", "")
    rules.required_one_of(errors, f"{path}.imagePullPolicy", policy, PULL_POLICIES)
    if resources := container.get("resources"):
        pod_resources.check_container(resources, pod.claims, f"{path}.resources", errors)
    if policies := container.get("resizePolicy"):
        _check_resize(policies, pod.restart_policy, f"{path}.resizePolicy", errors)
    if context := container.get("securityContext"):
        where = f"{path}.securityContext"
        pod_security.check_container(context, where, errors, host_users=pod.host_users)


def _check_ports(ports: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, port in enumerate(ports):
        where = f"{path}[{i}]"
        if name := port.get("name"):
            _check_port_name(name, seen, f"{where}.name", errors)
        _check_port_numbers(port, where, errors)
        protocol = port.get("protocol", "")
        rules.required_one_of(errors, f"{where}.protocol", protocol, PROTOCOLS)


def _check_port_name(name: str, seen: set[str], path: str, errors: Errors) -> None:
    if complaints := names.port_name(name):
        errors += fields.invalid_each(path, name, complaints)
    else:
        rules.repeated(errors, path, name, seen)
        seen.add(name)


def _check_port_numbers(port: Object, path: str, errors: Errors) -> None:
    if number := port.get("containerPort"):
        complaints = names.port_number(number)
        errors += fields.invalid_each(f"{path}.containerPort", number, complaints)
    else:
        errors.append(fields.required(f"{path}.containerPort"))
    if number := port.get("hostPort"):
        complaints = names.port_number(number)
        errors += fields.invalid_each(f"{path}.hostPort", number, complaints)


def _check_host_ports(containers: Sequence[Object], path: str, errors: Errors) -> None:
    """A port of the host can be given away once."""
    seen: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            if number := port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                where = f"{path}[{i}].ports[{j}].hostPort"
                rules.repeated(errors, where, key, seen)
                seen.add(key)


def _check_resize(
    policies: Sequence[Object], restart_policy: str, path: str, errors: Errors
) -> None:
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        resource = policy.get("resourceName", "")
        if resource in seen:
            errors.append(fields.duplicate(f"{path}[{i}]", internal.typed(resource)))
        seen.add(resource)
        rules.required_one_of(errors, path, resource, ("cpu", "memory"))
        restart = policy.get("restartPolicy", "")
        rules.required_one_of(errors, path, restart, _RESIZE_POLICIES)
        if restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(fields.invalid(path, internal.typed(restart), detail))


def _check_init_restart(container: Object, path: str, errors: Errors) -> None:
    """The same for what prepares a pod: rules without a policy are looked at no further."""
    if container.get("restartPolicy") is not None:
        _check_restart(container, path, errors)
    elif container.get("restartPolicyRules"):
        errors.append(fields.required(f"{path}.restartPolicy", _RULES_ALONE))


def _check_restart(container: Object, path: str, errors: Errors) -> None:
    """A container's own restart policy, with rules by exit code."""
    policy, given = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        if given:
            errors.append(fields.required(f"{path}.restartPolicy", _RULES_ALONE))
    else:
        rules.one_of(errors, f"{path}.restartPolicy", policy, RESTART_POLICIES)
    where = f"{path}.restartPolicyRules"
    if len(given) > MAX_RESTART_RULES:
        errors.append(fields.too_many(where, len(given), MAX_RESTART_RULES))
    for i, rule in enumerate(given):
        _check_restart_rule(rule, f"{where}[{i}]", errors)


def _check_restart_rule(rule: Object, path: str, errors: Errors) -> None:
    rules.one_of(errors, f"{path}.action", rule.get("action", ""), _RESTART_ACTIONS)
    codes: Any = rule.get("exitCodes")
    if codes is None:
        errors.append(fields.required(f"{path}.exitCodes", "must be specified"))
        return
    operator = codes.get("operator", "")
    rules.one_of(errors, f"{path}.exitCodes.operator", operator, ("In", "NotIn"))
    if (count := len(codes.get("values") or ())) > MAX_EXIT_CODES:
        errors.append(fields.too_many(f"{path}.exitCodes.values", count, MAX_EXIT_CODES))


_PARTS = {
    "ports": _check_ports,
    "env": pod_env.check_env,
    "envFrom": pod_env.check_env_from,
}
