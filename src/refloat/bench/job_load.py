# SPDX-License-Identifier: Apache-2.0
"""The Jobs that benchmarks give to Job controllers, and waits for their progress."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.bench.processes import MeasuredProcess
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.job.pod_template import PodTemplate
from refloat.controllers.job.settings import REFLOAT
from refloat.policy.job import job_conditions
from refloat.policy.job.scaling import NewPod

NAMESPACE = "default"

# Exact enough for a makespan of seconds, and a negligible load.
POLL_SECONDS = 0.1

# A Job that takes longer is stuck; 20,000 pods take two minutes.
LONGEST_SECONDS = 1800.0

# The exit code of failed pods, and the number of rules in the policy.
EXIT_CODE = 42
RULES = 20


def job(
    name: str,
    pods: int,
    *,
    parallelism: int,
    seconds: float | None = 1.0,
    managed_by: str | None = REFLOAT,
    **spec: Any,
) -> Object:
    """A Job whose pods run for `seconds` on simulated nodes; None: for ever."""
    simulation = json.dumps({"main": {"seconds": seconds}})
    container = {"name": "main", "image": "registry.example.com/team/work:v1", "command": ["work"]}
    template = {
        "metadata": {"annotations": {"refloat.dev/simulate": simulation}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    managed = {} if managed_by is None else {"managedBy": managed_by}
    sizes = {"completions": pods, "parallelism": parallelism}
    return {"metadata": {"name": name}, "spec": {**sizes, **managed, **spec, "template": template}}


def policy() -> Object:
    """Twenty rules, of which only the last matches: a failed pod is compared with all."""
    rules: list[Object] = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [100 + n]}}
        for n in range(RULES // 2)
    ]
    rules += [
        {"action": "Ignore", "onPodConditions": [{"type": f"example.com/c{n}", "status": "True"}]}
        for n in range(RULES - len(rules) - 1)
    ]
    rules.append({"action": "Count", "onExitCodes": {"operator": "In", "values": [EXIT_CODE]}})
    return {"rules": rules}


def failed_status() -> Object:
    """The status of a pod that has just failed."""
    now = times.format_time(RealClock().now())
    termination = {"exitCode": EXIT_CODE, "reason": "Error", "startedAt": now, "finishedAt": now}
    container = {"name": "main", "state": {"terminated": termination}}
    conditions = [
        {"type": kind, "status": "False", "lastTransitionTime": now}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {"phase": "Failed", "conditions": conditions, "containerStatuses": [container]}


def failed_pods(client: Client, owner: Job) -> Callable[[str], Awaitable[None]]:
    """A function that creates a failed pod of the Job, as its controller creates pods."""
    template, status = PodTemplate(owner), {"status": failed_status()}

    async def create(name: str) -> None:
        await client.create(kinds.PODS, template.pod(name, NewPod()), namespace=NAMESPACE)
        await client.patch(kinds.PODS, name, status, namespace=NAMESPACE, subresource="status")

    return create


async def completed(client: Client, name: str) -> None:
    """Wait until a Job is Complete; raises if the Job fails."""
    job = await reached(client, name, lambda job: job_conditions.is_finished(job.status.conditions))
    last = (job.status.conditions or ())[-1]
    if last.type != job_conditions.COMPLETE:
        raise RuntimeError(f"Job {name}: {last.type}: {last.reason}: {last.message}")


async def run_job(client: Client, process: MeasuredProcess, body: Object) -> tuple[float, float]:
    """Run a Job to its end: the seconds by the clock, and the CPU seconds of this process."""
    started, cpu = time.monotonic(), process.cpu_seconds()
    await client.create(kinds.JOBS, body, namespace=NAMESPACE)
    await completed(client, body["metadata"]["name"])
    return time.monotonic() - started, process.cpu_seconds() - cpu


async def reached(client: Client, name: str, condition: Callable[[Job], bool]) -> Job:
    """Poll a Job until the condition holds."""
    until = time.monotonic() + LONGEST_SECONDS
    while True:
        job = await client.get(kinds.JOBS, name, namespace=NAMESPACE)
        if condition(job):
            return job
        if time.monotonic() > until:
            raise RuntimeError(f"Job {name}: not there after {LONGEST_SECONDS:g} s: {job.status}")
        await asyncio.sleep(POLL_SECONDS)


async def all_ready(client: Client, name: str, pods: int) -> None:
    """Wait until so many pods of a Job are ready."""
    await reached(client, name, lambda job: job.status.ready == pods)
