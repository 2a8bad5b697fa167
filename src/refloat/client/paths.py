# SPDX-License-Identifier: Apache-2.0
"""The address of a resource, from its group, version and plural.

A name that is empty would turn `delete one` into `delete all`: such names
never leave this process.
"""

import string
from urllib.parse import quote

from refloat.api import kinds
from refloat.client import errors

_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}-.:")


def collection(resource: kinds.Resource, namespace: str) -> str:
    """All objects of a kind, in a namespace or in all of them."""
    root = f"/apis/{resource.group}" if resource.group else "/api"
    within = f"/namespaces/{_part('namespace', namespace)}" if namespace else ""
    if within and not resource.namespaced:
        raise errors.Invalid(f"{resource.plural} are in no namespace; got {namespace!r}")
    return f"{root}/{resource.version}{within}/{resource.plural}"


def one(resource: kinds.Resource, namespace: str, name: str, subresource: str = "") -> str:
    """One object, or a part of it."""
    path = f"{place(resource, namespace)}/{_part('name', name)}"
    return f"{path}/{subresource}" if subresource else path


def place(resource: kinds.Resource, namespace: str) -> str:
    """Where objects of a kind are created."""
    if resource.namespaced and not namespace:
        raise errors.Invalid(f"{resource.plural} are in a namespace; none was given")
    return collection(resource, namespace)


def _part(what: str, text: str) -> str:
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise errors.Invalid(f"{what} {text!r}: cannot stand in an address")
    if _PLAIN.issuperset(text):
        return text  # as all valid names are, and quoting takes long
    return quote(text, safe=":@!$&'()*+,;=~")
