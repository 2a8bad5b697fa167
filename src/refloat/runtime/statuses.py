# SPDX-License-Identifier: Apache-2.0
"""Writing the status of an object as it was read, and of no other that has its name."""

from typing import TypeVar

from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.client.contract import Client, Kind

T = TypeVar("T", bound=ApiObject)


async def patch(
    client: Client, kind: Kind[T], obj: T, status: Object, *, unchanged: bool = False
) -> T:
    """Change these fields of a status; `unchanged`: only of the very version that was read."""
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
