# SPDX-License-Identifier: Apache-2.0
"""Requests and limits: of a container, of a whole pod, and its overhead."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from refloat.api import fields, internal, names, quantity, requests
from refloat.api.meta import Object
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

NameCheck: TypeAlias = Callable[[str, str, Errors], None]

HUGEPAGES = "hugepages-"
_COMPUTE = ("cpu", "memory")
_CONTAINER_NAMES = frozenset(("cpu", "memory", "ephemeral-storage"))
_COUNTED = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_STANDARD_NAMES = (
    _CONTAINER_NAMES
    | _COUNTED
    | {
        "storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_STANDARD_PREFIXES = (HUGEPAGES, "requests.hugepages-")
_POD_NAMES = ("cpu", HUGEPAGES, "memory")


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines a resource of this name."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether a resource is somebody else's, counted in whole pieces."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def is_overcommittable(name: str) -> bool:
    """Whether more of it may be promised than there is."""
    return is_native(name) and not name.startswith(HUGEPAGES)


def _check_name(name: str, path: str, errors: Errors) -> bool:
    if complaints := names.qualified_name(name):
        errors += fields.invalid_each(path, internal.typed(name), complaints)
        return False
    if "/" in name or name in _STANDARD_NAMES or name.startswith(_STANDARD_PREFIXES):
        return True
    detail = "must be a standard resource type or fully qualified"
    errors.append(fields.invalid(path, internal.typed(name), detail))
    return False


def _check_container_name(name: str, path: str, errors: Errors) -> None:
    if name in _CONTAINER_NAMES:
        return
    _check_name(name, path, errors)
    if "/" not in name:
        if not name.startswith(HUGEPAGES):
            detail = "must be a standard resource for containers"
            errors.append(fields.invalid(path, internal.typed(name), detail))
    elif not is_native(name) and not is_extended(name):
        detail = "doesn't follow extended resource name standard"
        errors.append(fields.invalid(path, internal.typed(name), detail))


def _check_pod_name(name: str, path: str, errors: Errors) -> None:
    if name in _COMPUTE or not _check_name(name, path, errors):
        return
    if not name.startswith(HUGEPAGES):
        errors.append(fields.not_supported(path, internal.typed(name), _POD_NAMES))


def check_container(
    resources: Object, claims: Mapping[str, Object], path: str, errors: Errors
) -> None:
    """The resources of one container; `claims` are those of its pod, by name."""
    _check_requirements(resources, _check_container_name, path, errors)
    if asked := resources.get("claims"):
        _check_claims(asked, claims, f"{path}.claims", errors)


def check_overhead(overhead: Object, path: str, errors: Errors) -> None:
    _check_requirements({"limits": overhead}, _check_container_name, path, errors)


def check_pod(spec: Object, path: str, errors: Errors) -> None:
    """The resources that all containers of a pod share."""
    resources = spec.get("resources")
    if resources is None:
        return
    where = f"{path}.resources"
    if (spec.get("os") or {}).get("name") == "windows":
        errors.append(fields.forbidden(where, "may not be set for a windows pod"))
        return
    if resources.get("claims"):
        detail = "claims may not be set for Resources at pod-level"
        errors.append(fields.forbidden(f"{where}.claims", detail))
    _check_requirements(resources, _check_pod_name, where, errors)
    if asked := resources.get("claims"):
        claims = {each.get("name", ""): each for each in spec.get("resourceClaims") or ()}
        _check_claims(asked, claims, f"{where}.claims", errors)
    _check_sums(spec, resources, where, errors)


def _check_requirements(
    resources: Object, check_name: NameCheck, path: str, errors: Errors
) -> None:
    limits = resources.get("limits") or {}
    asked = resources.get("requests") or {}
    for name, amount in limits.items():
        _check_amount(name, amount, check_name, f"{path}.limits[{name}]", errors)
        _check_pages(name, amount, f"{path}.limits[{name}]", errors)
    for name, amount in asked.items():
        _check_amount(name, amount, check_name, f"{path}.requests[{name}]", errors)
        _check_within_limit(name, amount, limits.get(name), path, errors)
        _check_pages(name, amount, f"{path}.requests[{name}]", errors)
    held = {*limits, *asked}
    if any(name.startswith(HUGEPAGES) for name in held) and held.isdisjoint(_COMPUTE):
        errors.append(fields.forbidden(path, "HugePages require cpu or memory"))


def _check_amount(name: str, amount: str, check_name: NameCheck, path: str, errors: Errors) -> None:
    check_name(name, path, errors)
    check_quantity(name, amount, path, errors)


def check_quantity(name: str, amount: str, path: str, errors: Errors) -> None:
    """An amount of a resource: not negative, and whole where it is counted."""
    value = quantity.value(amount)
    if value < 0:
        errors.append(fields.invalid(path, amount, rules.NEGATIVE))
    if value != int(value) and (name in _COUNTED or is_extended(name)):
        errors.append(fields.invalid(path, amount, "must be an integer"))


def _check_within_limit(
    name: str, amount: str, limit: str | None, path: str, errors: Errors
) -> None:
    if limit is None:
        if not is_overcommittable(name):
            detail = "Limit must be set for non overcommitable resources"
            errors.append(fields.required(f"{path}.limits", detail))
        return
    asked, most = quantity.value(amount), quantity.value(limit)
    if asked != most and not is_overcommittable(name):
        detail = f"must be equal to {name} limit of {limit}"
        errors.append(fields.invalid(f"{path}.requests", amount, detail))
    elif asked > most:
        detail = f"must be less than or equal to {name} limit of {limit}"
        errors.append(fields.invalid(f"{path}.requests", amount, detail))


def _check_pages(name: str, amount: str, path: str, errors: Errors) -> None:
    if not name.startswith(HUGEPAGES):
        return
    size = _page_size(name)
    if size <= 0 or quantity.int_value(amount) % size:
        detail = f"{amount} is not positive integer multiple of {name}"
        errors.append(fields.invalid(path, amount, detail))


def _page_size(name: str) -> int:
    """The size in a huge page's name; 0 when it is none."""
    try:
        size = quantity.value(name.removeprefix(HUGEPAGES))
    except quantity.QuantityError:
        return 0
    return int(size) if size == int(size) else 0


def _check_claims(
    asked: list[Object], claims: Mapping[str, Object], path: str, errors: Errors
) -> None:
    seen: set[str] = set()
    parts: Counter[str] = Counter()  # requests that were asked for, by their claim's name
    for i, claim in enumerate(asked):
        where = f"{path}[{i}]"
        if name := claim.get("name", ""):
            request = claim.get("request", "")
            _check_claim_repeated(name, request, seen, parts, where, errors)
            _check_claim_known(name, claims, where, errors)
        else:
            errors.append(fields.required(where))


def _check_claim_repeated(
    name: str, request: str, seen: set[str], parts: Counter[str], path: str, errors: Errors
) -> None:
    """A claim is asked for once as a whole, or once for each of its requests."""
    if rules.repeated(errors, path, name, seen):
        return
    key = name
    if request:
        rules.named(errors, f"{path}.request", request, names.dns_label)
        key = f"{name}/{request}"
    if not rules.repeated(errors, path, key, seen) and not request:
        errors += [fields.duplicate(path, name)] * parts[name]
    if request and key not in seen:
        parts[name] += 1
    seen.add(key)


def _check_claim_known(name: str, claims: Mapping[str, Object], path: str, errors: Errors) -> None:
    if name in claims:
        return
    known = ", ".join(sorted(claims))
    rest = f": {known}" if known else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{rest}"
    errors.append(fields.not_found(path, name, detail))


def _check_sums(spec: Object, resources: Object, path: str, errors: Errors) -> None:
    """What the containers need together against what the pod is given."""
    asked = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    for name, total in requests.aggregate(spec, "requests").items():
        if name in asked and quantity.compare(total, asked[name]) > 0:
            detail = f"must be greater than or equal to aggregate container requests of {total}"
            errors.append(fields.invalid(f"{path}.requests[{name}]", asked[name], detail))
    for name, total in requests.aggregate(spec, "limits").items():
        pages = name.startswith(HUGEPAGES) and name in limits
        if pages and quantity.compare(total, limits[name]) > 0:
            detail = f"must be greater than or equal to aggregate container limits of {total}"
            errors.append(fields.invalid(f"{path}.limits[{name}]", limits[name], detail))
    for i, container in enumerate(spec.get("containers") or ()):
        _check_container_share(container, limits, f"{path}.containers[{i}]", errors)


def _check_container_share(container: Object, limits: Object, path: str, errors: Errors) -> None:
    for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
        if name in limits and quantity.value(limit) > quantity.value(limits[name]):
            detail = f"must be less than or equal to pod limits of {limits[name]}"
            errors.append(fields.invalid(f"{path}[{name}].limits", limit, detail))
