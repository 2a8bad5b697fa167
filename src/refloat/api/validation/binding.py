# SPDX-License-Identifier: Apache-2.0
"""What a pod's Binding must be."""

from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors


def validate_create(binding: Object) -> list[FieldError]:
    target = binding.get("target") or {}
    errors = Errors()
    if target.get("kind") not in (None, "", "Node"):
        errors.not_supported("target.kind", target["kind"], ("Node", "<empty>"))
    if not target.get("name"):
        errors.required("target.name")
    return errors
