# SPDX-License-Identifier: Apache-2.0
"""What an Eviction must be; whether a budget allows it is not known here."""

from refloat.api import fields
from refloat.api.fields import FieldError
from refloat.api.meta import Object

PROPAGATIONS = ("Background", "Foreground", "Orphan")


def validate_create(eviction: Object) -> list[FieldError]:
    """The options that its deletion would be asked with."""
    return delete_options(eviction.get("deleteOptions") or {})


def delete_options(options: Object) -> list[FieldError]:
    mistakes = []
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        shown = policy
        mistakes.append(fields.invalid("propagationPolicy", shown, detail))
    if policy is not None and policy not in PROPAGATIONS:
        supported = ("Foreground", "Background", "Orphan", "nil")
        mistakes.append(fields.not_supported("propagationPolicy", policy, supported))
    return mistakes
