# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server on a store: `ApiServer(store, clock, rand, gates)`.

From the outside in: `server` (assembly), `http` and `http_request` (requests
and answers), `routes`, `options` and `negotiation` (the target of a request
and the form of its answer), `resources` and `nonresource` (the handlers),
`registry` with `strategies`, `admission`, `patch_verb`, `apply_verb` and
`deletion` (the rules), `storage_codec`, `selection`, `listing` and
`watch_index` (reading the store).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refloat.apiserver.server import ApiServer

__all__ = ["ApiServer"]


def __getattr__(name: str) -> Any:
    """Import the server on first use: the manager needs only names of users and roles."""
    if name != "ApiServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from refloat.apiserver.server import ApiServer  # noqa: PLC0415

    return ApiServer
