# SPDX-License-Identifier: Apache-2.0
"""Jobs: the generated selector and labels, and deletes that orphan."""

from refloat.api import pods
from refloat.api.defaults import job as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import job as validation
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base


class JobStrategy(base.Strategy):
    orphans_by_default = True
    ORPHANS = (
        "child pods are preserved by default when jobs are deleted; "
        "set propagationPolicy=Background to remove them "
        "or set propagationPolicy=Orphan to suppress this warning"
    )

    def default(self, obj: Object) -> None:
        defaults.apply(obj)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["metadata"]["generation"] = 1
        pods.drop_disabled(obj["spec"]["template"]["spec"])
        defaults.prepare_create(obj)

    def complete_create(self, obj: Object) -> None:
        defaults.apply_labels(obj)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        new["status"] = old["status"]
        pods.drop_disabled(new["spec"]["template"]["spec"])
        base.bump_generation(new, old)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_status_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new, old)
