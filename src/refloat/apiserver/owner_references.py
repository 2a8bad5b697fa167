# SPDX-License-Identifier: Apache-2.0
"""Owner references: an object lists each owner once."""

import msgspec

from refloat.api.meta import Object
from refloat.apiserver.identity import Call

# Equal owners have equal bytes.
_SORTED = msgspec.json.Encoder(order="sorted")


def dedup_owners(call: Call, obj: Object, when: str = "") -> None:
    """Drop repeated owner references, and warn the client."""
    owners = obj["metadata"].get("ownerReferences") or ()
    if len(owners) < 2:
        return
    unique: dict[bytes, Object] = {}
    repeated = [
        owner.get("uid", "")
        for owner in owners
        if unique.setdefault(_SORTED.encode(owner), owner) is not owner
    ]
    if repeated:
        obj["metadata"]["ownerReferences"] = list(unique.values())
        call.warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups "
            "owner references in 1.20+, and may reject such requests as early as 1.24; "
            f"please fix your requests; duplicate UID(s) observed: {', '.join(repeated)}"
        )
