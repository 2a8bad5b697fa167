# SPDX-License-Identifier: Apache-2.0
"""What a pod's status may become.

The phase may change in any way; what has ended stays ended, unless its restart
policy says that it starts anew.
"""

from collections.abc import Sequence
from typing import Any

from refloat.api import fields, internal, names
from refloat.api.meta import Object
from refloat.api.validation import addresses, meta
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

HEALTH_MESSAGE_LENGTH = 1024

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_KINDS = {
    "containerStatuses": "containers",
    "initContainerStatuses": "initContainers",
    "ephemeralContainerStatuses": "",
}
_MAPPING_KEYS = ("containerName", "resourceName", "requestName")
_GENERATION = "must be a non-negative integer"


def check_change(new: Object, old: Object, errors: Errors) -> None:
    """The status of `new` against that of `old`; their specifications are one."""
    after, before = new.get("status") or {}, old.get("status") or {}
    spec = old.get("spec") or {}
    for i, condition in enumerate(after.get("conditions") or ()):
        _check_condition(condition, f"status.conditions[{i}]", errors)
    _check_nomination(after, before, spec, errors)
    if (generation := after.get("observedGeneration", 0)) < 0:
        errors.append(fields.invalid("status.observedGeneration", generation, _GENERATION))
    classes = after.get("qosClass", ""), before.get("qosClass", "")
    errors += meta.immutable(*classes, "status.qosClass")
    for key, containers in _KINDS.items():
        _check_transitions(after, before, spec, key, containers, errors)
    _check_claim_statuses(after, spec, errors)
    if (extended := after.get("extendedResourceClaimStatus")) is not None:
        _check_extended_claim(extended, spec, "status.extendedResourceClaimStatus", errors)
    _check_addresses(after, before, errors)
    for key in _KINDS:
        _check_users(after.get(key) or (), spec, f"status.{key}", errors)
    for key, containers in _KINDS.items():
        owners = spec.get(containers) or () if containers else None
        _check_allocated(after.get(key) or (), owners, f"status.{key}", errors)


def _check_condition(condition: Object, path: str, errors: Errors) -> None:
    if (generation := condition.get("observedGeneration", 0)) < 0:
        errors.append(fields.invalid(f"{path}.observedGeneration", generation, _GENERATION))
    if (kind := condition.get("type", "")) not in _SYSTEM_CONDITIONS:
        rules.named(errors, f"{path}.Type", kind, names.qualified_name)


def _check_nomination(after: Object, before: Object, spec: Object, errors: Errors) -> None:
    """The node that room is being made on, for a pod that has none yet."""
    node, path = after.get("nominatedNodeName", ""), "status.nominatedNodeName"
    if not node or node == before.get("nominatedNodeName", ""):
        return
    rules.named(errors, path, node, names.dns_subdomain)
    if spec.get("nodeName"):
        detail = "may not be set on pods that are already bound to a node"
        errors.append(fields.forbidden(path, detail))


def _check_transitions(
    after: Object, before: Object, spec: Object, key: str, kind: str, errors: Errors
) -> None:
    if kind and _restarts_all(spec):
        return
    running = {
        each.get("name", ""): each
        for each in reversed(after.get(key) or ())
        if not (each.get("state") or {}).get("terminated")
    }
    for i, status in enumerate(before.get(key) or ()):
        ended = (status.get("state") or {}).get("terminated")
        name = status.get("name", "")
        if ended and name in running and not _may_restart(spec, kind, name, ended):
            detail = "may not be transitioned to non-terminated state"
            errors.append(fields.forbidden(f"status.{key}[{i}].state", detail))


def _containers(spec: Object) -> Sequence[Object]:
    return (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))


def _restarts_all(spec: Object) -> bool:
    """Whether some exit code of some container starts the whole pod anew."""
    return any(
        rule.get("action") == "RestartAllContainers"
        for container in _containers(spec)
        for rule in container.get("restartPolicyRules") or ()
    )


def _may_restart(spec: Object, kind: str, name: str, ended: Object) -> bool:
    owners = spec.get(kind) or () if kind else ()
    container = next((each for each in owners if each.get("name") == name), None)
    if container is None:
        return False
    code = ended.get("exitCode", 0)
    policy = container.get("restartPolicy")
    if policy is not None and _a_rule_matches(container, code):
        return True
    return _policy_allows(policy or spec.get("restartPolicy", "Always"), code)


def _policy_allows(policy: str, code: int) -> bool:
    return bool(code) if policy == "OnFailure" else policy != "Never"


def _a_rule_matches(container: Object, code: int) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes")
        if codes is not None:
            listed = code in (codes.get("values") or ())
            if listed == (codes.get("operator") == "In"):
                return True
    return False


def _check_claim_statuses(after: Object, spec: Object, errors: Errors) -> None:
    known = {each.get("name", "") for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for i, status in enumerate(after.get("resourceClaimStatuses") or ()):
        path, name = f"status.resourceClaimStatuses[{i}]", status.get("name", "")
        if name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(fields.invalid(f"{path}.name", name, detail))
        rules.repeated(errors, f"{path}.name", name, seen)
        seen.add(name)
        if (claim := status.get("resourceClaimName")) is not None:
            rules.named(errors, f"{path}.resourceClaimName", claim, names.dns_subdomain)


def _check_extended_claim(claim: Object, spec: Object, path: str, errors: Errors) -> None:
    """The claim that was made for extended resources, and which device is whose."""
    containers = {each.get("name", ""): each for each in _containers(spec)}
    mappings = claim.get("requestMappings") or ()
    where = f"{path}.requestMappings"
    if not mappings:
        errors.append(fields.required(where, "at least one request mapping is required"))
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        _check_mapping(mapping, containers, f"{where}[{i}]", errors)
        request = mapping.get("requestName", "")
        rules.named(errors, f"{path}.requestName", request, names.dns_label)
        triple = tuple(mapping.get(key, "") for key in _MAPPING_KEYS)
        if triple in seen:
            pairs = zip(_MAPPING_KEYS, triple, strict=True)
            errors += [fields.duplicate(f"{where}[{i}].{key}", value) for key, value in pairs]
        seen.add(triple)
    name = claim.get("resourceClaimName", "")
    rules.required_name(errors, f"{path}.resourceClaimName", name, names.dns_subdomain)


def _check_mapping(
    mapping: Object, containers: dict[str, Object], path: str, errors: Errors
) -> None:
    name, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
    if name not in containers:
        detail = (
            "must match the name of an entry in spec.initContainers.name or spec.containers.name"
        )
        errors.append(fields.invalid(f"{path}.containerName", name, detail))
    elif resource not in ((containers[name].get("resources") or {}).get("requests") or {}):
        detail = (
            "must match the extended resource name of an entry in "
            "spec.initContainers.resources.requests or spec.containers.resources.requests"
        )
        errors.append(fields.invalid(f"{path}.resourceName", resource, detail))


def _check_addresses(after: Object, before: Object, errors: Errors) -> None:
    _check_address_list(after, before, "podIPs", errors)
    hosts = after.get("hostIPs") or ()
    if hosts and hosts[0].get("ip", "") != after.get("hostIP", ""):
        path = "status.hostIPs[0].ip"
        errors.append(fields.invalid(path, hosts[0].get("ip", ""), "must be equal to `hostIP`"))
    _check_address_list(after, before, "hostIPs", errors)


def _check_address_list(after: Object, before: Object, key: str, errors: Errors) -> None:
    """One address, or one of each family."""
    held = after.get(key) or ()
    stored = [each.get("ip", "") for each in before.get(key) or ()]
    texts = [each.get("ip", "") for each in held]
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
        shown = internal.shown(kind, list(held))
        errors.append(fields.invalid(f"status.{key}", shown, detail))


def _check_users(statuses: Sequence[Object], spec: Object, path: str, errors: Errors) -> None:
    system = (spec.get("os") or {}).get("name", "linux")
    for i, status in enumerate(statuses):
        user = (status.get("user") or {}).get("linux")
        if user is None:
            continue
        where = f"{path}[{i}].user.linux"
        if system == "windows":
            errors.append(fields.forbidden(where, "cannot be set for a windows pod"))
            continue
        for key in ("uid", "gid"):
            identity = user.get(key, 0)
            errors += fields.invalid_each(f"{where}.{key}", identity, names.user_id(identity))
        for j, group in enumerate(user.get("supplementalGroups") or ()):
            complaints = names.user_id(group)
            errors += fields.invalid_each(f"{where}.supplementalGroups[{j}]", group, complaints)


def _check_allocated(
    statuses: Sequence[Object], owners: Sequence[Object] | None, path: str, errors: Errors
) -> None:
    """Devices given to a container; `owners` is None where there are none to give to."""
    for i, status in enumerate(statuses):
        allocated = status.get("allocatedResourcesStatus")
        where = f"{path}[{i}].allocatedResourcesStatus"
        if not allocated:
            continue
        if owners is None:
            errors.append(fields.forbidden(where, "must not be specified in container status"))
            continue
        name = status.get("name", "")
        container = next((each for each in owners if each.get("name") == name), None)
        for j, resource in enumerate(allocated):
            if container is not None:
                _check_asked_for(resource.get("name", ""), container, f"{where}[{j}]", errors)
            _check_health(resource, f"{where}[{j}]", errors)


def _check_asked_for(name: str, container: Object, path: str, errors: Errors) -> None:
    resources = container.get("resources") or {}
    if name.startswith("claim:"):
        known = {_claim_name(each) for each in resources.get("claims") or ()}
        detail = (
            "must match one of the container's resource claims in a format "
            "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
        )
    else:
        known = set(resources.get("requests") or ())
        detail = "must match one of the container's resource requests"
    if name not in known:
        errors.append(fields.invalid(f"{path}.name", internal.typed(name), detail))


def _claim_name(claim: Object) -> str:
    request = claim.get("request", "")
    return f"claim:{claim.get('name', '')}" + (f"/{request}" if request else "")


def _check_health(resource: Object, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for k, each in enumerate(resource.get("resources") or ()):
        where = f"{path}.resources[{k}]"
        rules.one_of(errors, f"{where}.health", each.get("health", ""), _HEALTH)
        if (message := each.get("message")) is not None:
            if not message:
                detail = "must be non-empty if specified"
                errors.append(fields.required(f"{where}.message", detail))
            elif names.longer(message, HEALTH_MESSAGE_LENGTH):
                errors.append(fields.too_long(f"{where}.message", HEALTH_MESSAGE_LENGTH))
        identity = each.get("resourceID", "")
        if identity in seen:
            errors.append(fields.duplicate(f"{where}.resourceID", internal.typed(identity)))
        seen.add(identity)


def warnings(status: Object) -> list[str]:
    """Addresses that are accepted but written in an odd way."""
    return [
        warning
        for key in ("podIPs", "hostIPs")
        for i, each in enumerate(status.get(key) or ())
        for warning in addresses.warnings(each.get("ip", ""), f"status.{key}[{i}].ip")
    ]
