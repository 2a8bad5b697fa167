# SPDX-License-Identifier: Apache-2.0
"""What a Node must be."""

import re

from refloat.api import fields, go_internal_types, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import addresses, meta
from refloat.api.validation.effects import Effects
from refloat.api.validation.pod_resources import check_quantity
from refloat.api.validation.rules import Errors

_CIDR_CHANGED = 'node updates may not change podCIDR except from "" to valid'
_PROVIDER_CHANGED = 'node updates may not change providerID except from "" to valid'
_FEATURE_LENGTH = 253
_FEATURE_RULE = (
    "must start with an UpperCamelCase segment, with "
    "subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and "
    "contain only alphanumeric characters and slashes"
)
_is_feature = re.compile("[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*").fullmatch


def validate_create(node: Object, *, force_eviction: bool) -> list[FieldError]:
    return _node_errors(node, Effects(force_eviction))


def validate_update(new: Object, old: Object, *, force_eviction: bool) -> list[FieldError]:
    effects = Effects(force_eviction, _taints(old))
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += _node_errors(new, effects)
    _check_change(new, old, effects, errors)
    return errors


def validate_status_update(new: Object, old: Object, *, force_eviction: bool) -> list[FieldError]:
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    _check_change(new, old, Effects(force_eviction, _taints(old)), errors)
    return errors


def _spec(node: Object) -> Object:
    return node.get("spec") or {}


def _status(node: Object) -> Object:
    return node.get("status") or {}


def _taints(node: Object) -> list[Object]:
    return _spec(node).get("taints") or []


def _node_errors(node: Object, effects: Effects) -> Errors:
    errors = meta.validate(node["metadata"], namespaced=False, name_check=names.dns_subdomain)
    _check_taints(_taints(node), effects, errors)
    _check_resources(node, errors)
    swap = (_status(node).get("nodeInfo") or {}).get("swap") or {}
    if (capacity := swap.get("capacity")) is not None:
        errors.positive("metadata.nodeSwapStatus.capacity", capacity)
    _check_features(node, errors)
    cidrs = _spec(node).get("podCIDRs") or []
    for i, text in enumerate(cidrs):
        errors += addresses.validate_cidr(text, f"spec.podCIDRs[{i}]")
    if len(cidrs) < 2:
        return errors
    networks = [addresses.parse_cidr(text) for text in cidrs]
    if None in networks:
        i = networks.index(None)
        detail = (
            "invalid PodCIDRs. failed to check with dual stack with error:"
            f"invalid CIDR[{i}]: <nil> (invalid CIDR address: {cidrs[i]})"
        )
        errors.append(fields.internal("spec.podCIDRs", detail))
    versions = {network and network.version for network in networks}
    if versions != {4, 6} or len(cidrs) > 2:
        detail = "may specify no more than one CIDR for each IP family"
        errors.invalid("spec.podCIDRs", cidrs, detail)
    return errors


def _check_change(new: Object, old: Object, effects: Effects, errors: Errors) -> None:
    errors += meta.validate_change(new["metadata"], old["metadata"])
    _check_resources(new, errors)
    _check_features(new, errors)
    addresses_so_far = set()
    for i, address in enumerate(_status(new).get("addresses") or ()):
        pair = address.get("type", ""), address.get("address", "")
        if pair in addresses_so_far:
            value_text = go_internal_types.shown("core.NodeAddress", address)
            errors.duplicate(f"status.addresses[{i}]", value_text)
        addresses_so_far.add(pair)
    spec, before = _spec(new), _spec(old)
    cidrs, old_cidrs = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    if old_cidrs and len(old_cidrs) != len(cidrs):
        errors.forbidden("spec.podCIDRs", _CIDR_CHANGED)
    elif old_cidrs:
        for one, other in zip(cidrs, old_cidrs, strict=True):
            if one != other:
                errors.forbidden("spec.podCIDRs", _CIDR_CHANGED)
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        errors.forbidden("spec.providerID", _PROVIDER_CHANGED)
    _check_taints(_taints(new), effects, errors)
    if spec.get("externalID", "") != before.get("externalID", ""):
        errors.forbidden("spec.externalID", "may not be updated")


def _check_taints(taints: list[Object], effects: Effects, errors: Errors) -> None:
    taints_so_far = set()
    for i, taint in enumerate(taints):
        path = f"metadata.taints[{i}]"  # "metadata": Kubernetes has this path too
        key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
        errors.named(f"{path}.key", key, names.qualified_name)
        if complaints := names.label_value(value):
            errors.invalid(f"{path}.value", value, ";".join(complaints))
        errors.required_one_of(f"{path}.effect", effect, effects.of(taint))
        if (key, effect) in taints_so_far:
            detail = "taints must be unique by key and effect pair"
            value_text = go_internal_types.shown("core.Taint", taint)
            errors.append(FieldError(fields.DUPLICATE, path, value_text, detail))
        taints_so_far.add((key, effect))


def _check_resources(node: Object, errors: Errors) -> None:
    for name in ("capacity", "allocatable"):
        for resource, amount in (_status(node).get(name) or {}).items():
            check_quantity(resource, amount, f"status.{name}.{resource}", errors)


def _check_features(node: Object, errors: Errors) -> None:
    """Declared features: each has a valid name, no name repeats, and they are in order."""
    features = _status(node).get("declaredFeatures") or []
    for i, name in enumerate(features):
        path = f"status.declaredFeatures[{i}]"
        if i and name == features[i - 1]:
            errors.duplicate(path, name)
        elif i and name < features[i - 1]:
            errors.invalid(path, name, "list must be sorted alphabetically")
        invalid = f"invalid feature name {fields.quote(name)}:"
        if names.longer(name, _FEATURE_LENGTH):
            detail = f"{invalid} must be no more than {_FEATURE_LENGTH} characters"
            errors.invalid(path, name, detail)
        elif not _is_feature(name):
            errors.invalid(path, name, f"{invalid} {_FEATURE_RULE}")


def warnings(node: Object) -> list[str]:
    """What is accepted but should not be used."""
    texts = []
    spec = _spec(node)
    if spec.get("configSource") is not None:
        texts.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        texts.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for i, text in enumerate(spec.get("podCIDRs") or ()):
        texts += addresses.cidr_warnings(text, f"spec.podCIDRs[{i}]")
    return texts
