# SPDX-License-Identifier: Apache-2.0
"""The last failures of a Job: the last one, its log, and failures that a rule discards."""

from collections.abc import Sequence

from refloat.explain.codes import Code
from refloat.explain.explanation import Attempt, Command, Finding
from refloat.explain.job_view import JobView

# So many failures in a row that an Ignore rule discards are a loop, not bad luck.
IGNORE_LOOP = 3


def last_failure(rows: Sequence[Attempt]) -> Attempt | None:
    failures = [row for row in rows if row.counted is not None]
    return failures[-1] if failures else None


def log_of_last(view: JobView, rows: Sequence[Attempt]) -> list[Command]:
    last = last_failure(rows)
    if last is None or not last.exists:
        return []
    log = f"kubectl logs {last.pod} -n {view.namespace} --all-containers"
    return [Command("read the log of the last failure", log)]


def ignore_loop(view: JobView, rows: Sequence[Attempt]) -> Finding | None:
    """All of the last failures matched an Ignore rule: no limit ends the Job."""
    failures = [row for row in rows if row.counted is not None]
    ignored = [row for row in failures[-IGNORE_LOOP:] if row.counted is False]
    if len(ignored) < IGNORE_LOOP or view.job.spec.active_deadline_seconds is not None:
        return None
    last = ignored[-1]
    text = (
        f"the pods of Job {view.name} fail again and again, and {last.rule} discards each"
        f" failure, so backoffLimit never ends this; the last: pod {last.pod}, {last.how}"
    )
    bound = Command("bound the Job with spec.activeDeadlineSeconds, or narrow the rule")
    return Finding(Code.IGNORE_LOOP, text, (), (bound,))
