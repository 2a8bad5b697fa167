# SPDX-License-Identifier: Apache-2.0
"""The target of a request line, read as Kubernetes' HTTP library reads it.

Clients escape what they send, and what is escaped wrongly in a path is an
error, in a query it is only that one parameter which is not there.
"""

import re
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from multidict import MultiDict, MultiDictProxy

from refloat.api import errors

_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

# Of a request line's target. Selectors have half of it; what is left is more
# than proxies let through.
MAX_TARGET = 256 * 1024

# The bound of Go's own parser since version 1.26.
MAX_PARAMETERS = 10_000

Query: TypeAlias = MultiDict[str] | MultiDictProxy[str]
NO_QUERY: Query = MultiDictProxy(MultiDict())


def parse(target: str) -> tuple[str, Query]:
    """The path, without escapes, and the parameters; raises 400."""
    if len(target) > MAX_TARGET:
        raise errors.StatusError(
            414, "RequestURITooLong", f"the request target is longer than {MAX_TARGET} bytes"
        )
    path, mark, query = target.partition("?")
    if not path.startswith("/"):
        path = _of_absolute(path)
    if "%" in path:
        path = _unescaped_path(path)
    return path, _parameters(query) if mark else NO_QUERY


def _of_absolute(target: str) -> str:
    """The path of `https://host/path`, as proxies are sent it; that of anything else is itself."""
    if "://" not in target:
        return target
    try:
        return urlsplit(target).path or "/"
    except ValueError as error:
        raise errors.bad_request("malformed request target") from error


def _unescaped_path(path: str) -> str:
    if _BAD_ESCAPE.search(path):
        raise errors.bad_request("malformed request target: invalid URL escape in the path")
    return unquote(path, errors="replace")


def _parameters(query: str) -> Query:
    if query.count("&") >= MAX_PARAMETERS:
        raise errors.bad_request(f"the query has more than {MAX_PARAMETERS} parameters")
    found: MultiDict[str] = MultiDict()
    for pair in query.split("&"):
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        if "%" in pair or "+" in pair:
            if _BAD_ESCAPE.search(pair):
                continue
            name, value = (_unescaped(part) for part in (name, value))
        found.add(name, value)
    return found


def _unescaped(text: str) -> str:
    return unquote(text.replace("+", " "), errors="replace")
