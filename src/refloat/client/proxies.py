# SPDX-License-Identifier: Apache-2.0
"""The proxy between Refloat and a server, if there is one.

If the kubeconfig names no proxy, the environment decides, read as Go programs
read it, so that what works for kubectl works here: HTTPS_PROXY or HTTP_PROXY by
the server's scheme, NO_PROXY with names, `.suffixes`, addresses, networks and
`*`. Requests to loopback never go through a proxy.
"""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy listens, and the headers by which the proxy knows its user."""

    host: str
    port: int
    is_encrypted: bool
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def parse(url: str) -> Proxy:
    """The proxy with this URL, which may contain user and password."""
    parts = urlsplit(url)
    headers: tuple[tuple[str, str], ...] = ()
    if parts.username is not None or parts.password is not None:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        headers = (("Proxy-Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)
    return Proxy(parts.hostname or "", port, parts.scheme == "https", headers)


def from_environment(server: str, environ: Mapping[str, str]) -> str:
    """The proxy's URL; empty without a proxy."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    # In a CGI script the client sets HTTP_PROXY by a header, not the administrator.
    if not proxy or (name == "http_proxy" and "REQUEST_METHOD" in environ):
        return ""
    if is_bypassed(parts, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_bypassed(server: SplitResult, exceptions: str) -> bool:
    """Whether NO_PROXY lists this server, or the server is on this machine."""
    host = (server.hostname or "").lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = server.port or _DEFAULT_PORTS.get(server.scheme, 0)
    entries = (entry.strip().lower() for entry in exceptions.split(","))
    return any(_matches(entry, host, address, port) for entry in entries if entry)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _matches(entry: str, host: str, address: _Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name = entry
    if _address(entry) is None:
        before, colon, digits = entry.rpartition(":")
        if colon and digits.isdigit():
            name = before
            if int(digits) not in (0, port):
                return False
    if address is not None:
        return _address(name) == address
    if name.startswith("*."):
        name = name[1:]
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")
