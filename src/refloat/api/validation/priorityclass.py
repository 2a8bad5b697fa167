# SPDX-License-Identifier: Apache-2.0
"""What a PriorityClass must be.

Every cluster has two classes with the prefix `system-`. Only their values may be above
the maximum of users.
"""

from refloat.api import names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta

RESERVED_PREFIX = "system-"
HIGHEST_USER_VALUE = 1_000_000_000
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def validate_create(item: Object) -> list[FieldError]:
    errors = meta.validate(item["metadata"], namespaced=False, name_check=names.dns_subdomain)
    name, value = item["metadata"].get("name", ""), item.get("value", 0)
    complaint = ""
    if not name.startswith(RESERVED_PREFIX):
        if value > HIGHEST_USER_VALUE:
            detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_VALUE}"
            errors.forbidden("value", detail)
    elif name not in SYSTEM_CLASSES:
        complaint = f"{name} is not a known system priority class"
    elif value != SYSTEM_CLASSES[name]:
        complaint = f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    elif item.get("globalDefault"):
        complaint = f"globalDefault of {name} PriorityClass must be false"
    if complaint:
        detail = (
            f"priority class names with '{RESERVED_PREFIX}' prefix are reserved "
            f"for system use only. error: {complaint}"
        )
        errors.forbidden("metadata.name", detail)
    if (policy := item.get("preemptionPolicy")) is not None:
        errors.required_one_of("preemptionPolicy", policy, PREEMPTION_POLICIES)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    if new.get("value", 0) != old.get("value", 0):
        errors.forbidden("value", "may not be changed in an update.")
    policies = new.get("preemptionPolicy"), old.get("preemptionPolicy")
    errors.immutable("preemptionPolicy", *policies)
    return errors
