# SPDX-License-Identifier: Apache-2.0
"""Pods: generations, grace, and the reason of a delete."""

from refloat.api import pods, times
from refloat.api.defaults import pod as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object, is_terminating
from refloat.api.validation import pod as validation
from refloat.apiserver import deletion
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base


class PodStrategy(base.Strategy):
    returns_deleted = True

    def default(self, obj: Object) -> None:
        defaults.apply(obj)

    def prepare_create(self, obj: Object, call: Call) -> None:
        for text in pods.prepare_create(obj, times.format_time(call.now)):
            call.warn(text)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj, force_eviction=self.force_eviction)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        pods.prepare_update(new, old)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old, force_eviction=self.force_eviction)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        pods.prepare_status_update(new, old)
        # The reason that a delete gave outlives status writes that leave it out.
        if is_terminating(old) and "reason" in old["status"]:
            new["status"].setdefault("reason", old["status"]["reason"])

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_status_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new) if old is None else []

    def status_warnings(self, new: Object, old: Object) -> list[str]:
        return validation.status_warnings(new)

    def grace(self, obj: Object, requested: int | None) -> int | None:
        return deletion.pod_grace(obj, requested)

    def prepare_delete(self, obj: Object, reason: str) -> None:
        """Note why, unless it had ended before or an earlier delete has said why.

        What a pod that failed by itself is deleted for is not why it failed,
        and what a delete ends is not begun again by the next one.
        """
        status = obj["status"]
        is_over = status.get("phase") in ("Succeeded", "Failed")
        if reason and not is_over and not (is_terminating(obj) and status.get("reason")):
            obj["status"] = {**status, "reason": reason}
