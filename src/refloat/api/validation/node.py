# SPDX-License-Identifier: Apache-2.0
"""What a Node must be."""

import re

from refloat.api import fields, internal, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import addresses, meta, rules
from refloat.api.validation.effects import Effects

_CIDR_CHANGED = 'node updates may not change podCIDR except from "" to valid'
_PROVIDER_CHANGED = 'node updates may not change providerID except from "" to valid'
_FEATURE_LENGTH = 253
_is_feature = re.compile("[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*").fullmatch


def validate_create(node: Object, *, force_eviction: bool) -> list[FieldError]:
    return _node(node, Effects(force_eviction))


def validate_update(new: Object, old: Object, *, force_eviction: bool) -> list[FieldError]:
    effects = Effects(force_eviction, _taints(old))
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *_node(new, effects),
        *_change(new, old, effects),
    ]


def validate_status_update(new: Object, old: Object, *, force_eviction: bool) -> list[FieldError]:
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *_change(new, old, Effects(force_eviction, _taints(old))),
    ]


def _spec(node: Object) -> Object:
    return node.get("spec") or {}


def _status(node: Object) -> Object:
    return node.get("status") or {}


def _taints(node: Object) -> list[Object]:
    return _spec(node).get("taints") or []


def _node(node: Object, effects: Effects) -> list[FieldError]:
    return [
        *meta.validate(node["metadata"], namespaced=False, name_check=names.dns_subdomain),
        *_check_taints(_taints(node), effects),
        *_resources(node),
        *_swap(node),
        *_features(node),
        *_pod_cidrs(_spec(node).get("podCIDRs") or []),
    ]


def _change(new: Object, old: Object, effects: Effects) -> list[FieldError]:
    return [
        *meta.validate_change(new["metadata"], old["metadata"]),
        *_resources(new),
        *_features(new),
        *_node_addresses(_status(new).get("addresses") or []),
        *_fixed(_spec(new), _spec(old)),
        *_check_taints(_taints(new), effects),
        *_external_id(_spec(new), _spec(old)),
    ]


# The path says metadata: so does Kubernetes.
def _check_taints(taints: list[Object], effects: Effects) -> list[FieldError]:
    mistakes = []
    seen = set()
    for i, taint in enumerate(taints):
        path = f"metadata.taints[{i}]"
        mistakes += _taint(taint, path, effects.of(taint))
        pair = taint.get("key", ""), taint.get("effect", "")
        if pair in seen:
            detail = "taints must be unique by key and effect pair"
            whole = internal.shown("core.Taint", taint)
            mistakes.append(FieldError(fields.DUPLICATE, path, whole, detail))
        seen.add(pair)
    return mistakes


def _taint(taint: Object, path: str, effects: tuple[str, ...]) -> list[FieldError]:
    key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
    mistakes = rules.named(names.qualified_name(key), f"{path}.key", key)
    complaints = names.label_value(value)
    if complaints:
        mistakes.append(fields.invalid(f"{path}.value", value, ";".join(complaints)))
    if not effect:
        mistakes.append(fields.required(f"{path}.effect"))
    elif effect not in effects:
        mistakes.append(rules.unsupported(f"{path}.effect", effect, effects))
    return mistakes


def _resources(node: Object) -> list[FieldError]:
    mistakes = []
    for name in ("capacity", "allocatable"):
        for resource, amount in (_status(node).get(name) or {}).items():
            mistakes += rules.resource_quantity(resource, amount, f"status.{name}.{resource}")
    return mistakes


def _swap(node: Object) -> list[FieldError]:
    info = _status(node).get("nodeInfo") or {}
    capacity = (info.get("swap") or {}).get("capacity")
    if capacity is None or capacity > 0:
        return []
    return [fields.invalid("metadata.nodeSwapStatus.capacity", capacity, rules.NOT_POSITIVE)]


def _features(node: Object) -> list[FieldError]:
    """Declared features: well-named, each once, in order."""
    mistakes = []
    declared = _status(node).get("declaredFeatures") or []
    for i, name in enumerate(declared):
        path = f"status.declaredFeatures[{i}]"
        complaint = _feature(name)
        after = declared[i - 1] if i else ""
        if i and name == after:
            mistakes.append(fields.duplicate(path, name))
        elif i and name < after:
            mistakes.append(fields.invalid(path, name, "list must be sorted alphabetically"))
        if complaint:
            mistakes.append(fields.invalid(path, name, complaint))
    return mistakes


def _feature(name: str) -> str:
    shown = fields.quote(name)
    if names.longer(name, _FEATURE_LENGTH):
        return f"invalid feature name {shown}: must be no more than {_FEATURE_LENGTH} characters"
    if _is_feature(name):
        return ""
    return (
        f"invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent "
        "segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only "
        "alphanumeric characters and slashes"
    )


def _pod_cidrs(cidrs: list[str]) -> list[FieldError]:
    mistakes = []
    for i, text in enumerate(cidrs):
        mistakes += addresses.validate_cidr(text, f"spec.podCIDRs[{i}]")
    if len(cidrs) < 2:
        return mistakes
    networks = [addresses.parse_cidr(text) for text in cidrs]
    if None in networks:
        i = networks.index(None)
        detail = (
            "invalid PodCIDRs. failed to check with dual stack with error:"
            f"invalid CIDR[{i}]: <nil> (invalid CIDR address: {cidrs[i]})"
        )
        mistakes.append(fields.internal("spec.podCIDRs", detail))
    versions = {network and network.version for network in networks}
    if versions != {4, 6} or len(cidrs) > 2:
        detail = "may specify no more than one CIDR for each IP family"
        mistakes.append(fields.invalid("spec.podCIDRs", cidrs, detail))
    return mistakes


def _node_addresses(items: list[Object]) -> list[FieldError]:
    mistakes = []
    seen = set()
    for i, address in enumerate(items):
        pair = address.get("type", ""), address.get("address", "")
        if pair in seen:
            whole = internal.shown("core.NodeAddress", address)
            mistakes.append(fields.duplicate(f"status.addresses[{i}]", whole))
        seen.add(pair)
    return mistakes


def _fixed(new: Object, old: Object) -> list[FieldError]:
    mistakes = []
    before, after = old.get("podCIDRs") or [], new.get("podCIDRs") or []
    if before and len(before) != len(after):
        mistakes.append(fields.forbidden("spec.podCIDRs", _CIDR_CHANGED))
    elif before:
        for one, other in zip(before, after, strict=True):
            if one != other:
                mistakes.append(fields.forbidden("spec.podCIDRs", _CIDR_CHANGED))
    if old.get("providerID") and old["providerID"] != new.get("providerID"):
        mistakes.append(fields.forbidden("spec.providerID", _PROVIDER_CHANGED))
    return mistakes


def _external_id(new: Object, old: Object) -> list[FieldError]:
    if new.get("externalID", "") == old.get("externalID", ""):
        return []
    return [fields.forbidden("spec.externalID", "may not be updated")]


def warnings(node: Object) -> list[str]:
    """What is accepted but should not be used."""
    found = []
    spec = _spec(node)
    if spec.get("configSource") is not None:
        found.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for i, text in enumerate(spec.get("podCIDRs") or ()):
        found += addresses.cidr_warnings(text, f"spec.podCIDRs[{i}]")
    return found
