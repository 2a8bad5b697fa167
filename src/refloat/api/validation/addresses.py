# SPDX-License-Identifier: Apache-2.0
"""IP addresses and ranges of them, in the fields of older kinds.

These fields once took everything that Go's parser accepts. Stored values stay
valid; new values must be well-formed.
"""

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from refloat.api import fields
from refloat.api.fields import FieldError
from refloat.api.validation.rules import Errors

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NO_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def parse(text: str) -> Address | None:
    """An address, leading zeroes forgiven; without a zone."""
    if "%" in text or "/" in text:
        return None
    try:
        return ipaddress.ip_address(_without_zeroes(text))
    except ValueError:
        return None


def parse_cidr(text: str) -> Network | None:
    """A range, with or without leading zeroes; the length must be digits only."""
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or parse(address) is None:
        return None
    try:
        return ipaddress.ip_interface(f"{_without_zeroes(address)}/{int(length)}")
    except ValueError:
        return None


def _without_zeroes(text: str) -> str:
    """Decimal parts without leading zeroes; an IPv6 address may end in such."""
    head, colon, tail = text.rpartition(":")
    if "." not in tail:
        return text
    parts = (part.lstrip("0") or part[:1] for part in tail.split("."))
    return head + colon + ".".join(parts)


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def validate(text: str, path: str, stored: Sequence[str] = ()) -> list[FieldError]:
    if text in stored:
        return []
    address = parse(text)
    if address is None:
        return [fields.invalid(path, text, _NO_IP)]
    if _without_zeroes(text) != text:
        return [fields.invalid(path, text, "must not have leading 0s")]
    if _is_mapped(address):
        return [fields.invalid(path, text, "must not be an IPv4-mapped IPv6 address")]
    return []


def validate_cidr(text: str, path: str, stored: Sequence[str] = ()) -> list[FieldError]:
    if text in stored:
        return []
    network = parse_cidr(text)
    complaint = _NO_CIDR if network is None else _cidr_complaint(text, network)
    return [fields.invalid(path, text, complaint)] if complaint else []


def _cidr_complaint(text: str, network: Network) -> str:
    address, _, length = text.partition("/")
    if _without_zeroes(address) != address or str(int(length)) != length:
        return "must not have leading 0s in IP or prefix length"
    if _is_mapped(network.ip):
        return "must not have an IPv4-mapped IPv6 address"
    if network.ip != network.network.network_address:
        return "must not have bits set beyond the prefix length"
    return ""


def validate_endpoint(text: str, path: str) -> Errors:
    """A well-formed address that others can send to."""
    address = parse(text)
    assert address is not None, text
    errors = Errors()
    if address.is_unspecified:
        errors.invalid(path, text, f"may not be unspecified ({text})")
    for is_in_range, detail in (
        (address.is_loopback, "loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "link-local range (169.254.0.0/16, fe80::/10)"),
        (
            address in _LINK_LOCAL_MULTICAST[address.version],
            "link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ):
        if is_in_range:
            errors.invalid(path, text, f"may not be in the {detail}")
    return errors


_LINK_LOCAL_MULTICAST = {
    4: ipaddress.ip_network("224.0.0.0/24"),
    6: ipaddress.ip_network("ff02::/16"),
}


def warnings(text: str, path: str) -> list[str]:
    """The warnings about an address that is valid, but not in its usual form."""
    address = parse(text)
    if address is None:
        return []
    if _without_zeroes(text) != text or _is_mapped(address):
        proper = getattr(address, "ipv4_mapped", None) or address
        return [f'{path}: non-standard IP address "{text}" is invalid: use "{proper}"']
    if address.version == 6 and str(address) != text:
        return [
            f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'
        ]
    return []


def cidr_warnings(text: str, path: str) -> list[str]:
    network = parse_cidr(text)
    if network is None:
        return []
    texts = []
    if network.ip != network.network.network_address:
        single = f"{network.ip}/{network.max_prefixlen}"
        texts.append(
            f'{path}: CIDR value "{text}" is ambiguous in this context '
            f'(should be "{network.network}" or "{single}"?)'
        )
    if _cidr_complaint(text, network).startswith("must not have leading"):
        texts.append(
            f'{path}: non-standard CIDR value "{text}" is invalid: use "{network.network}"'
        )
    if not texts and network.version == 6 and str(network) != text:
        texts.append(
            f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")'
        )
    return texts
