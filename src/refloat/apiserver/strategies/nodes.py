# SPDX-License-Identifier: Apache-2.0
"""Nodes, and the taint effect that only a gate allows."""

from refloat.api.defaults import node as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import node as validation
from refloat.apiserver.strategies import base
from refloat.base import gates


class NodeStrategy(base.Strategy):
    def default(self, obj: Object) -> None:
        defaults.apply(obj)

    @property
    def _force_eviction(self) -> bool:
        return self.gates.enabled(gates.TAINT_FORCE_EVICTION)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.validate_create(obj, force_eviction=self._force_eviction)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_update(new, old, force_eviction=self._force_eviction)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_status_update(new, old, force_eviction=self._force_eviction)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return validation.warnings(new)
