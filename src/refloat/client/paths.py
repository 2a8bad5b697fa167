# SPDX-License-Identifier: Apache-2.0
"""The URL path of a resource, from its group, version and plural.

An empty name would turn `delete one` into `delete all`, so this module raises
`Invalid` for such names.
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
    """The collection for creating objects of a kind."""
    if resource.namespaced and not namespace:
        raise errors.Invalid(f"{resource.plural} are in a namespace; none was given")
    return collection(resource, namespace)


def _part(what: str, text: str) -> str:
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise errors.Invalid(f"{what} {text!r}: cannot stand in an address")
    if _PLAIN.issuperset(text):
        return text  # true of all valid names; quoting is slow
    return quote(text, safe=":@!$&'()*+,;=~")
