# SPDX-License-Identifier: Apache-2.0
"""What a Service's cluster addresses and their families must be."""

from collections.abc import Sequence

from refloat.api import fields
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import addresses, rules

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


def validate(spec: Object, stored: Sequence[str]) -> list[FieldError]:
    if spec.get("type") == "ExternalName":
        return []
    ips = spec.get("clusterIPs") or []
    mistakes = _first(spec.get("clusterIP", ""), ips)
    mistakes += _families(spec)
    wrong = _each(ips, stored)
    mistakes += wrong
    if len(ips) > 2:
        mistakes.append(fields.invalid(_IPS, ips, "may only hold up to 2 values"))
    return mistakes if wrong else mistakes + _agree(spec, ips)


def _first(ip: str, ips: list[str]) -> list[FieldError]:
    if ip and not ips:
        return [fields.required(_IPS)]
    if ip and ips[0] != ip:
        return [fields.invalid(_IPS, ips, "first value must match `clusterIP`")]
    if ips and not ip:
        return [fields.invalid(_IPS, ips, "must be empty when `clusterIP` is not specified")]
    return []


def _families(spec: Object) -> list[FieldError]:
    mistakes = []
    seen = set()
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        path = f"{_FAMILIES}[{i}]"
        if family not in FAMILIES:
            mistakes.append(rules.unsupported(path, family, FAMILIES))
        if family in seen:
            mistakes.append(fields.duplicate(path, family))
        seen.add(family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in FAMILY_POLICIES:
        mistakes.append(rules.unsupported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES))
    return mistakes


def _each(ips: list[str], stored: Sequence[str]) -> list[FieldError]:
    mistakes = []
    for i, ip in enumerate(ips):
        if i or ip != HEADLESS:
            mistakes += addresses.validate(ip, f"{_IPS}[{i}]", stored)
        elif len(ips) > 1:
            detail = "'None' must be the first and only value"
            mistakes.append(fields.invalid(_IPS, ips, detail))
    return mistakes


def _agree(spec: Object, ips: list[str]) -> list[FieldError]:
    mistakes = []
    if len(ips) > 1 and len({_family(ip) for ip in ips}) < 2:
        detail = "may specify no more than one IP for each IP family"
        mistakes.append(fields.invalid(_IPS, ips, detail))
    if is_headless(spec):
        return mistakes
    for i, (ip, family) in enumerate(zip(ips, spec.get("ipFamilies") or (), strict=False)):
        if family in FAMILIES and _family(ip) != family:
            detail = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
            mistakes.append(fields.invalid(f"{_IPS}[{i}]", ip, detail))
    return mistakes


def validate_change(new: Object, old: Object) -> list[FieldError]:
    if "ExternalName" in (new.get("type"), old.get("type")):
        return []
    was, now = is_headless(old), is_headless(new)
    mistakes = [] if was and now else _ips_change(new, old)
    return mistakes if was or now else mistakes + _families_change(new, old)


def _ips_change(new: Object, old: Object) -> list[FieldError]:
    ips, before = new.get("clusterIPs") or [], old.get("clusterIPs") or []
    if len(ips) == len(before):
        return [
            fields.invalid(f"{_IPS}[{i}]", ips, _FIXED)
            for i, (one, other) in enumerate(zip(ips, before, strict=True))
            if one != other
        ]
    mistakes = []
    if not ips:
        mistakes.append(fields.invalid(f"{_IPS}[0]", None, "primary clusterIP can not be unset"))
    if ips and before and ips[0] != before[0]:
        mistakes.append(fields.invalid(f"{_IPS}[0]", ips, _FIXED))
    return mistakes + _released(new, len(ips), len(before), "clusterIP")


def _released(new: Object, now: int, before: int, what: str) -> list[FieldError]:
    policy = new.get("ipFamilyPolicy")
    if not (now == 1 < before) or policy == "SingleStack":
        return []
    detail = f"must be set to 'SingleStack' when releasing the secondary {what}"
    return [fields.invalid("spec.ipFamilyPolicy", policy, detail)]


def _families_change(new: Object, old: Object) -> list[FieldError]:
    families, before = new.get("ipFamilies") or [], old.get("ipFamilies") or []
    path, ips = f"{_FAMILIES}[0]", new.get("clusterIPs")
    if len(families) == len(before):
        return [
            fields.invalid(path, families, _FIXED)
            for one, other in zip(families, before, strict=True)
            if one != other
        ]
    mistakes = []
    if len(families) < len(before) and not ips:
        shown = families or None
        mistakes.append(fields.invalid(path, shown, "primary ipFamily can not be unset"))
    if families and before and families[0] != before[0]:
        mistakes.append(fields.invalid(path, ips, _FIXED))
    return mistakes + _released(new, len(families), len(before), "ipFamily")


def warnings(spec: Object) -> list[str]:
    """About addresses that are ignored or badly written."""
    found = []
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == HEADLESS
    outside = spec.get("externalIPs") or []
    if headless:
        found += _ignored(spec)
    elif spec.get("clusterIP"):
        for i, ip in enumerate(spec.get("clusterIPs") or ()):
            found += addresses.warnings(ip, f"{_IPS}[{i}]")
    for i, ip in enumerate(outside):
        found += addresses.warnings(ip, f"spec.externalIPs[{i}]")
    if outside and not headless and spec.get("type") != "ExternalName":
        found.append(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
        )
    if spec.get("loadBalancerIP"):
        found += addresses.warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for i, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        found += addresses.cidr_warnings(text, f"spec.loadBalancerSourceRanges[{i}]")
    return found


def _ignored(spec: Object) -> list[str]:
    found = [
        f"spec.{name} is ignored for headless services"
        for name in ("loadBalancerIP", "externalIPs")
        if spec.get(name)
    ]
    if spec.get("sessionAffinity") != "None":
        found.append("spec.SessionAffinity is ignored for headless services")
    return found
