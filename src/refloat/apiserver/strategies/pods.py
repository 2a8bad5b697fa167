# SPDX-License-Identifier: Apache-2.0
"""Pods: generations, grace, and the reason of a delete."""

from datetime import datetime

from refloat.api import qos, times
from refloat.api.defaults import pod as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import pod as validation
from refloat.apiserver import deletion
from refloat.apiserver.strategies import base


class PodStrategy(base.Strategy):
    returns_deleted = True

    def default(self, obj: Object) -> None:
        defaults.apply(obj)

    def prepare_create(self, obj: Object, now: datetime) -> None:
        obj["metadata"]["generation"] = 1
        obj["status"] = {"phase": "Pending", "qosClass": qos.qos_class(obj)}
        if obj["spec"].get("schedulingGates"):
            gated = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": None,
                "lastTransitionTime": times.format_time(now),
            }
            obj["status"]["conditions"] = [gated]

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj)

    def prepare_update(self, new: Object, old: Object, now: datetime) -> None:
        new["status"] = old["status"]
        base.bump_generation(new, old)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old)

    def prepare_status(self, new: Object, old: Object, now: datetime) -> None:
        new["spec"] = old["spec"]
        _keep_owners(new["metadata"], old["metadata"])
        if "qosClass" in old["status"]:
            new["status"].setdefault("qosClass", old["status"]["qosClass"])
        _keep_observed_generations(new["status"], old["status"])
        _keep_deletion_reason(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_status_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new) if old is None else []

    def grace(self, obj: Object, requested: int | None) -> int | None:
        return deletion.pod_grace(obj, requested)

    def prepare_delete(self, obj: Object, reason: str) -> None:
        if reason:
            obj["status"]["reason"] = reason


def _keep_owners(new: Object, old: Object) -> None:
    if "ownerReferences" in old:
        new["ownerReferences"] = old["ownerReferences"]
    else:
        new.pop("ownerReferences", None)


def _keep_observed_generations(new: Object, old: Object) -> None:
    """A writer that does not know of them does not clear them (behaviour C8.9)."""
    if "observedGeneration" in old:
        new.setdefault("observedGeneration", old["observedGeneration"])
    seen = {
        each["type"]: each["observedGeneration"]
        for each in old.get("conditions") or ()
        if "observedGeneration" in each
    }
    for each in new.get("conditions") or ():
        if each["type"] in seen:
            each.setdefault("observedGeneration", seen[each["type"]])


def _keep_deletion_reason(new: Object, old: Object) -> None:
    """The reason that a delete gave outlives status writes that leave it out."""
    if "deletionTimestamp" in old["metadata"] and "reason" in old["status"]:
        new["status"].setdefault("reason", old["status"]["reason"])
