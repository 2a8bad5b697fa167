# SPDX-License-Identifier: Apache-2.0
"""Jobs as rows."""

from datetime import datetime
from typing import Any

from refloat.api import conditions, printing
from refloat.api.meta import Object, is_terminating
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

_COLUMNS = (
    NAME,
    column("Status", "The state of the Job in one word."),
    column("Completions", "Succeeded pods, of the required ones."),
    column("Duration", "The time from the start to the completion, or until now."),
    AGE,
    column("Containers", "The names of the template's containers.", wide=True),
    column("Images", "The images of the template's containers.", wide=True),
    column("Selector", "The selector of the Job's pods.", wide=True),
)

_ENDS = ("Complete", "Failed")
_INTERIM = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _cells(job: Object, now: datetime) -> Cells:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    template = spec.get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism", 0)
    total = f"1 of {parallelism}" if parallelism > 1 else "1"
    if (completions := spec.get("completions")) is not None:
        total = str(completions)
    return [
        name(job),
        _state(job, status),
        f"{succeeded}/{total}",
        _duration(status, now),
        age(job, now),
        ",".join(each["name"] for each in containers),
        ",".join(each.get("image", "") for each in containers),
        printing.label_selector(spec.get("selector")),
    ]


def _state(job: Object, status: dict[str, Any]) -> str:
    job_conditions = status.get("conditions") or []
    for ending in _ENDS:
        if conditions.is_true(job_conditions, ending):
            return ending
    if is_terminating(job):
        return "Terminating"
    return next((each for each in _INTERIM if conditions.is_true(job_conditions, each)), "Running")


def _duration(status: dict[str, Any], now: datetime) -> str:
    if not (start := status.get("startTime")):
        return ""
    if end := status.get("completionTime"):
        return printing.between(start, end)
    return printing.age(start, now)


JOBS = Printer(_COLUMNS, _cells)
