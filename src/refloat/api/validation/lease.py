# SPDX-License-Identifier: Apache-2.0
"""What a Lease must be."""

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules

STRATEGIES = ("OldestEmulationVersion",)


def validate_create(lease: Object) -> list[FieldError]:
    metadata = meta.validate(
        lease["metadata"],
        namespaced=True,
        name_check=names.dns_subdomain,
        known_finalizers=False,
    )
    return metadata + _spec(lease.get("spec") or {})


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *meta.validate_change(new["metadata"], old["metadata"], known_finalizers=False),
        *_spec(new.get("spec") or {}),
    ]


def _spec(spec: Object) -> list[FieldError]:
    mistakes = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        mistakes.append(
            fields.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
        )
    mistakes += rules.nonnegative(spec.get("leaseTransitions"), "spec.leaseTransitions")
    return mistakes
