# SPDX-License-Identifier: Apache-2.0
"""A scenario's own namespace on one cluster: what it may do there, and what it sees.

Nothing here knows which controller acts. The stage keeps every pod that there
ever was, also those that are gone, because "how many were made" is part of
what two controllers must agree on. `outcome` makes of it what can be compared.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import DeleteOptions, EventType
from tests.scenarios import outcome
from tests.scenarios.house import EVENTS, JOBS, PODS, House

JOB = "job"

# A hang: nothing takes a fifth of this, on a busy machine too.
PATIENCE_SECONDS = 300.0

# The longest time in which a controller may be silent though it has something
# to do, back-off and deadlines aside: it gathers changes for one second.
QUIET_SECONDS = 3.0

# The longest that events are written behind what they tell of.
EVENTS_SECONDS = 30.0
MORE_EVENTS_SECONDS = 3.0
CREATED = "SuccessfulCreate"

SIMULATE = "refloat.dev/simulate"

Condition: TypeAlias = Callable[["Stage"], object]


class Unmet(AssertionError):
    """What was waited for did not come."""


class Stage:
    """One namespace, one Job (more by name), and all that has happened in it."""

    def __init__(self, house: House, namespace: str) -> None:
        self.house = house
        self.client = house.client
        self.namespace = namespace
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

    # What it sees

    def status(self, name: str = JOB) -> Object:
        """The Job's status as last seen; empty before there is any."""
        found: Object = self.jobs.get(name, {}).get("status") or {}
        return found

    def conditions(self, name: str = JOB) -> list[Object]:
        """The Job's conditions that events tell of: the interim ones are not."""
        found: list[Object] = self.status(name).get("conditions") or []
        return [each for each in found if each["type"] in ("Complete", "Failed", "Suspended")]

    def condition(self, kind: str, name: str = JOB) -> Object | None:
        """The Job's condition of this type, if it is True."""
        for each in self.status(name).get("conditions") or ():
            if each["type"] == kind and each["status"] == "True":
                found: Object = each
                return found
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
        """Pods that run or will, and nobody wants away."""
        return [pod for pod in self.unfinished if "deletionTimestamp" not in pod["metadata"]]

    @property
    def running(self) -> list[Object]:
        return [pod for pod in self.active if pod.get("status", {}).get("phase") == "Running"]

    def pod(self, index: int, number: int = -1) -> Object:
        """A pod of a completion index: the newest, or the nth that was made for it."""
        found = [pod for pod in self.pods.values() if outcome.index_of(pod) == index]
        return found[number]

    # What it does

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
        told = dict(annotations or {})
        if simulate is not None:
            told[SIMULATE] = json.dumps(simulate)
        pod = {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1"}],
            **(template or {}),
        }
        about = {"annotations": told, "labels": labels or {}, "finalizers": finalizers or []}
        spec["template"] = {"metadata": about, "spec": pod}
        if self.house.setting.managed_by:
            spec.setdefault("managedBy", self.house.setting.managed_by)
        body = {"metadata": {"name": name, "annotations": own_annotations or {}}, "spec": spec}
        return await self.client.create(JOBS, body, namespace=self.namespace)

    async def change(self, name: str = JOB, **spec: Any) -> Object:
        """Patch fields of a Job's spec."""
        return await self.client.patch(JOBS, name, {"spec": spec}, namespace=self.namespace)

    async def suspend(self, name: str = JOB) -> None:
        await self.change(name, suspend=True)

    async def resume(self, name: str = JOB) -> None:
        await self.change(name, suspend=False)

    async def delete_job(self, name: str = JOB, options: DeleteOptions | None = None) -> None:
        await self.client.delete(JOBS, name, namespace=self.namespace, options=options)

    async def delete_pod(self, pod: Object, options: DeleteOptions | None = None) -> None:
        await self.client.delete(
            PODS, pod["metadata"]["name"], namespace=self.namespace, options=options
        )

    async def evict(self, pod: Object) -> None:
        await self.client.evict(pod["metadata"]["name"], namespace=self.namespace)

    async def patch_pod(self, pod: Object, patch: Object, subresource: str = "") -> Object:
        return await self.client.patch(
            PODS,
            pod["metadata"]["name"],
            patch,
            patch_type="strategic",
            namespace=self.namespace,
            subresource=subresource,
        )

    async def create_pod(self, name: str, metadata: Object, simulate: Object) -> Object:
        """A pod that no controller made."""
        annotations = {SIMULATE: json.dumps(simulate), **metadata.pop("annotations", {})}
        spec = {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1"}],
        }
        body = {"metadata": {"name": name, "annotations": annotations, **metadata}, "spec": spec}
        return await self.client.create(PODS, body, namespace=self.namespace)

    # What it waits for

    async def wait_until(
        self, condition: Condition, patience: float = PATIENCE_SECONDS, what: str = ""
    ) -> None:
        """Until the condition holds of what was seen; looked at after each change."""
        try:
            async with asyncio.timeout(patience):
                while not condition(self):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unmet(f"{what or 'not so'} within {patience:.0f} s: {self.brief()}") from None

    async def finished(self, name: str = JOB, patience: float = PATIENCE_SECONDS) -> Object:
        """The Job's status once it is Complete or Failed."""
        await self.wait_until(
            lambda stage: stage.condition("Complete", name) or stage.condition("Failed", name),
            patience,
            f"{name} is not over",
        )
        return self.status(name)

    async def runs(self, count: int) -> list[Object]:
        """The running pods, once there are so many and the Job knows it."""
        await self.wait_until(
            lambda stage: len(stage.running) == count and stage.status().get("active") == count,
            what=f"not {count} running",
        )
        return self.running

    async def quiet(
        self, moment: float = QUIET_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Until no Job and no pod has changed for a moment, and counts agree with what is there.

        A busy controller may be silent for longer than a moment; what it still
        has to count is seen in the counts that it has not written yet.
        """
        try:
            async with asyncio.timeout(patience):
                before = -1
                while before != self._changes or not self._is_counted():
                    before = self._changes
                    await asyncio.sleep(moment)
        except TimeoutError:
            raise Unmet(f"not quiet within {patience:.0f} s: {self.brief()}") from None

    def _is_counted(self) -> bool:
        """Does the one Job count the pods that are there? One of somebody else's need not."""
        if len(self.jobs) != 1:
            return True
        ((name, job),) = self.jobs.items()
        status = self.status(name)
        if job["spec"].get("managedBy", "") != self.house.setting.managed_by:
            return True
        if "terminating" not in status:
            return False
        own = [pod for pod in self.unfinished if pod["metadata"].get("ownerReferences")]
        leaving = [pod for pod in own if "deletionTimestamp" in pod["metadata"]]
        ready = [pod for pod in own if pod not in leaving and outcome.is_ready(pod)]
        counted = (status.get("active", 0), status.get("ready", 0), status["terminating"])
        uncounted = any(status.get("uncountedTerminatedPods", {}).values())
        there = (len(own) - len(leaving), len(ready), len(leaving))
        return counted == there and not uncounted

    async def outcome(self, name: str = JOB) -> Object:
        """All that can be compared, once all events are written."""
        events = await self._settled_events()
        told = outcome.of(
            self.jobs,
            name,
            self.pods,
            self.gone,
            events,
            namespace=self.namespace,
            job_uids=self.job_uids,
        )
        return {**told, "notes": self.notes}

    async def events(self) -> list[Object]:
        """The events of this namespace that are about Jobs."""
        found: list[Object] = []
        async for page in self.client.list(EVENTS, namespace=self.namespace):
            found += page.items
        return [each for each in found if each.get("regarding", {}).get("kind") == "Job"]

    async def told(self, reason: str) -> Object:
        """An event with this reason, once it is written."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for each in await self.events():
                    if each["reason"] == reason:
                        return each
                await asyncio.sleep(1)

    async def _settled_events(self) -> list[Object]:
        """Events are written behind: those that must be are waited for, then for more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EVENTS_SECONDS
        before: list[Object] = []
        while True:
            events = await self.events()
            if (self._tells_all(events) and events == before) or loop.time() > deadline:
                return events
            before = events
            await asyncio.sleep(MORE_EVENTS_SECONDS)

    def _tells_all(self, events: list[Object]) -> bool:
        made = sum("generateName" in pod["metadata"] for pod in self.pods.values())
        told = sum(outcome.times_told(each) for each in events if each["reason"] == CREATED)
        reasons = {each.get("reason") for each in events}
        conditions = [each for name in self.jobs for each in self.conditions(name)]
        return told >= made and {outcome.told_by(each) for each in conditions} <= reasons

    def brief(self) -> str:
        """For messages: where things stand."""
        lines = [f"namespace {self.namespace}"]
        lines += [f"{name}: {json.dumps(self.status(name))}" for name in self.jobs]
        lines += [
            f"{pod['metadata']['name']}: {pod.get('status', {}).get('phase')}"
            f"{' deleting' if 'deletionTimestamp' in pod['metadata'] else ''}"
            for pod in self.present
        ]
        return "\n  ".join(lines)


@contextlib.asynccontextmanager
async def staged(house: House, title: str) -> AsyncIterator[Stage]:
    """A stage in a new namespace; what runs there ends with the block."""
    stage = Stage(house, await house.namespace(title))
    house.listen(stage.namespace, stage.saw)
    try:
        yield stage
    finally:
        house.leave(stage.namespace)
        with contextlib.suppress(errors.ClientError):
            await _strike(stage)


async def _strike(stage: Stage) -> None:
    """End what still runs: its place on the nodes is for others."""
    for name in list(stage.jobs):
        with contextlib.suppress(errors.NotFound):
            await stage.delete_job(name, DeleteOptions(propagation="Background"))
    for pod in stage.unfinished:
        with contextlib.suppress(errors.NotFound):
            await stage.delete_pod(pod, DeleteOptions(grace_seconds=0))
