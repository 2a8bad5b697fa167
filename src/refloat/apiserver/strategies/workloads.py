# SPDX-License-Identifier: Apache-2.0
"""The kinds in namespaces, except pods and Jobs."""

from refloat.api import event_conversion, kinds
from refloat.api.defaults import persistentvolumeclaim as claim_defaults
from refloat.api.defaults import secret as secret_defaults
from refloat.api.defaults import service as service_defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import (
    configmap,
    event,
    lease,
    pdb,
    persistentvolumeclaim,
    secret,
    service,
    serviceaccount,
)
from refloat.apiserver.identity import Call
from refloat.apiserver.strategies import base
from refloat.base.gates import Gates

NO_DNS = "services are stored only: this cluster has no service network and no DNS"


class ConfigMapStrategy(base.Strategy):
    validate_create = staticmethod(configmap.validate_create)
    validate_update = staticmethod(configmap.validate_update)


class SecretStrategy(base.Strategy):
    default = staticmethod(secret_defaults.apply)
    validate_create = staticmethod(secret.validate_create)
    validate_update = staticmethod(secret.validate_update)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        secret_defaults.prepare_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return secret.warnings(new)


class ServiceAccountStrategy(base.Strategy):
    returns_deleted = True
    validate_create = staticmethod(serviceaccount.validate_create)
    validate_update = staticmethod(serviceaccount.validate_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        _keep_names(obj)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        _keep_names(new)


def _keep_names(account: Object) -> None:
    """Keep only the names of an account's secrets."""
    if account.get("secrets"):
        account["secrets"] = [
            {"name": each["name"]} if each.get("name") else {} for each in account["secrets"]
        ]


class ServiceStrategy(base.Strategy):
    create_on_update = True
    returns_deleted = True
    default = staticmethod(service_defaults.apply)
    validate_create = staticmethod(service.validate_create)
    validate_update = staticmethod(service.validate_update)
    validate_status = staticmethod(service.validate_status_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["status"] = {"loadBalancer": {}}
        service_defaults.prepare_create(obj)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        new["status"] = old["status"]
        service_defaults.prepare_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return [*service.warnings(new), *([NO_DNS] if old is None else [])]

    def status_warnings(self, new: Object, old: Object) -> list[str]:
        return service.status_warnings(new)


class ClaimStrategy(base.Strategy):
    returns_deleted = True
    default = staticmethod(claim_defaults.apply)
    validate_create = staticmethod(persistentvolumeclaim.validate_create)
    validate_update = staticmethod(persistentvolumeclaim.validate_update)
    validate_status = staticmethod(persistentvolumeclaim.validate_status_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        claim_defaults.prepare_create(obj)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        claim_defaults.prepare_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return persistentvolumeclaim.warnings(new)


class LeaseStrategy(base.Strategy):
    create_on_update = True
    unconditional_update = False
    validate_create = staticmethod(lease.validate_create)
    validate_update = staticmethod(lease.validate_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        self._drop_gated(obj)

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        self._drop_gated(new)

    def _drop_gated(self, obj: Object) -> None:
        for name in ("strategy", "preferredHolder"):  # for coordinated elections, a gate away
            obj["spec"].pop(name, None)


class EventStrategy(base.Strategy):
    create_on_update = True
    has_dependants = False
    validate_create = staticmethod(event.validate_create)
    validate_update = staticmethod(event.validate_update)


class BudgetStrategy(base.Strategy):
    unconditional_update = False
    validate_create = staticmethod(pdb.validate_create)
    validate_update = staticmethod(pdb.validate_update)
    validate_status = staticmethod(pdb.validate_status_update)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["metadata"]["generation"] = 1
        obj["status"] = {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        }

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        new["status"] = old["status"]
        base.bump_generation(new, old)


class NewEventStrategy(base.Strategy):
    """Events of events.k8s.io: the stored form, a core event, goes through validation."""

    create_on_update = True
    has_dependants = False

    def __init__(self, resource: kinds.Resource, gates: Gates) -> None:
        super().__init__(resource, gates)
        self.error_group = ""

    def validate_create(self, obj: Object) -> list[FieldError]:
        return event.validate_create(event_conversion.to_core(obj), modern=True)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return event.validate_update(
            event_conversion.to_core(new), event_conversion.to_core(old), modern=True
        )


STRATEGIES: dict[str, type[base.Strategy]] = {
    "configmaps": ConfigMapStrategy,
    "events": EventStrategy,
    "events.events.k8s.io": NewEventStrategy,
    "leases.coordination.k8s.io": LeaseStrategy,
    "persistentvolumeclaims": ClaimStrategy,
    "poddisruptionbudgets.policy": BudgetStrategy,
    "secrets": SecretStrategy,
    "serviceaccounts": ServiceAccountStrategy,
    "services": ServiceStrategy,
}
