# SPDX-License-Identifier: Apache-2.0
"""What an Eviction must be; another module asks the disruption budgets.

The other fields of `deleteOptions` follow the rules of any delete.
"""

from refloat.api import fields
from refloat.api.fields import FieldError
from refloat.api.meta import Object

_UNREADABLE = "ignoreStoreReadErrorWithClusterBreakingPotential"


def validate_create(eviction: Object) -> list[FieldError]:
    """A pod that cannot be read cannot be evicted either."""
    value = (eviction.get("deleteOptions") or {}).get(_UNREADABLE)
    if not value:
        return []
    detail = "can not be set for pod eviction, try after removing the option"
    return [fields.invalid(f"deleteOptions.{_UNREADABLE}", value, detail)]
