# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: who owns which field, and what follows from it.

`apply` merges a configuration into an object, refuses to touch what others
own, and removes what its manager no longer wants; `track_update` moves the
ownership after any other write. Both are pure: they take and return objects,
and the caller decodes, defaults, validates and stores them.

    elements    path elements: one step from a value to a part of it
    sets        sets of paths, and their encoding (fieldsV1)
    shapes      what the schema says of a value: owned whole, or by its parts
    structure   merging, comparing and pruning values by their shapes
    checks      configurations that do not fit their kind
    ownership   the rules: conflicts, taking over, pruning
    entries     metadata.managedFields: reading, writing, names, bounds
    requests    the two operations
"""

from refloat.apiserver.apply.requests import apply, is_same_but_for_times, track_update

__all__ = ["apply", "is_same_but_for_times", "track_update"]
