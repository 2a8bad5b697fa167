# SPDX-License-Identifier: Apache-2.0
"""Rules that the validation of several kinds shares."""

from collections.abc import Iterable
from typing import Any

from refloat.api import fields
from refloat.api.fields import FieldError
from refloat.api.validation import meta

NOT_POSITIVE = "must be greater than zero"
NEGATIVE = "must be greater than or equal to 0"


def nonnegative(value: int | None, path: str) -> list[FieldError]:
    if value is None or value >= 0:
        return []
    return [fields.invalid(path, value, meta.NEGATIVE)]


def immutable(new: Any, old: Any, path: str) -> list[FieldError]:
    return meta.immutable(new, old, path)
