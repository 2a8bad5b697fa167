# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps, Secrets, ServiceAccounts, Namespaces and Leases as rows."""

from refloat.apiserver.tables.columns import AGE, NAME, Printer, age, column, name

_DATA = column("Data", "The number of entries.")

CONFIG_MAPS = Printer(
    (NAME, _DATA, AGE),
    lambda obj, now: [
        name(obj),
        len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
        age(obj, now),
    ],
)
SECRETS = Printer(
    (NAME, column("Type", "The purpose of the secret."), _DATA, AGE),
    lambda obj, now: [name(obj), obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)],
)
SERVICE_ACCOUNTS = Printer((NAME, AGE), lambda obj, now: [name(obj), age(obj, now)])
NAMESPACES = Printer(
    (NAME, column("Status", "Active or Terminating."), AGE),
    lambda obj, now: [name(obj), (obj.get("status") or {}).get("phase", ""), age(obj, now)],
)
LEASES = Printer(
    (NAME, column("Holder", "The holder of the lease."), AGE),
    lambda obj, now: [name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), age(obj, now)],
)
