# SPDX-License-Identifier: Apache-2.0
"""The owners of an object: each is listed once."""

import msgspec

from refloat.api.meta import Object
from refloat.apiserver.identity import Call

# Equal owners have equal bytes.
_SORTED = msgspec.json.Encoder(order="sorted")


def dedup_owners(call: Call, obj: Object, when: str = "") -> None:
    """Drop owner references that stand twice, and say so."""
    owners = obj["metadata"].get("ownerReferences") or ()
    if len(owners) < 2:
        return
    kept: dict[bytes, Object] = {}
    repeated = [
        owner.get("uid", "")
        for owner in owners
        if kept.setdefault(_SORTED.encode(owner), owner) is not owner
    ]
    if repeated:
        obj["metadata"]["ownerReferences"] = list(kept.values())
        call.warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups "
            "owner references in 1.20+, and may reject such requests as early as 1.24; "
            f"please fix your requests; duplicate UID(s) observed: {', '.join(repeated)}"
        )
