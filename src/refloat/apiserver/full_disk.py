# SPDX-License-Identifier: Apache-2.0
"""Which writes the API server still accepts when its disk is nearly full.

The reserve is for writes that keep a cluster alive or free space: leases, so that
no node counts as lost; nodes, so that their status stays true; and every step of a
deletion. The store never refuses a delete.

Kubernetes has etcd's alarm NOSPACE for this: the API server answers 500 with etcd's
message, no reason and no Retry-After. Refloat does the same with a message of its
own. kubectl reports the message at once, and controllers try again after their
usual back-off.
"""

from refloat.api import errors, kinds, meta
from refloat.api.meta import Object
from refloat.store.contract import Store

# Kinds whose writes go on.
_VITAL = frozenset({"leases", "nodes"})

# The largest object that may be written from the reserve: a node with 50 images
# has some 10 KB. Without a bound one tenant's leases could use up the reserve.
VITAL_BYTES = 64 * 1024


def check(store: Store, resource: kinds.Resource, value: bytes, new: Object | None = None) -> None:
    """Raise 500 if there is no room for this write; `new` is the object that an update writes."""
    if not store.shortage:
        return
    is_vital = resource.plural in _VITAL and len(value) <= VITAL_BYTES
    if not is_vital and (new is None or not meta.is_terminating(new)):
        raise refusal(store)


def refusal(store: Store) -> errors.StatusError:
    message = f"{store.shortage}; until there is room only deletes, leases and nodes are written"
    return errors.StatusError(500, "", message)
