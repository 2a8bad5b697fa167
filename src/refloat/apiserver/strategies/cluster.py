# SPDX-License-Identifier: Apache-2.0
"""The kinds outside of namespaces, but for nodes."""

from refloat.api import times
from refloat.api.defaults import namespace as namespace_defaults
from refloat.api.defaults import persistentvolume as volume_defaults
from refloat.api.defaults import priorityclass as priority_defaults
from refloat.api.defaults import volumeattachment as attachment_defaults
from refloat.api.meta import Object
from refloat.api.validation import namespace, persistentvolume, priorityclass, volumeattachment
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base


class NamespaceStrategy(base.Strategy):
    returns_deleted = True
    only_marked_at_first = True
    default = staticmethod(namespace_defaults.apply)
    validate_create = staticmethod(namespace.validate_create)
    validate_update = staticmethod(namespace.validate_update)
    validate_finalize = staticmethod(namespace.validate_finalize_update)
    validate_status = staticmethod(namespace.validate_status_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        namespace_defaults.prepare_create(obj)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        new["status"] = old["status"]
        new["spec"] = old["spec"]

    def prepare_finalize(self, new: Object, old: Object) -> None:
        new["status"] = old["status"]

    def prepare_delete(self, obj: Object, reason: str) -> None:
        obj["status"]["phase"] = "Terminating"

    def awaits_more(self, obj: Object) -> bool:
        return bool(obj["spec"].get("finalizers"))


class VolumeStrategy(base.Strategy):
    returns_deleted = True
    default = staticmethod(volume_defaults.apply)
    validate_create = staticmethod(persistentvolume.validate_create)
    validate_update = staticmethod(persistentvolume.validate_update)
    validate_status = staticmethod(persistentvolume.validate_status_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        volume_defaults.prepare_create(obj, times.format_time(call.now))

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return persistentvolume.warnings(new)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        new["spec"] = old["spec"]
        status, before = new["status"], old["status"]
        since = before.get("lastPhaseTransitionTime")
        if status.get("phase") != before.get("phase"):
            if status.get("lastPhaseTransitionTime") in (None, since):
                status["lastPhaseTransitionTime"] = times.format_time(call.now)
        elif since:
            status.setdefault("lastPhaseTransitionTime", since)


class PriorityClassStrategy(base.Strategy):
    default = staticmethod(priority_defaults.apply)
    validate_create = staticmethod(priorityclass.validate_create)
    validate_update = staticmethod(priorityclass.validate_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["metadata"]["generation"] = 1


class AttachmentStrategy(base.Strategy):
    unconditional_update = False
    returns_deleted = True
    default = staticmethod(attachment_defaults.apply)
    validate_create = staticmethod(volumeattachment.validate_create)
    validate_update = staticmethod(volumeattachment.validate_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["status"] = {"attached": False}

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        super().prepare_status(new, old, call)
        base.keep_metadata(new["metadata"], old["metadata"])


STRATEGIES: dict[str, type[base.Strategy]] = {
    "namespaces": NamespaceStrategy,
    "persistentvolumes": VolumeStrategy,
    "priorityclasses.scheduling.k8s.io": PriorityClassStrategy,
    "volumeattachments.storage.k8s.io": AttachmentStrategy,
}
