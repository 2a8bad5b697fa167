# SPDX-License-Identifier: Apache-2.0
"""A scenario's own namespace on one cluster: actions, observations and waits.

Nothing here knows which controller acts. The namespace keeps every pod that there
ever was, also those that are gone, because "how many were made" is part of
what two controllers must agree on. `outcome` makes a comparable record of all this.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import DeleteOptions, EventType
from tests import builders
from tests.scenarios import outcome
from tests.scenarios.shared_cluster import EVENTS, JOBS, PODS, ScenarioCluster

JOB = "job"

# A hang: nothing takes a fifth of this, on a busy machine too.
PATIENCE_SECONDS = 300.0

# The longest time in which a controller with work to do may be silent, back-off
# and deadlines aside: controllers gather changes for one second.
QUIET_SECONDS = 3.0

# The longest delay with which events are written.
EVENTS_SECONDS = 30.0
MORE_EVENTS_SECONDS = 3.0
CREATED = "SuccessfulCreate"

Condition: TypeAlias = Callable[["ScenarioNamespace"], object]


class Unmet(AssertionError):
    """What was waited for did not come."""


class ScenarioNamespace:
    """One namespace, one Job (more by name), and all that has happened in it."""

    def __init__(self, cluster: ScenarioCluster, name: str) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.name = name
        self.jobs: dict[str, Object] = {}
        self.job_uids: set[str] = set()
        """Of all Jobs that were ever seen: pods that outlive theirs carry its uid."""
        self.pods: dict[str, Object] = {}
        """By uid, in the order of their creation; also those that are gone, as last seen."""
        self.gone: set[str] = set()
        self.most_unfinished = 0
        """How many pods were without a terminal phase at once, at most."""
        self.notes: list[str] = []
        """What else is to be compared: answers of the API."""
        self._changed = asyncio.Event()
        self._changes = 0

    def saw(self, plural: str, what: EventType, obj: Object) -> None:
        meta = obj["metadata"]
        if plural == "jobs":
            self.job_uids.add(meta["uid"])
            if what == "DELETED":
                self.jobs.pop(meta["name"], None)
            else:
                self.jobs[meta["name"]] = obj
        elif what == "DELETED":
            self.gone.add(meta["uid"])
            self.pods[meta["uid"]] = obj
        else:
            self.pods[meta["uid"]] = obj
        self.most_unfinished = max(self.most_unfinished, len(self.unfinished))
        self._changes += 1
        self._changed.set()

    # Observations

    def status(self, name: str = JOB) -> Object:
        """The Job's status as last seen; empty before there is any."""
        status: Object = self.jobs.get(name, {}).get("status") or {}
        return status

    def conditions(self, name: str = JOB) -> list[Object]:
        """The Job's conditions that have events: the interim ones have none."""
        conditions: list[Object] = self.status(name).get("conditions") or []
        return [each for each in conditions if each["type"] in ("Complete", "Failed", "Suspended")]

    def condition(self, kind: str, name: str = JOB) -> Object | None:
        """The Job's condition of this type, if True."""
        for each in self.status(name).get("conditions") or ():
            if each["type"] == kind and each["status"] == "True":
                condition: Object = each
                return condition
        return None

    @property
    def present(self) -> list[Object]:
        """The pods that are there, the oldest first."""
        return [pod for uid, pod in self.pods.items() if uid not in self.gone]

    @property
    def unfinished(self) -> list[Object]:
        """Pods that may still run: without a terminal phase, also if they are being deleted."""
        return [
            pod
            for pod in self.present
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    @property
    def active(self) -> list[Object]:
        """Pods that run or will run, and are not being deleted."""
        return [pod for pod in self.unfinished if "deletionTimestamp" not in pod["metadata"]]

    @property
    def running(self) -> list[Object]:
        return [pod for pod in self.active if pod.get("status", {}).get("phase") == "Running"]

    def pod(self, index: int, number: int = -1) -> Object:
        """A pod of a completion index: the newest, or the nth that was made for it."""
        pods = [pod for pod in self.pods.values() if outcome.index_of(pod) == index]
        return pods[number]

    # Actions

    def note(self, text: str) -> None:
        """Keep a text for the outcome."""
        self.notes.append(text)

    async def submit(
        self,
        name: str = JOB,
        *,
        simulate: Object | None = None,
        template: Object | None = None,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        finalizers: list[str] | None = None,
        own_annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """Create a Job: `spec` as in the API, `template` over the smallest pod there is.

        Annotations, labels and finalizers are those of the pods, but for `own_annotations`.
        """
        pod_metadata = {
            "annotations": annotations or {},
            "labels": labels or {},
            "finalizers": finalizers or [],
        }
        if self.cluster.managed_by:
            spec.setdefault("managedBy", self.cluster.managed_by)
        body = builders.job(
            name,
            simulate=simulate,
            spec=spec,
            pod_spec=template,
            pod_metadata=pod_metadata,
            annotations=own_annotations or {},
        )
        return await self.client.create(JOBS, body, namespace=self.name)

    async def change(self, name: str = JOB, **spec: Any) -> Object:
        """Patch fields of a Job's spec."""
        return await self.client.patch(JOBS, name, {"spec": spec}, namespace=self.name)

    async def suspend(self, name: str = JOB) -> None:
        await self.change(name, suspend=True)

    async def resume(self, name: str = JOB) -> None:
        await self.change(name, suspend=False)

    async def delete_job(self, name: str = JOB, options: DeleteOptions | None = None) -> None:
        await self.client.delete(JOBS, name, namespace=self.name, options=options)

    async def delete_pod(self, pod: Object, options: DeleteOptions | None = None) -> None:
        await self.client.delete(
            PODS, pod["metadata"]["name"], namespace=self.name, options=options
        )

    async def evict(self, pod: Object) -> None:
        await self.client.evict(pod["metadata"]["name"], namespace=self.name)

    async def patch_pod(self, pod: Object, patch: Object, subresource: str = "") -> Object:
        return await self.client.patch(
            PODS,
            pod["metadata"]["name"],
            patch,
            patch_type="strategic",
            namespace=self.name,
            subresource=subresource,
        )

    async def create_pod(self, name: str, metadata: Object, simulate: Object) -> Object:
        """A pod that no controller made."""
        spec = {"restartPolicy": "Never"}
        body = builders.pod(name, simulate=simulate, spec=spec, **metadata)
        return await self.client.create(PODS, body, namespace=self.name)

    # Waits

    async def sleep(self, seconds: float) -> None:
        await self.cluster.clock.sleep(seconds)

    async def wait_until(
        self, condition: Condition, patience: float = PATIENCE_SECONDS, what: str = ""
    ) -> None:
        """Until the condition holds of what was seen; looked at after each change."""
        try:
            async with self.cluster.clock.timeout(patience):
                while not condition(self):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unmet(f"{what or 'not so'} within {patience:.0f} s: {self.brief()}") from None

    async def finished(self, name: str = JOB, patience: float = PATIENCE_SECONDS) -> Object:
        """The Job's status, once Complete or Failed."""
        await self.wait_until(
            lambda ns: ns.condition("Complete", name) or ns.condition("Failed", name),
            patience,
            f"{name} is not over",
        )
        return self.status(name)

    async def runs(self, count: int) -> list[Object]:
        """The running pods, once there are so many and the Job has counted them."""
        await self.wait_until(
            lambda ns: len(ns.running) == count and ns.status().get("active") == count,
            what=f"not {count} running",
        )
        return self.running

    async def quiet(
        self, moment: float = QUIET_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Until no Job and no pod has changed for a moment, and counts agree with what is there.

        A busy controller may be silent for longer than a moment. The counts that the
        controller has not written yet show what is still to count.
        """
        try:
            async with self.cluster.clock.timeout(patience):
                before = -1
                while before != self._changes or not self._is_counted():
                    before = self._changes
                    await self.cluster.clock.sleep(moment)
        except TimeoutError:
            raise Unmet(f"not quiet within {patience:.0f} s: {self.brief()}") from None

    def _is_counted(self) -> bool:
        """Whether the only Job counts the pods that are there; another controller's need not."""
        if len(self.jobs) != 1:
            return True
        ((name, job),) = self.jobs.items()
        status = self.status(name)
        if job["spec"].get("managedBy", "") != self.cluster.managed_by:
            return True
        if "terminating" not in status:
            return False
        own = [pod for pod in self.unfinished if pod["metadata"].get("ownerReferences")]
        leaving = [pod for pod in own if "deletionTimestamp" in pod["metadata"]]
        ready = [pod for pod in own if pod not in leaving and outcome.is_ready(pod)]
        counts = (status.get("active", 0), status.get("ready", 0), status["terminating"])
        uncounted = any(status.get("uncountedTerminatedPods", {}).values())
        there = (len(own) - len(leaving), len(ready), len(leaving))
        return counts == there and not uncounted

    async def outcome(self, name: str = JOB) -> Object:
        """All that can be compared, once all events are written."""
        events = await self._settled_events()
        record = outcome.of(
            self.jobs,
            name,
            self.pods,
            self.gone,
            events,
            namespace=self.name,
            job_uids=self.job_uids,
        )
        return {**record, "notes": self.notes}

    async def events(self) -> list[Object]:
        """The events of this namespace that are about Jobs."""
        events: list[Object] = []
        async for page in self.client.list(EVENTS, namespace=self.name):
            events += page.items
        return [each for each in events if each.get("regarding", {}).get("kind") == "Job"]

    async def told(self, reason: str) -> Object:
        """An event with this reason, once written."""
        async with self.cluster.clock.timeout(PATIENCE_SECONDS):
            while True:
                for each in await self.events():
                    if each["reason"] == reason:
                        return each
                await self.cluster.clock.sleep(1)

    async def _settled_events(self) -> list[Object]:
        """Events are written behind: those that must be are waited for, then for more."""
        clock = self.cluster.clock
        deadline = clock.monotonic() + EVENTS_SECONDS
        before: list[Object] = []
        while True:
            events = await self.events()
            if (self._tells_all(events) and events == before) or clock.monotonic() > deadline:
                return events
            before = events
            await self.cluster.clock.sleep(MORE_EVENTS_SECONDS)

    def _tells_all(self, events: list[Object]) -> bool:
        creations = sum("generateName" in pod["metadata"] for pod in self.pods.values())
        recorded = sum(outcome.times_told(each) for each in events if each["reason"] == CREATED)
        reasons = {each.get("reason") for each in events}
        conditions = [each for name in self.jobs for each in self.conditions(name)]
        return recorded >= creations and {outcome.told_by(each) for each in conditions} <= reasons

    def brief(self) -> str:
        """For messages: where things stand."""
        lines = [f"namespace {self.name}"]
        lines += [f"{name}: {json.dumps(self.status(name))}" for name in self.jobs]
        lines += [
            f"{pod['metadata']['name']}: {pod.get('status', {}).get('phase')}"
            f"{' deleting' if 'deletionTimestamp' in pod['metadata'] else ''}"
            for pod in self.present
        ]
        return "\n  ".join(lines)


@contextlib.asynccontextmanager
async def opened(cluster: ScenarioCluster, title: str) -> AsyncIterator[ScenarioNamespace]:
    """A new namespace; its Jobs and pods are deleted at the end of the block."""
    ns = ScenarioNamespace(cluster, await cluster.namespace(title))
    cluster.listen(ns.name, ns.saw)
    try:
        yield ns
    finally:
        cluster.leave(ns.name)
        with contextlib.suppress(errors.ClientError):
            await _delete_all(ns)


async def _delete_all(ns: ScenarioNamespace) -> None:
    """End what still runs, because other scenarios need the nodes."""
    for name in list(ns.jobs):
        with contextlib.suppress(errors.NotFound):
            await ns.delete_job(name, DeleteOptions(propagation="Background"))
    for pod in ns.unfinished:
        with contextlib.suppress(errors.NotFound):
            await ns.delete_pod(pod, DeleteOptions(grace_seconds=0))
