# SPDX-License-Identifier: Apache-2.0
"""What a pod's Binding must be."""

from refloat.api import fields
from refloat.api.fields import FieldError
from refloat.api.meta import Object


def validate_create(binding: Object) -> list[FieldError]:
    target = binding.get("target") or {}
    mistakes = []
    if target.get("kind") not in (None, "", "Node"):
        mistakes.append(fields.not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        mistakes.append(fields.required("target.name"))
    return mistakes
