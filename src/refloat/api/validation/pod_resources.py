# SPDX-License-Identifier: Apache-2.0
"""Requests and limits: of a container, of a whole pod, and its overhead."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from refloat.api import fields, go_internal_types, names, quantity, resource_requests
from refloat.api.meta import Object
from refloat.api.validation import rules
from refloat.api.validation.rules import Errors

NameCheck: TypeAlias = Callable[[str, str, Errors], None]

HUGEPAGES = "hugepages-"
_COMPUTE = ("cpu", "memory")
_CONTAINER_NAMES = frozenset(("cpu", "memory", "ephemeral-storage"))
_COUNTED = frozenset(
    (
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    )
)
_STANDARD_NAMES = (
    _CONTAINER_NAMES
    | _COUNTED
    | {
        *("storage", "requests.cpu", "requests.memory", "requests.storage"),
        *("requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"),
    }
)
_STANDARD_PREFIXES = (HUGEPAGES, "requests.hugepages-")
_POD_NAMES = ("cpu", HUGEPAGES, "memory")


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines a resource of this name."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether a resource is not Kubernetes' own; its amounts are whole numbers."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def is_overcommittable(name: str) -> bool:
    """Whether requests of the resource may be below its limits."""
    return is_native(name) and not name.startswith(HUGEPAGES)


def _check_name(name: str, path: str, errors: Errors) -> bool:
    if complaints := names.qualified_name(name):
        errors.each(path, go_internal_types.typed(name), complaints)
        return False
    if "/" in name or name in _STANDARD_NAMES or name.startswith(_STANDARD_PREFIXES):
        return True
    detail = "must be a standard resource type or fully qualified"
    errors.invalid(path, go_internal_types.typed(name), detail)
    return False


def _check_container_name(name: str, path: str, errors: Errors) -> None:
    if name in _CONTAINER_NAMES:
        return
    _check_name(name, path, errors)
    if "/" not in name:
        if not name.startswith(HUGEPAGES):
            detail = "must be a standard resource for containers"
            errors.invalid(path, go_internal_types.typed(name), detail)
    elif not is_native(name) and not is_extended(name):
        detail = "doesn't follow extended resource name standard"
        errors.invalid(path, go_internal_types.typed(name), detail)


def _check_pod_name(name: str, path: str, errors: Errors) -> None:
    if name in _COMPUTE or not _check_name(name, path, errors):
        return
    if not name.startswith(HUGEPAGES):
        errors.not_supported(path, go_internal_types.typed(name), _POD_NAMES)


def check_container(
    resources: Object, claims: Mapping[str, Object], path: str, errors: Errors
) -> None:
    """The resources of one container; `claims` are those of its pod, by name."""
    _check_requirements(resources, _check_container_name, path, errors)
    if container_claims := resources.get("claims"):
        _check_claims(container_claims, claims, f"{path}.claims", errors)


def check_overhead(overhead: Object, path: str, errors: Errors) -> None:
    _check_requirements({"limits": overhead}, _check_container_name, path, errors)


def check_pod(spec: Object, path: str, errors: Errors) -> None:
    """The resources that all containers of a pod share."""
    resources = spec.get("resources")
    if resources is None:
        return
    where = f"{path}.resources"
    if (spec.get("os") or {}).get("name") == "windows":
        errors.forbidden(where, "may not be set for a windows pod")
        return
    if resources.get("claims"):
        errors.forbidden(f"{where}.claims", "claims may not be set for Resources at pod-level")
    _check_requirements(resources, _check_pod_name, where, errors)
    if pod_claims := resources.get("claims"):
        claims = {each.get("name", ""): each for each in spec.get("resourceClaims") or ()}
        _check_claims(pod_claims, claims, f"{where}.claims", errors)
    # The sums of the containers against the resources of the pod.
    for kind in ("requests", "limits"):
        own = resources.get(kind) or {}
        for name, total in resource_requests.aggregate(spec, kind).items():
            is_bounded = name in own and (kind == "requests" or name.startswith(HUGEPAGES))
            if is_bounded and quantity.compare(total, own[name]) > 0:
                detail = f"must be greater than or equal to aggregate container {kind} of {total}"
                errors.invalid(f"{where}.{kind}[{name}]", own[name], detail)
    limits = resources.get("limits") or {}
    errors += [
        fields.invalid(
            f"{where}.containers[{i}][{name}].limits",
            amount,
            f"must be less than or equal to pod limits of {limits[name]}",
        )
        for i, container in enumerate(spec.get("containers") or ())
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items()
        if name in limits and quantity.value(amount) > quantity.value(limits[name])
    ]


def _check_requirements(
    resources: Object, check_name: NameCheck, path: str, errors: Errors
) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{kind}[{name}]"
            check_name(name, where, errors)
            check_quantity(name, amount, where, errors)
            if kind == "requests":
                _check_within_limit(name, amount, limits.get(name), path, errors)
            if name.startswith(HUGEPAGES):
                try:
                    size = quantity.value(name.removeprefix(HUGEPAGES))
                except quantity.QuantityError:
                    size = 0
                if size <= 0 or size != int(size) or quantity.int_value(amount) % size:
                    detail = f"{amount} is not positive integer multiple of {name}"
                    errors.invalid(where, amount, detail)
    resource_names = {*limits, *requests}
    has_pages = any(name.startswith(HUGEPAGES) for name in resource_names)
    if has_pages and resource_names.isdisjoint(_COMPUTE):
        errors.forbidden(path, "HugePages require cpu or memory")


def check_quantity(name: str, amount: str, path: str, errors: Errors) -> None:
    """An amount of a resource: not negative, and whole for countable resources."""
    value = quantity.value(amount)
    if value < 0:
        errors.invalid(path, amount, rules.NEGATIVE)
    if value != int(value) and (name in _COUNTED or is_extended(name)):
        errors.invalid(path, amount, "must be an integer")


def _check_within_limit(
    name: str, amount: str, limit: str | None, path: str, errors: Errors
) -> None:
    if limit is None:
        if not is_overcommittable(name):
            errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    request, most = quantity.value(amount), quantity.value(limit)
    if request != most and not is_overcommittable(name):
        errors.invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
    elif request > most:
        detail = f"must be less than or equal to {name} limit of {limit}"
        errors.invalid(f"{path}.requests", amount, detail)


def _check_claims(
    references: list[Object], claims: Mapping[str, Object], path: str, errors: Errors
) -> None:
    keys: set[str] = set()
    parts: Counter[str] = Counter()  # the number of requests of each claim
    for i, claim in enumerate(references):
        where, name, request = f"{path}[{i}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            errors.required(where)
            continue
        # A container names a claim once, or each request of the claim once.
        if not errors.repeated(where, name, keys):
            key = f"{name}/{request}" if request else name
            if request:
                errors.named(f"{where}.request", request, names.dns_label)
            if not errors.repeated(where, key, keys) and not request:
                errors += [fields.duplicate(where, name)] * parts[name]
            if request and key not in keys:
                parts[name] += 1
            keys.add(key)
        if name not in claims:
            choices = ", ".join(sorted(claims))
            rest = f": {choices}" if choices else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{rest}"
            errors.not_found(where, name, detail)
