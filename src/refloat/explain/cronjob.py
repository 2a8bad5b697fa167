# SPDX-License-Identifier: Apache-2.0
"""The state of a CronJob, with the state of the Jobs that it started last."""

from collections.abc import Sequence

from refloat.api import times
from refloat.api.batch import Job
from refloat.explain import explain_context
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Command, Evidence, Finding, NextStep, age
from refloat.explain.objects import CronJob

CONTROLLER = "the CronJob controller"


def explain(cron: CronJob, jobs: Sequence[Job], context: ExplainContext) -> Finding:
    """`jobs` are those whose controller is the CronJob."""
    events = context.events_of("CronJob", cron)
    evidence = [Evidence(f"cronjob/{cron.metadata.name}", _times(cron, context))]
    evidence += [Evidence(f"job/{job.metadata.name}", _counts(job)) for job in jobs]
    evidence += explain_context.event_evidence(events, context.now)
    return _finding(cron, [each.reason for each in events]).with_evidence(evidence)


def _finding(cron: CronJob, reasons: Sequence[str]) -> Finding:
    name, namespace = cron.metadata.name, cron.metadata.namespace
    if cron.spec.suspend:
        patch = """ -p '{"spec":{"suspend":false}}'"""
        command = f"kubectl patch cronjob {name} -n {namespace} --type=merge{patch}"
        text = f"CronJob {name} is suspended, so it starts no Jobs"
        return Finding(Code.CRON_SUSPENDED, text, (), (Command("resume it", command),))
    active = [each.name for each in cron.status.active or ()]
    if active and cron.spec.concurrency_policy == "Forbid":
        step = NextStep("starts the next Job only when the active one has ended", CONTROLLER)
        text = f"CronJob {name} waits: Job {active[0]} is active and concurrencyPolicy is Forbid"
        look = Command("see why it still runs", f"refloat explain job/{active[0]} -n {namespace}")
        return Finding(Code.CRON_FORBIDDEN, text, (step,), (look,))
    if reasons and reasons[-1] in ("MissSchedule", "TooManyMissedTimes", "UnparseableSchedule"):
        text = f"CronJob {name} missed a time of its schedule ({reasons[-1]})"
        return Finding(Code.CRON_MISSED, text)
    step = NextStep(f"starts a Job at the next time of `{cron.spec.schedule}`", CONTROLLER)
    return Finding(Code.CRON_SCHEDULED, f"CronJob {name} waits for its next time", (step,))


def _times(cron: CronJob, context: ExplainContext) -> str:
    zone = f" ({cron.spec.time_zone})" if cron.spec.time_zone else ""
    text = f"schedule `{cron.spec.schedule}`{zone}"
    if cron.status.last_schedule_time:
        last = age(times.parse(cron.status.last_schedule_time), context.now)
        text += f", last started {last} ago"
    return text


def _counts(job: Job) -> str:
    status = job.status
    state = next((each.type for each in status.conditions or () if each.status == "True"), "active")
    return f"{state}: active {status.active}, succeeded {status.succeeded}, failed {status.failed}"
