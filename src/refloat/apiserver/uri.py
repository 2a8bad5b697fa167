# SPDX-License-Identifier: Apache-2.0
"""The target of a request line, read as by Kubernetes' HTTP library.

A wrong escape in the path is an error. In the query, only that parameter is missing.
"""

import re
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from multidict import MultiDict, MultiDictProxy

from refloat.api import errors
from refloat.apiserver import target_caches

_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

# Of a request line's target. The longest selectors have half of it, and proxies let
# less through.
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
    if not path.startswith("/") and "://" in path:  # as clients send to proxies
        absolute = path
        try:
            path = urlsplit(absolute).path or "/"
        except ValueError as error:
            raise errors.bad_request("malformed request target") from error
        finally:
            target_caches.clear_after(absolute)
    if "%" in path and _BAD_ESCAPE.search(path):
        raise errors.bad_request("malformed request target: invalid URL escape in the path")
    path = unquote(path, errors="replace")
    if not mark:
        return path, NO_QUERY
    if query.count("&") >= MAX_PARAMETERS:
        raise errors.bad_request(f"the query has more than {MAX_PARAMETERS} parameters")
    parameters: MultiDict[str] = MultiDict()
    for pair in query.split("&"):
        if not pair or ";" in pair or ("%" in pair and _BAD_ESCAPE.search(pair)):
            continue
        name, _, value = pair.partition("=")
        if "%" in pair or "+" in pair:
            texts = (part.replace("+", " ") for part in (name, value))
            name, value = (unquote(text, errors="replace") for text in texts)
        parameters.add(name, value)
    return path, parameters
