# SPDX-License-Identifier: Apache-2.0
"""Nodes, and the taint effect that only a gate allows."""

from refloat.api.defaults import node as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import node as validation
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base


class NodeStrategy(base.Strategy):
    default = staticmethod(defaults.apply)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["spec"].pop("configSource", None)
        obj["status"].pop("config", None)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        super().prepare_update(new, old, call)
        new["spec"].pop("configSource", None)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        super().prepare_status(new, old, call)
        new["status"].pop("config", None)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj, force_eviction=self.force_eviction)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old, force_eviction=self.force_eviction)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_status_update(new, old, force_eviction=self.force_eviction)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new)
