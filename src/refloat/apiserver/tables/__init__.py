# SPDX-License-Identifier: Apache-2.0
"""Objects as rows and columns, as `kubectl get` prints them.

One module for each group of kinds says what their cells are; `render` makes
whole answers of them. Nothing here reads the clock or changes an object.
"""

from refloat.apiserver.tables.render import (
    check_include,
    columns,
    full_row,
    is_a_list,
    is_not_a_list,
    metadata_of,
    partial_metadata,
    partial_metadata_list,
    row,
    table,
)

__all__ = [
    "check_include",
    "columns",
    "full_row",
    "is_a_list",
    "is_not_a_list",
    "metadata_of",
    "partial_metadata",
    "partial_metadata_list",
    "row",
    "table",
]
