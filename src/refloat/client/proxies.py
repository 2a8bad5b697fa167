# SPDX-License-Identifier: Apache-2.0
"""Which proxy leads to a server, when the kubeconfig names none.

The variables are read as Go programs read them, so that what works for
kubectl works here: HTTPS_PROXY or HTTP_PROXY by the server's scheme, NO_PROXY
with names, `.suffixes`, addresses, networks and `*`; loopback is never sent
through one.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def from_environment(server: str, environ: Mapping[str, str]) -> str:
    """The proxy's URL; empty for none."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    # A CGI script's HTTP_PROXY is what a client wrote in a header, not the administrator.
    if not proxy or (name == "http_proxy" and "REQUEST_METHOD" in environ):
        return ""
    if is_bypassed(parts, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_bypassed(server: SplitResult, exceptions: str) -> bool:
    """Is this server one of NO_PROXY's, or on this machine?"""
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
        return address is not None and _is_within(address, entry)
    name, wanted = _split_port(entry)
    if wanted and wanted != port:
        return False
    if address is not None:
        return _address(name) == address
    if name.startswith("*."):
        name = name[1:]
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _is_within(address: _Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, int]:
    if _address(entry) is not None:
        return entry, 0
    name, colon, port = entry.rpartition(":")
    return (name, int(port)) if colon and port.isdigit() else (entry, 0)
