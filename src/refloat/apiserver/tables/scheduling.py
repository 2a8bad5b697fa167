# SPDX-License-Identifier: Apache-2.0
"""Disruption budgets and priority classes as rows."""

from datetime import datetime

from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

_NOT_SET = "N/A"


def _disruption_budget(budget: Object, now: datetime) -> Cells:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    return [
        name(budget),
        str(spec.get("minAvailable", _NOT_SET)),
        str(spec.get("maxUnavailable", _NOT_SET)),
        status.get("disruptionsAllowed", 0),
        age(budget, now),
    ]


def _priority_class(obj: Object, now: datetime) -> Cells:
    return [
        name(obj),
        obj.get("value", 0),
        obj.get("globalDefault", False),
        age(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


DISRUPTION_BUDGETS = Printer(
    (
        NAME,
        column("Min Available", "The number of pods that must stay available."),
        column("Max Unavailable", "The number of pods that may be unavailable."),
        column(
            "Allowed Disruptions", "The number of pods that may be evicted now.", type_="integer"
        ),
        AGE,
    ),
    _disruption_budget,
)

PRIORITY_CLASSES = Printer(
    (
        NAME,
        column("Value", "The priority that pods of this class get.", type_="integer"),
        column("Global-Default", "Whether this is the class of pods without one.", type_="boolean"),
        AGE,
        column("PreemptionPolicy", "Whether pods of this class preempt others."),
    ),
    _priority_class,
)
