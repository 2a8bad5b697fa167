# SPDX-License-Identifier: Apache-2.0
"""What a Lease must be."""

from refloat.api import names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.rules import Errors


def validate_create(lease: Object) -> list[FieldError]:
    errors = meta.validate(
        lease["metadata"], namespaced=True, name_check=names.dns_subdomain, known_finalizers=False
    )
    _check_spec(lease.get("spec") or {}, errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += meta.validate_change(new["metadata"], old["metadata"], known_finalizers=False)
    _check_spec(new.get("spec") or {}, errors)
    return errors


def _check_spec(spec: Object, errors: Errors) -> None:
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    errors.not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))
