# SPDX-License-Identifier: Apache-2.0
"""The attributes of a request that authorization decides on.

They come from the address alone, and any resource has them: a user without the
right gets 403 even for a resource that does not exist. `routes` knows which
addresses exist; the server looks there after authorization.
"""

import re
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

# Older than ?watch=1 and the subresource `proxy`: the verb is in the path.
_IN_PATH = ("watch", "proxy")

# A number in a query; an empty value counts as absent.
_NUMBER = re.compile("(-?[0-9]+)?")

_SELECTING = ("list", "watch", "deletecollection")

# After a namespace's name comes a resource in the namespace, or one of these.
_OF_NAMESPACES = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Attributes:
    """A verb on a resource or a path, as rules name it."""

    verb: str
    path: str = ""  # only for addresses outside resources
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
    """The attributes of an address outside resources."""
    return Attributes(verb, path, is_resource=False)


def of_request(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """The attributes of an HTTP request."""
    parts = path.strip("/").split("/")
    before = {"api": 1, "apis": 2}.get(parts[0], len(parts))
    rest = parts[before + 1 :]
    if not rest:
        return of_path(method.lower(), path)
    verb = _VERBS.get(method, "")
    in_path = rest[0] in _IN_PATH and len(rest) > 1
    if in_path:
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    if not name and not in_path:
        if verb == "delete":
            verb = "deletecollection"
        elif verb == "get":
            verb = "watch" if options.flag(query, "watch") else "list"
            # The server will refuse other numbers; until then there is no name.
            if all(_NUMBER.fullmatch(query.get(each, "")) for each in ("limit", "timeoutSeconds")):
                pinned = _fields(query).pinned("metadata.name")
                is_segment = pinned not in (".", "..") and "/" not in pinned and "%" not in pinned
                name = pinned if is_segment else ""
    return Attributes(
        verb,
        group=parts[1] if before == 2 else "",
        resource=resource,
        subresource="" if verb == "proxy" else subresource,
        namespace=namespace,
        name=name,
        fields=_fields(query) if verb in _SELECTING and not in_path else selectors.ANY_FIELDS,
    )


def _fields(query: Mapping[str, str]) -> selectors.FieldSelector:
    """The field selector; a malformed one counts as none here, and fails later."""
    try:
        return selectors.parse_fields(query.get("fieldSelector", ""))
    except errors.StatusError:
        return selectors.ANY_FIELDS
