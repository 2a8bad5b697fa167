# SPDX-License-Identifier: Apache-2.0
"""What benchmarks give Job controllers to do, and the look at how far they are."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.job.pods import Template
from refloat.controllers.job.settings import REFLOAT
from refloat.policy import job_conditions
from refloat.policy.scaling import NewPod

NAMESPACE = "default"

# Often enough for a makespan of seconds, and no load to speak of.
LOOK_SECONDS = 0.1

# A Job that is not through by then never will be; 20,000 pods take two minutes.
LONGEST_SECONDS = 1800.0

# What failed pods end with, and the rules that do not match it.
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
    """A Job whose pods run for so long on simulated nodes; without seconds, for ever."""
    simulated = json.dumps({"main": {"seconds": seconds}})
    container = {"name": "main", "image": "registry.example.com/team/work:v1", "command": ["work"]}
    template = {
        "metadata": {"annotations": {"refloat.dev/simulate": simulated}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    managed = {} if managed_by is None else {"managedBy": managed_by}
    sizes = {"completions": pods, "parallelism": parallelism}
    return {"metadata": {"name": name}, "spec": {**sizes, **managed, **spec, "template": template}}


def policy() -> Object:
    """Twenty rules, of which the last one matches: each failed pod is held against all."""
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
    ended = {"exitCode": EXIT_CODE, "reason": "Error", "startedAt": now, "finishedAt": now}
    container = {"name": "main", "state": {"terminated": ended}}
    conditions = [
        {"type": each, "status": "False", "lastTransitionTime": now}
        for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {"phase": "Failed", "conditions": conditions, "containerStatuses": [container]}


async def add_failed_pods(client: Client, owner: Job, names: list[str]) -> None:
    """Pods of the Job as its controller would have made them, and their failures."""
    template, status = Template(owner), {"status": failed_status()}
    for name in names:
        await client.create(kinds.PODS, template.pod(name, NewPod()), namespace=NAMESPACE)
        await client.patch(kinds.PODS, name, status, namespace=NAMESPACE, subresource="status")


async def completed(client: Client, name: str) -> None:
    """Wait until a Job has ended, and well."""
    found = await reached(
        client, name, lambda job: job_conditions.is_finished(job.status.conditions)
    )
    last = (found.status.conditions or ())[-1]
    if last.type != job_conditions.COMPLETE:
        raise RuntimeError(f"Job {name}: {last.type}: {last.reason}: {last.message}")


async def reached(client: Client, name: str, is_so: Callable[[Job], bool]) -> Job:
    """The Job, once it is as wanted."""
    until = time.monotonic() + LONGEST_SECONDS
    while True:
        found = await client.get(kinds.JOBS, name, namespace=NAMESPACE)
        if is_so(found):
            return found
        if time.monotonic() > until:
            raise RuntimeError(f"Job {name}: not there after {LONGEST_SECONDS:g} s: {found.status}")
        await asyncio.sleep(LOOK_SECONDS)
