# SPDX-License-Identifier: Apache-2.0
"""What a pod's status may become.

The phase may change in any way. A container that has ended stays so, unless its restart
policy allows a restart.
"""

from collections.abc import Sequence
from typing import Any

from refloat.api import fields, go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation import addresses
from refloat.api.validation.rules import Errors

HEALTH_MESSAGE_LENGTH = 1024

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_KINDS = {
    "containerStatuses": "containers",
    "initContainerStatuses": "initContainers",
    "ephemeralContainerStatuses": "",
}
_MAPPING_KEYS = ("containerName", "resourceName", "requestName")


_NO_CONTAINER = (
    "must match the name of an entry in spec.initContainers.name or spec.containers.name"
)
_NO_RESOURCE = (
    "must match the extended resource name of an entry in "
    "spec.initContainers.resources.requests or spec.containers.resources.requests"
)


def check_change(new: Object, old: Object, errors: Errors) -> None:
    """The status of `new` against that of `old`; their specifications are one."""
    after, before = new.get("status") or {}, old.get("status") or {}
    spec = old.get("spec") or {}
    for i, condition in enumerate(after.get("conditions") or ()):
        where, kind = f"status.conditions[{i}]", condition.get("type", "")
        _check_generation(condition, where, errors)
        if kind not in _SYSTEM_CONDITIONS:
            errors.named(f"{where}.Type", kind, names.qualified_name)
    node, path = after.get("nominatedNodeName", ""), "status.nominatedNodeName"
    if node and node != before.get("nominatedNodeName", ""):
        errors.named(path, node, names.dns_subdomain)
        if spec.get("nodeName"):
            errors.forbidden(path, "may not be set on pods that are already bound to a node")
    _check_generation(after, "status", errors)
    errors.immutable("status.qosClass", after.get("qosClass", ""), before.get("qosClass", ""))
    for key, containers in _KINDS.items():
        _check_transitions(after, before, spec, key, containers, errors)
    _check_claim_statuses(after, spec, errors)
    _check_addresses(after, before, "podIPs", errors)
    hosts = after.get("hostIPs") or ()
    if hosts and (ip := hosts[0].get("ip", "")) != after.get("hostIP", ""):
        errors.invalid("status.hostIPs[0].ip", ip, "must be equal to `hostIP`")
    _check_addresses(after, before, "hostIPs", errors)
    _check_users_and_devices(after, spec, errors)


def _check_generation(owner: Object, path: str, errors: Errors) -> None:
    if (generation := owner.get("observedGeneration", 0)) < 0:
        errors.invalid(f"{path}.observedGeneration", generation, "must be a non-negative integer")


def _check_transitions(
    after: Object, before: Object, spec: Object, key: str, kind: str, errors: Errors
) -> None:
    if kind and any(
        rule.get("action") == "RestartAllContainers"
        for container in _containers(spec)
        for rule in container.get("restartPolicyRules") or ()
    ):
        return
    running = {
        each.get("name", ""): each
        for each in reversed(after.get(key) or ())
        if not (each.get("state") or {}).get("terminated")
    }
    for i, status in enumerate(before.get(key) or ()):
        terminated = (status.get("state") or {}).get("terminated")
        name = status.get("name", "")
        if terminated and name in running and not _may_restart(spec, kind, name, terminated):
            detail = "may not be transitioned to non-terminated state"
            errors.forbidden(f"status.{key}[{i}].state", detail)


def _containers(spec: Object) -> Sequence[Object]:
    return (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))


def _may_restart(spec: Object, kind: str, name: str, terminated: Object) -> bool:
    owners = spec.get(kind) or () if kind else ()
    container = next((each for each in owners if each.get("name") == name), None)
    if container is None:
        return False
    code = terminated.get("exitCode", 0)
    policy = container.get("restartPolicy")
    for rule in container.get("restartPolicyRules") or () if policy is not None else ():
        if (codes := rule.get("exitCodes")) is not None:
            is_listed = code in (codes.get("values") or ())
            if is_listed == (codes.get("operator") == "In"):
                return True
    policy = policy or spec.get("restartPolicy", "Always")
    return bool(code) if policy == "OnFailure" else policy != "Never"


def _check_claim_statuses(after: Object, spec: Object, errors: Errors) -> None:
    """The statuses of claims, and the claim for extended resources."""
    claim_names = {each.get("name", "") for each in spec.get("resourceClaims") or ()}
    names_so_far: set[str] = set()
    for i, status in enumerate(after.get("resourceClaimStatuses") or ()):
        path, name = f"status.resourceClaimStatuses[{i}]", status.get("name", "")
        if name not in claim_names:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.invalid(f"{path}.name", name, detail)
        errors.unique(f"{path}.name", name, names_so_far)
        if (claim := status.get("resourceClaimName")) is not None:
            errors.named(f"{path}.resourceClaimName", claim, names.dns_subdomain)
    path = "status.extendedResourceClaimStatus"
    if (claim := after.get("extendedResourceClaimStatus")) is None:
        return
    containers = {each.get("name", ""): each for each in _containers(spec)}
    mappings = claim.get("requestMappings") or ()
    where = f"{path}.requestMappings"
    if not mappings:
        errors.required(where, "at least one request mapping is required")
    triples: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        name, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
        if name not in containers:
            errors.invalid(f"{where}[{i}].containerName", name, _NO_CONTAINER)
        elif resource not in ((containers[name].get("resources") or {}).get("requests") or {}):
            errors.invalid(f"{where}[{i}].resourceName", resource, _NO_RESOURCE)
        request = mapping.get("requestName", "")
        errors.named(f"{path}.requestName", request, names.dns_label)
        triple = tuple(mapping.get(key, "") for key in _MAPPING_KEYS)
        if triple in triples:
            pairs = zip(_MAPPING_KEYS, triple, strict=True)
            errors += [fields.duplicate(f"{where}[{i}].{key}", value) for key, value in pairs]
        triples.add(triple)
    name = claim.get("resourceClaimName", "")
    errors.required_name(f"{path}.resourceClaimName", name, names.dns_subdomain)


def _check_addresses(after: Object, before: Object, key: str, errors: Errors) -> None:
    """One address, or one of each family."""
    addresses_now = after.get(key) or ()
    stored = [each.get("ip", "") for each in before.get(key) or ()]
    texts = [each.get("ip", "") for each in addresses_now]
    for i, text in enumerate(texts):
        errors += addresses.validate(text, f"status.{key}[{i}]", stored)
    if len(texts) < 2:
        return
    parsed: list[Any] = [addresses.parse(text) for text in texts]
    wrong = [i for i, each in enumerate(parsed) if each is None]
    if wrong:
        reason = f"invalid IP[{wrong[0]}]: {texts[wrong[0]]}"
        detail = f"failed to check for dual stack with error:{reason}"
        errors.append(fields.internal(f"status.{key}", detail))
    if wrong or len(texts) > 2 or len({each.version for each in parsed}) < 2:
        detail = "may specify no more than one IP for each IP family"
        kind = "[]core.PodIP" if key == "podIPs" else "[]core.HostIP"
        errors.invalid(f"status.{key}", go_internal_types.shown(kind, list(addresses_now)), detail)


def _check_users_and_devices(after: Object, spec: Object, errors: Errors) -> None:
    """The users of all containers, and then the devices of all containers."""
    statuses = [
        (status, kind, f"status.{key}[{i}]")
        for key, kind in _KINDS.items()
        for i, status in enumerate(after.get(key) or ())
    ]
    # The first container of a name counts.
    containers = {
        (kind, each.get("name")): each
        for kind in filter(None, _KINDS.values())
        for each in reversed(spec.get(kind) or ())
    }
    for status, _, path in statuses:
        user, where = (status.get("user") or {}).get("linux"), f"{path}.user.linux"
        if user is None:
            continue
        if (spec.get("os") or {}).get("name") == "windows":
            errors.forbidden(where, "cannot be set for a windows pod")
            continue
        ids = [(key, user.get(key, 0)) for key in ("uid", "gid")]
        groups = enumerate(user.get("supplementalGroups") or ())
        for key, identity in (*ids, *((f"supplementalGroups[{j}]", each) for j, each in groups)):
            errors.each(f"{where}.{key}", identity, names.user_id(identity))
    for status, kind, path in statuses:
        devices, where = status.get("allocatedResourcesStatus"), f"{path}.allocatedResourcesStatus"
        if devices and not kind:
            errors.forbidden(where, "must not be specified in container status")
            continue
        container = containers.get((kind, status.get("name", "")))
        for j, device in enumerate(devices or ()):
            _check_device(device, container, f"{where}[{j}]", errors)


def _check_device(device: Object, container: Object | None, path: str, errors: Errors) -> None:
    """The health of a device, and its name, by which the container asked for the device."""
    resources, name = (container or {}).get("resources") or {}, device.get("name", "")
    choices = set(resources.get("requests") or ())
    detail = "must match one of the container's resource requests"
    if name.startswith("claim:"):
        claims = resources.get("claims") or ()
        pairs = ((each.get("name", ""), each.get("request", "")) for each in claims)
        choices = {f"claim:{claim}/{part}".removesuffix("/") for claim, part in pairs}
        detail = (
            "must match one of the container's resource claims in a format "
            "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
        )
    if container is not None and name not in choices:
        errors.invalid(f"{path}.name", go_internal_types.typed(name), detail)
    ids: set[str] = set()
    for k, each in enumerate(device.get("resources") or ()):
        where = f"{path}.resources[{k}]"
        errors.one_of(f"{where}.health", each.get("health", ""), _HEALTH)
        if (message := each.get("message")) is not None:
            if not message:
                errors.required(f"{where}.message", "must be non-empty if specified")
            errors.too_long(f"{where}.message", message, HEALTH_MESSAGE_LENGTH)
        identity = each.get("resourceID", "")
        if identity in ids:
            errors.duplicate(f"{where}.resourceID", go_internal_types.typed(identity))
        ids.add(identity)


def warnings(status: Object) -> list[str]:
    """Addresses that are valid, but not in their usual form."""
    return [
        warning
        for key in ("podIPs", "hostIPs")
        for i, each in enumerate(status.get(key) or ())
        for warning in addresses.warnings(each.get("ip", ""), f"status.{key}[{i}].ip")
    ]
