# SPDX-License-Identifier: Apache-2.0
"""Writing the status of an object as it was read, and of no other that has its name."""

from typing import TypeVar

from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.client import errors
from refloat.client.contract import Client, Kind

T = TypeVar("T", bound=ApiObject)

# Errors after which a write has not happened for certain, if the client sent the write once.
REFUSED = (
    errors.Conflict,
    errors.Forbidden,
    errors.Invalid,
    errors.NotFound,
    errors.TooManyRequests,
    errors.Unauthorized,
    errors.Unreachable,
)


async def patch(
    client: Client, kind: Kind[T], obj: T, status: Object, *, unchanged: bool = False
) -> T:
    """Change these fields of a status; with `unchanged`, only of the version of `obj`."""
    meta = obj.metadata
    guard = {"uid": meta.uid}
    if unchanged:
        guard["resourceVersion"] = meta.resource_version
    return await client.patch(
        kind,
        meta.name,
        {"metadata": guard, "status": status},
        patch_type="strategic",
        namespace=meta.namespace,
        subresource="status",
    )
