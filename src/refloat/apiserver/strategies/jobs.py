# SPDX-License-Identifier: Apache-2.0
"""Jobs: the generated selector and labels, deletes that orphan, and fields behind gates."""

from refloat.api import gated_fields, go_internal_types, pod_preparation
from refloat.api.defaults import job as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.schema import Struct
from refloat.api.validation import job as validation
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base
from refloat.base import gates

# Fields of the spec that new Jobs lose while the gate is off; existing Jobs keep
# them (KEP-3329, KEP-3939).
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
    validate_status = staticmethod(validation.validate_status_update)
    warnings = staticmethod(validation.warnings)
    complete_create = staticmethod(defaults.apply_labels)

    def struct(self, live: Object | None = None) -> Struct:
        """With a backoffPolicy if the gate is on, or if the stored Job has one."""
        on = self.gates.enabled(gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES)
        if on or (live is not None and "backoffPolicy" in live["spec"]):
            return gated_fields.struct(self.resource.api_version, self.resource.kind)
        return super().struct(live)

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
        pod_preparation.drop_disabled(obj["spec"]["template"]["spec"])
        defaults.prepare_create(obj)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj, force_eviction=self.force_eviction)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        new["status"] = old["status"]
        pod_preparation.drop_disabled(new["spec"]["template"]["spec"])
        self._drop_disabled(new["spec"], old["spec"])
        if self._replacement:
            # The default of a gate that was off at the Job's creation is no change of the spec.
            defaults.apply_replacement(old["spec"])
        # Another spelling of the same amount in the template is no change.
        spec, former = new["spec"], old["spec"]
        same_but_template = {**spec, "template": None} == {**former, "template": None}
        if not same_but_template or not go_internal_types.equal(
            "core.PodTemplateSpec", spec["template"], former["template"]
        ):
            base.bump_generation(new, old)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        """A status write without labels gives the Job those of its template."""
        super().prepare_status(new, old, call)
        if new["metadata"].get("labels"):
            return
        defaults.apply_labels(new)
        if labels := new["metadata"].get("labels"):
            new["metadata"]["labels"] = dict(labels)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old, force_eviction=self.force_eviction)
