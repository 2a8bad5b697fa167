# SPDX-License-Identifier: Apache-2.0
"""Which pods of a Job failed, and what was decided about each, kept on the Job.

Kubernetes tells of the rule that failed a Job and of no other, and forgets
with the pods. Here each failure leaves an entry in an annotation, in the very
write that lists the pod as failed, so that both happen or none. Bounded in
number and in bytes: the oldest go first.

For display only. Users may write annotations, so no controller decides anything
by this one: `explain` and people read it.

A failure that no rule matched has an entry too, without `action` and `rule`:
it counts. So has one of a Job without a policy, and a pod that the controller
deletes because the Job failed: `jobFailed` is the reason of the Job.

An entry has the end of the container's log only where an administrator allows
that: logs may hold secrets, and more users may read Jobs than logs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from refloat.api import structs, times
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import backoff, pod_failure, pod_state
from refloat.policy.job.pod_failure import Verdict
from refloat.policy.recovery import zombie
from refloat.policy.scheduling import disruption_target

ANNOTATION = "refloat.dev/attempts"

# An entry has about 250 bytes: a hundred are some 25 KB of the 256 that all
# annotations of an object may have.
MAX_ENTRIES = 100
MAX_BYTES = 32 * 1024

MAX_LOG_LINES = 20

# Of the log of one failure: sixteen such logs fill the annotation.
MAX_LOG_CHARACTERS = 2000

# Names in an event, which may have 1 KB.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class AttemptLogs:
    """How much of the logs of failed pods is recorded."""

    lines: int = 0
    """The last lines of each log, at most `MAX_LOG_LINES`; 0 reads no log."""


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """What a sync knows about failures and their pods do not show."""

    now: datetime
    job_failed: str = ""
    """The reason of the Job that fails; its running pods end with it."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """The end of the log, by the uid of the pod."""


def recorded(annotations: Mapping[str, str] | None) -> list[Object]:
    """The entries, the oldest first, without what somebody else wrote there."""
    try:
        entries = msgspec.json.decode((annotations or {}).get(ANNOTATION, "[]"))
    except (msgspec.DecodeError, RecursionError):
        return []
    return [
        each
        for each in (entries if isinstance(entries, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("pod", ""), str)
        and isinstance(each.get("uid", ""), str)
    ]


def unrecorded(job: Job, failures: Sequence[tuple[Pod, Verdict]]) -> list[tuple[Pod, Verdict]]:
    """The failures without an entry.

    One that was judged before, by a sync that did not come to remove its
    finalizer, is not entered again.
    """
    uids = {each.get("uid") for each in recorded(job.metadata.annotations)} if failures else ()
    return [(pod, verdict) for pod, verdict in failures if pod.metadata.uid not in uids]


def added(job: Job, failures: Sequence[tuple[Pod, Verdict]], details: FailureDetails) -> str | None:
    """The annotation with these failures; None if it has them all."""
    new = [_entry(pod, verdict, details) for pod, verdict in unrecorded(job, failures)]
    return _bounded([*recorded(job.metadata.annotations), *new]) if new else None


def _bounded(entries: list[Object]) -> str:
    """Within both bounds; old logs go before entries."""
    newest = _less(entries, len(entries) - MAX_ENTRIES)
    for each in newest:
        if len(msgspec.json.encode(newest)) <= MAX_BYTES:
            break
        each.pop("log", None)
    while len(encoded := msgspec.json.encode(newest)) > MAX_BYTES:
        newest = _less(newest, len(newest) // 10 + 1)
    return encoded.decode()


def _less(entries: list[Object], number: int) -> list[Object]:
    """Without so many: pods that ended with the Job go first, then the oldest."""
    order = sorted(range(len(entries)), key=lambda i: "jobFailed" not in entries[i])
    dispensable = set(order[: max(0, number)])
    return [each for i, each in enumerate(entries) if i not in dispensable]


def _entry(pod: Pod, verdict: Verdict, details: FailureDetails) -> Object:
    """What is known of a failure; what does not apply is left out."""
    container, code = _exit(pod, verdict)
    # `OOMKilled` or `StartError`; not `Error`, which adds nothing to the exit code.
    container_reasons = (
        end.reason
        for each in pod.status.container_statuses or ()
        if each.name == container and (end := each.state.terminated) and end.reason != "Error"
    )
    ends_now = details.job_failed and not pod.is_terminal and not pod.is_terminating
    fields = {
        "pod": pod.metadata.name,
        "uid": pod.metadata.uid,
        "index": pod_state.completion_index(pod),
        "node": pod.spec.node_name or None,
        "started": pod.status.start_time,
        "finished": times.format_time(details.now if ends_now else backoff.finish_time(pod)),
        "action": verdict.action or None,
        "rule": verdict.rule,
        "container": container or None,
        "exitCode": code or None,
        "condition": verdict.condition or None,
        "reason": verdict.reason or pod.status.reason or None,
        "disruption": _disruption(pod),
        "containerReason": next(container_reasons, None) or None,
        "jobFailed": details.job_failed if ends_now else None,
        "log": details.logs.get(pod.metadata.uid, "")[-MAX_LOG_CHARACTERS:] or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _exit(pod: Pod, verdict: Verdict) -> tuple[str, int]:
    """The container whose exit code matched; else the first that failed, if one did."""
    if verdict.container:
        return verdict.container, verdict.exit_code
    return next(iter(pod_failure.failed_containers(pod)), ("", 0))


def _disruption(pod: Pod) -> str | None:
    """Why recovery or another component ended the pod, in the words of its condition."""
    if structs.is_true(pod.status.conditions, zombie.CONDITION):
        return zombie.CONDITION
    target = structs.find(pod.status.conditions, disruption_target.TARGET)
    return target.reason if target is not None and target.status == "True" else None


def notes(failures: Iterable[tuple[Pod, Verdict]]) -> list[str]:
    """What to tell of these decisions: one sentence for all pods with the same."""
    groups: dict[str, list[str]] = {}
    for pod, verdict in failures:
        groups.setdefault(_decision(pod, verdict), []).append(pod.metadata.name)
    return [f"{_named(names)}: {decision}" for decision, names in groups.items()]


def _named(names: list[str]) -> str:
    text = ", ".join(names[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"{text} and {more} more" if more > 0 else text


def _decision(pod: Pod, verdict: Verdict) -> str:
    matching = "matching no rule"
    if verdict.action:
        matching = f"matching {verdict.action} rule at index {verdict.rule}"
    if verdict.condition:
        return f"condition {verdict.condition} {matching}"
    if verdict.reason is not None:
        return f"{f'reason {verdict.reason}' if verdict.reason else 'without a reason'} {matching}"
    container, code = _exit(pod, verdict)
    if container:
        return f"container {container} failed with exit code {code} {matching}"
    # Without an exit code: deleted and not waited for, or given up by its node.
    if not pod.is_terminal:
        return f"deleted {matching}"
    return f"failed ({pod.status.reason}) {matching}" if pod.status.reason else f"failed {matching}"
