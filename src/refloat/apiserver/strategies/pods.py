# SPDX-License-Identifier: Apache-2.0
"""Pods: generations, grace, and the reason of a delete."""

from refloat.api import pod_preparation, times
from refloat.api.defaults import pod as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object, is_terminating
from refloat.api.validation import pod as validation
from refloat.apiserver import deletion
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base


class PodStrategy(base.Strategy):
    returns_deleted = True
    default = staticmethod(defaults.apply)
    validate_status = staticmethod(validation.validate_status_update)
    grace = staticmethod(deletion.pod_grace)

    def prepare_create(self, obj: Object, call: Call) -> None:
        for text in pod_preparation.prepare_create(obj, times.format_time(call.now)):
            call.warn(text)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj, force_eviction=self.force_eviction)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        pod_preparation.prepare_update(new, old)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old, force_eviction=self.force_eviction)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        pod_preparation.prepare_status_update(new, old)
        # A status write without reason keeps the reason of the delete.
        if is_terminating(old) and "reason" in old["status"]:
            new["status"].setdefault("reason", old["status"]["reason"])

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new) if old is None else []

    def status_warnings(self, new: Object, old: Object) -> list[str]:
        return validation.status_warnings(new)

    def prepare_delete(self, obj: Object, reason: str) -> None:
        """Write the reason of the delete, unless the pod has ended or already has a reason.

        The reason of a delete is not the reason why a pod failed by itself, and a second
        delete does not replace the reason of the first one.
        """
        status = obj["status"]
        is_over = status.get("phase") in ("Succeeded", "Failed")
        if reason and not is_over and not (is_terminating(obj) and status.get("reason")):
            obj["status"] = {**status, "reason": reason}
