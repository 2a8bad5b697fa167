# SPDX-License-Identifier: Apache-2.0
"""What a ServiceAccount must be: only its metadata has rules."""

from refloat.api import names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta


def validate_create(account: Object) -> list[FieldError]:
    """The rules of an update too."""
    return meta.validate(account["metadata"], namespaced=True, name_check=names.dns_subdomain)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *validate_create(new),
    ]
