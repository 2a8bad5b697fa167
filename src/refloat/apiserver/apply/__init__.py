# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: field managers and the fields that they own.

`apply` merges a configuration into an object, refuses to change the fields of other
managers, and removes fields that the manager no longer lists. `track_update` moves
the ownership after any other write. Both are pure: they take and return objects, and
the caller decodes, defaults, validates and stores them.

    elements        path elements: one step from a value to a part of it
    field_sets      sets of paths, and their encoding (fieldsV1)
    shapes          whether a manager owns a value as a whole or by its parts
    structure       merging, comparing and pruning values by their shapes
    checks          configurations that do not fit their kind
    ownership       the rules: conflicts, ownership changes, pruning
    managed_fields  metadata.managedFields: reading, writing, names, bounds
    requests        the two operations
"""

from refloat.apiserver.apply.requests import apply, is_same_but_for_times, track_update

__all__ = ["apply", "is_same_but_for_times", "track_update"]
