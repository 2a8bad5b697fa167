# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps, Secrets, ServiceAccounts, Namespaces and Leases as rows."""

from datetime import datetime

from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name


def _config_map(obj: Object, now: datetime) -> Cells:
    entries = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [name(obj), entries, age(obj, now)]


def _secret(obj: Object, now: datetime) -> Cells:
    return [name(obj), obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)]


def _service_account(obj: Object, now: datetime) -> Cells:
    return [name(obj), age(obj, now)]


def _namespace(obj: Object, now: datetime) -> Cells:
    return [name(obj), (obj.get("status") or {}).get("phase", ""), age(obj, now)]


def _lease(obj: Object, now: datetime) -> Cells:
    return [name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), age(obj, now)]


_DATA = column("Data", "The number of entries.")

CONFIG_MAPS = Printer((NAME, _DATA, AGE), _config_map)
SECRETS = Printer((NAME, column("Type", "The purpose of the secret."), _DATA, AGE), _secret)
SERVICE_ACCOUNTS = Printer((NAME, AGE), _service_account)
NAMESPACES = Printer((NAME, column("Status", "Active or Terminating."), AGE), _namespace)
LEASES = Printer((NAME, column("Holder", "The holder of the lease."), AGE), _lease)
