# SPDX-License-Identifier: Apache-2.0
"""What a Service's cluster addresses and their families must be."""

from collections.abc import Sequence

from refloat.api import fields
from refloat.api.meta import Object
from refloat.api.validation import addresses
from refloat.api.validation.rules import Errors

FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
HEADLESS = "None"

_IPS = "spec.clusterIPs"
_FAMILIES = "spec.ipFamilies"
_FIXED = "may not change once set"


def is_headless(spec: Object) -> bool:
    return spec.get("clusterIPs") == [HEADLESS]


def _family(ip: str) -> str:
    address = addresses.parse(ip)
    return "IPv6" if address is not None and address.version == 6 else "IPv4"


def validate(spec: Object, stored: Sequence[str]) -> Errors:
    errors = Errors()
    if spec.get("type") != "ExternalName":
        _check_addresses(spec, stored, errors)
    return errors


def _check_addresses(spec: Object, stored: Sequence[str], errors: Errors) -> None:
    ip, ips = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if ip and not ips:
        errors.required(_IPS)
    elif ip and ips[0] != ip:
        errors.invalid(_IPS, ips, "first value must match `clusterIP`")
    elif ips and not ip:
        errors.invalid(_IPS, ips, "must be empty when `clusterIP` is not specified")
    families_so_far: set[str] = set()
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        errors.one_of(f"{_FAMILIES}[{i}]", family, FAMILIES)
        errors.unique(f"{_FAMILIES}[{i}]", family, families_so_far)
    errors.one_of("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), FAMILY_POLICIES)
    before = len(errors)
    for i, ip in enumerate(ips):
        if i or ip != HEADLESS:
            errors += addresses.validate(ip, f"{_IPS}[{i}]", stored)
        elif len(ips) > 1:
            errors.invalid(_IPS, ips, "'None' must be the first and only value")
    ips_are_valid = len(errors) == before
    if len(ips) > 2:
        errors.invalid(_IPS, ips, "may only hold up to 2 values")
    if ips_are_valid:
        _check_families(spec, ips, errors)


def _check_families(spec: Object, ips: list[str], errors: Errors) -> None:
    """Addresses of different families, in the order of `ipFamilies`."""
    if len(ips) > 1 and len({_family(ip) for ip in ips}) < 2:
        errors.invalid(_IPS, ips, "may specify no more than one IP for each IP family")
    if is_headless(spec):
        return
    for i, (ip, family) in enumerate(zip(ips, spec.get("ipFamilies") or (), strict=False)):
        if family in FAMILIES and _family(ip) != family:
            detail = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
            errors.invalid(f"{_IPS}[{i}]", ip, detail)


def check_change(new: Object, old: Object, errors: Errors) -> None:
    if "ExternalName" in (new.get("type"), old.get("type")):
        return
    ips, before = new.get("clusterIPs") or [], old.get("clusterIPs") or []
    if len(ips) == len(before):
        errors += [
            fields.invalid(f"{_IPS}[{i}]", ips, _FIXED)
            for i, (one, other) in enumerate(zip(ips, before, strict=True))
            if one != other
        ]
    elif not ips:
        errors.invalid(f"{_IPS}[0]", None, "primary clusterIP can not be unset")
    elif before and ips[0] != before[0]:
        errors.invalid(f"{_IPS}[0]", ips, _FIXED)
    _check_release(new, len(ips), len(before), "clusterIP", errors)
    if is_headless(old) or is_headless(new):
        return
    families, before = new.get("ipFamilies") or [], old.get("ipFamilies") or []
    path = f"{_FAMILIES}[0]"
    if len(families) == len(before):
        changes = sum(one != other for one, other in zip(families, before, strict=True))
        errors += [fields.invalid(path, families, _FIXED)] * changes
        return
    if len(families) < len(before) and not ips:
        errors.invalid(path, families or None, "primary ipFamily can not be unset")
    if families and before and families[0] != before[0]:
        errors.invalid(path, new.get("clusterIPs"), _FIXED)
    _check_release(new, len(families), len(before), "ipFamily", errors)


def _check_release(new: Object, now: int, before: int, what: str, errors: Errors) -> None:
    policy = new.get("ipFamilyPolicy")
    if now == 1 < before and policy != "SingleStack":
        detail = f"must be set to 'SingleStack' when releasing the secondary {what}"
        errors.invalid("spec.ipFamilyPolicy", policy, detail)


def warnings(spec: Object) -> list[str]:
    """About addresses that are ignored or badly written."""
    texts = []
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == HEADLESS
    outside = spec.get("externalIPs") or []
    if headless:
        texts += [
            f"spec.{name} is ignored for headless services"
            for name in ("loadBalancerIP", "externalIPs")
            if spec.get(name)
        ]
        if spec.get("sessionAffinity") != "None":
            texts.append("spec.SessionAffinity is ignored for headless services")
    elif spec.get("clusterIP"):
        for i, ip in enumerate(spec.get("clusterIPs") or ()):
            texts += addresses.warnings(ip, f"{_IPS}[{i}]")
    for i, ip in enumerate(outside):
        texts += addresses.warnings(ip, f"spec.externalIPs[{i}]")
    if outside and not headless and spec.get("type") != "ExternalName":
        texts.append(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
        )
    if spec.get("loadBalancerIP"):
        texts += addresses.warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for i, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        texts += addresses.cidr_warnings(text, f"spec.loadBalancerSourceRanges[{i}]")
    return texts
