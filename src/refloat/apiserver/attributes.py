# SPDX-License-Identifier: Apache-2.0
"""What a request asks for, in the terms in which rights are written.

It reads the address alone and knows no kind: who may not do something is told
so also of resources that are not served. Which addresses are served stands in
`targets`, and comes after the question of rights.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from refloat.api import errors, selectors
from refloat.apiserver import options

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

# Older than ?watch=1 and the subresource `proxy`: the verb stands in the path.
_IN_PATH = ("watch", "proxy")

_SELECTING = ("list", "watch", "deletecollection")

# What follows a namespace's name is a resource in it, but for these.
_OF_NAMESPACES = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Attributes:
    """One question of rights: may somebody do this to that?"""

    verb: str
    path: str = ""  # the address, where it is none of a resource's
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    fields: selectors.FieldSelector = selectors.ANY_FIELDS
    is_resource: bool = True

    @property
    def what(self) -> str:
        """The resource as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_path(verb: str, path: str) -> Attributes:
    """A question about an address that is none of a resource's."""
    return Attributes(verb, path, is_resource=False)


def of_request(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """What an HTTP request asks for."""
    parts = path.strip("/").split("/")
    before = {"api": 1, "apis": 2}.get(parts[0], len(parts))
    rest = parts[before + 1 :]
    if not rest:
        return of_path(method.lower(), path)
    verb = _VERBS.get(method, "")
    in_path = rest[0] in _IN_PATH and len(rest) > 1
    if in_path:
        verb, rest = rest[0], rest[1:]
    namespace, rest = _placed(rest)
    resource, name, subresource = (*rest, "", "")[:3]
    if not name and not in_path:
        verb, name = _of_collection(verb, query)
    return Attributes(
        verb,
        group=parts[1] if before == 2 else "",
        resource=resource,
        subresource="" if verb == "proxy" else subresource,
        namespace=namespace,
        name=name,
        fields=_fields(query) if verb in _SELECTING and not in_path else selectors.ANY_FIELDS,
    )


def _placed(rest: list[str]) -> tuple[str, list[str]]:
    """The namespace, and what stands in it."""
    if rest[0] != "namespaces" or len(rest) < 2:
        return "", rest
    if len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        return rest[1], rest[2:]
    return rest[1], rest


def _of_collection(verb: str, query: Mapping[str, str]) -> tuple[str, str]:
    """The verb on a collection, and the one name that it is about, if any."""
    if verb == "delete":
        return "deletecollection", ""
    if verb != "get":
        return verb, ""
    verb = "watch" if options.flag(query, "watch") else "list"
    if not all(_is_number(query.get(name, "")) for name in ("limit", "timeoutSeconds")):
        return verb, ""  # the request will be refused; until then it names nothing
    name = _fields(query).pinned("metadata.name")
    return verb, name if _is_segment(name) else ""


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return not text or (digits.isascii() and digits.isdigit())


def _is_segment(name: str) -> bool:
    return name not in (".", "..") and "/" not in name and "%" not in name


def _fields(query: Mapping[str, str]) -> selectors.FieldSelector:
    """The field selector; one that cannot be read selects nothing here, and fails later."""
    try:
        return selectors.parse_fields(query.get("fieldSelector", ""))
    except errors.StatusError:
        return selectors.ANY_FIELDS
