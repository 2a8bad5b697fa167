# SPDX-License-Identifier: Apache-2.0
"""Jobs: the generated selector and labels, deletes that orphan, and fields behind gates."""

from refloat.api import additions, internal, pods
from refloat.api.defaults import job as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.schema import Struct
from refloat.api.validation import job as validation
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base
from refloat.base import gates

# Fields of the spec that are kept where they are, but not taken in, while
# their gate is off (KEP-3329, KEP-3939).
_GATED = (
    ("podFailurePolicy", gates.JOB_POD_FAILURE_POLICY),
    ("podReplacementPolicy", gates.JOB_POD_REPLACEMENT_POLICY),
)


class JobStrategy(base.Strategy):
    orphans_by_default = True
    ORPHANS = (
        "child pods are preserved by default when jobs are deleted; "
        "set propagationPolicy=Background to remove them "
        "or set propagationPolicy=Orphan to suppress this warning"
    )

    def struct(self, held: Object | None = None) -> Struct:
        """With a backoffPolicy behind its gate, or where a Job has one from when it was on."""
        on = self.gates.enabled(gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES)
        if on or (held is not None and "backoffPolicy" in held["spec"]):
            return additions.struct(self.resource.api_version, self.resource.kind)
        return super().struct(held)

    def default(self, obj: Object) -> None:
        defaults.apply(obj, replacement=self._replacement)

    @property
    def _replacement(self) -> bool:
        return self.gates.enabled(gates.JOB_POD_REPLACEMENT_POLICY)

    def _drop_disabled(self, spec: Object, old: Object) -> None:
        for field, gate in _GATED:
            if field not in old and not self.gates.enabled(gate):
                spec.pop(field, None)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["metadata"]["generation"] = 1
        self._drop_disabled(obj["spec"], {})
        pods.drop_disabled(obj["spec"]["template"]["spec"])
        defaults.prepare_create(obj)

    def complete_create(self, obj: Object) -> None:
        defaults.apply_labels(obj)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj, force_eviction=self.force_eviction)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        new["status"] = old["status"]
        pods.drop_disabled(new["spec"]["template"]["spec"])
        self._drop_disabled(new["spec"], old["spec"])
        if self._replacement:
            # A default that came with its gate, after the Job, is no change of its spec.
            defaults.apply_replacement(old["spec"])
        if not _is_same_spec(new["spec"], old["spec"]):
            base.bump_generation(new, old)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        """A Job that a status write leaves without labels reads back with its template's."""
        super().prepare_status(new, old, call)
        if new["metadata"].get("labels"):
            return
        defaults.apply_labels(new)
        if labels := new["metadata"].get("labels"):
            new["metadata"]["labels"] = dict(labels)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old, force_eviction=self.force_eviction)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_status_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new, old)


def _is_same_spec(new: Object, old: Object) -> bool:
    """Whether nothing changes but how amounts in the template are written."""
    if {**new, "template": None} != {**old, "template": None}:
        return False
    return internal.equal("core.PodTemplateSpec", new["template"], old["template"])
