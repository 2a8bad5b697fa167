# SPDX-License-Identifier: Apache-2.0
"""A scenario's own namespace on one cluster: actions, observations and waits.

Nothing here knows which controller acts. The namespace keeps every pod that it ever
had, also deleted ones: two controllers must agree on the number of pods too.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from refloat.api import conditions
from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import DeleteOptions, EventType
from refloat.scenario import manifests
from refloat.scenario.cluster import EVENTS, JOBS, PODS, ScenarioCluster
from refloat.scenario.errors import ConditionTimeout

JOB = "job"
INDEX = "batch.kubernetes.io/job-completion-index"
TERMINAL = ("Succeeded", "Failed")
STARTED = ("Running", *TERMINAL)

# A hang: nothing takes a fifth of this, on a busy machine too.
PATIENCE_SECONDS = 300.0

# The longest time in which a controller with work to do may be silent, back-off
# and deadlines aside: controllers gather changes for one second.
QUIET_SECONDS = 3.0

# The pause between two reads of a log, which no watch shows, and the most lines of a read.
LOG_SECONDS = 0.05
LOG_LINES = 100

Condition: TypeAlias = Callable[["ScenarioNamespace"], object]


def index_of(pod: Object) -> int | None:
    """The completion index of a pod."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(text) if text is not None and text.isdigit() else None


def is_over(pod: Object) -> bool:
    """Whether a pod has a terminal phase."""
    return pod.get("status", {}).get("phase") in TERMINAL


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """One event of a watch."""

    plural: str
    type: EventType
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])

    @property
    def is_gone(self) -> bool:
        return self.type == "DELETED"


class ScenarioNamespace:
    """One namespace, one Job (more by name), and the history of both."""

    def __init__(self, cluster: ScenarioCluster, name: str) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.name = name
        self.history: list[ScenarioEvent] = []
        self.objects: dict[tuple[str, str], Object] = {}
        """The present objects, by plural and name."""
        self.job_uids: set[str] = set()
        """Of all Jobs that there ever were: pods that outlive theirs carry its uid."""
        self.pods: dict[str, Object] = {}
        """By uid, in the order of their creation, in their last versions; also deleted ones."""
        self.gone: set[str] = set()
        """The uids of the deleted pods."""
        self.notes: list[str] = []
        """Answers of the API, to compare with those of other clusters."""
        self._changed = asyncio.Event()
        cluster.listen(name, self.record)

    def record(self, plural: str, event: EventType, obj: Object) -> None:
        """Take in an event of a watch."""
        meta = obj["metadata"]
        self.history.append(ScenarioEvent(plural, event, obj))
        if event == "DELETED":
            self.objects.pop((plural, meta["name"]), None)
        else:
            self.objects[plural, meta["name"]] = obj
        if plural == "jobs":
            self.job_uids.add(meta["uid"])
        elif plural == "pods":
            self.pods[meta["uid"]] = obj
            if event == "DELETED":
                self.gone.add(meta["uid"])
        self._changed.set()

    # Observations

    @property
    def jobs(self) -> dict[str, Object]:
        """The present Jobs, by name."""
        return {name: obj for (plural, name), obj in self.objects.items() if plural == "jobs"}

    def status(self, name: str = JOB) -> Object:
        """The last status of a Job; empty before there is any."""
        status: Object = self.objects.get(("jobs", name), {}).get("status") or {}
        return status

    def condition(self, kind: str, name: str = JOB) -> Object | None:
        """The Job's condition of this type, if True."""
        condition = conditions.find(self.status(name).get("conditions") or [], kind)
        return condition if condition is not None and condition["status"] == "True" else None

    @property
    def present(self) -> list[Object]:
        """The pods that are not deleted, the oldest first."""
        return [pod for uid, pod in self.pods.items() if uid not in self.gone]

    @property
    def unfinished(self) -> list[Object]:
        """Pods that may still run: without a terminal phase, also if they are being deleted."""
        return [pod for pod in self.present if not is_over(pod)]

    @property
    def active(self) -> list[Object]:
        """Pods that run or will run, and are not being deleted."""
        return [pod for pod in self.unfinished if "deletionTimestamp" not in pod["metadata"]]

    @property
    def running(self) -> list[Object]:
        return [pod for pod in self.active if pod.get("status", {}).get("phase") == "Running"]

    def pod(self, index: int, number: int = -1) -> Object:
        """A pod of a completion index: the newest, or the nth."""
        return [pod for pod in self.pods.values() if index_of(pod) == index][number]

    def most_at_once(self, index: int | None = None) -> int:
        """The most unfinished pods that there were at once, of all or of an index."""
        unfinished: set[str] = set()
        most = 0
        for each in self.history:
            if each.plural != "pods" or index not in (None, index_of(each.object)):
                continue
            if each.is_gone or is_over(each.object):
                unfinished.discard(each.object["metadata"]["uid"])
            else:
                unfinished.add(each.object["metadata"]["uid"])
            most = max(most, len(unfinished))
        return most

    def named(self, name: str) -> Object:
        """The newest pod of this name, also if it is deleted."""
        return [pod for pod in self.pods.values() if pod["metadata"]["name"] == name][-1]

    # Actions

    async def submit(
        self,
        name: str = JOB,
        *,
        simulate: Any = None,
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
        body = manifests.job(
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
        name = pod["metadata"]["name"]
        await self.client.delete(PODS, name, namespace=self.name, options=options)

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
        """A pod without a controller."""
        spec = {"restartPolicy": "Never"}
        body = manifests.pod(name, simulate=simulate, spec=spec, **metadata)
        return await self.client.create(PODS, body, namespace=self.name)

    # Waits

    async def sleep(self, seconds: float) -> None:
        await self.cluster.clock.sleep(seconds)

    @contextlib.asynccontextmanager
    async def patience(self, what: str, seconds: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
        """A limit for the block; `ConditionTimeout` has the state of the namespace."""
        try:
            async with self.cluster.clock.timeout(seconds):
                yield
        except TimeoutError:
            text = f"{what} within {seconds:.0f} s: {self.summary()}"
            raise ConditionTimeout(text) from None

    async def wait_until(
        self, condition: Condition, what: str = "not so", seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Until the condition holds for what the watches show."""
        async with self.patience(what, seconds):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def shown(self, obj: Object) -> Object:
        """An object, once a watch has shown this version or a later one."""
        uid, revision = obj["metadata"]["uid"], int(obj["metadata"]["resourceVersion"])
        await self.wait_until(
            lambda ns: any(
                each.object["metadata"]["uid"] == uid and each.revision >= revision
                for each in ns.history
            )
        )
        return obj

    async def finished(self, name: str = JOB) -> Object:
        """The Job's status, once Complete or Failed."""
        await self.wait_until(
            lambda ns: ns.condition("Complete", name) or ns.condition("Failed", name),
            f"{name} is not over",
        )
        return self.status(name)

    async def runs(self, count: int, name: str = JOB) -> list[Object]:
        """The running pods, once there are so many and the Job has counted them."""
        await self.wait_until(
            lambda ns: len(ns.running) == count and ns.status(name).get("active") == count,
            f"not {count} running",
        )
        return self.running

    async def quiet(self) -> None:
        """Until no Job and no pod changes for a moment, and the Job counts its pods right.

        A busy controller may be silent for longer than a moment. The counts that the
        controller has not written yet show its unfinished work.
        """
        async with self.patience("not quiet"):
            before = -1
            while before != len(self.history) or not self._is_counted():
                before = len(self.history)
                await self.sleep(QUIET_SECONDS)

    def _is_counted(self) -> bool:
        """Whether the only Job counts the present pods; another controller's need not."""
        jobs = self.jobs
        if len(jobs) != 1:
            return True
        ((name, job),) = jobs.items()
        status = self.status(name)
        if job["spec"].get("managedBy", "") != self.cluster.managed_by:
            return True
        if "terminating" not in status:
            return False
        own = [pod for pod in self.unfinished if pod["metadata"].get("ownerReferences")]
        leaving = [pod for pod in own if "deletionTimestamp" in pod["metadata"]]
        active = [pod for pod in own if pod not in leaving]
        ready = [pod for pod in active if conditions.is_true(conditions.of(pod), "Ready")]
        counts = (status.get("active", 0), status.get("ready", 0), status["terminating"])
        uncounted = any(status.get("uncountedTerminatedPods", {}).values())
        return counts == (len(active), len(ready), len(leaving)) and not uncounted

    async def events(self) -> list[Object]:
        """The events of this namespace that are about Jobs."""
        pages = self.client.list(EVENTS, namespace=self.name)
        events = [each async for page in pages for each in page.items]
        return [each for each in events if each.get("regarding", {}).get("kind") == "Job"]

    async def event(self, reason: str) -> Object:
        """An event with this reason, once written."""
        async with self.patience(f"no event {reason}"):
            while True:
                for each in await self.events():
                    if each["reason"] == reason:
                        return each
                await self.sleep(1)

    async def printed(self, pod: str, lines: int = 1) -> list[str]:
        """The log of a pod's container `main`, once there are so many lines."""
        options = {"namespace": self.name, "container": "main"}
        async with self.patience(f"no {lines} lines in the log of {pod}"):
            await self.wait_until(lambda ns: ns.named(pod)["status"].get("phase") in STARTED)
            while True:
                text = await self.client.log(pod, lines=LOG_LINES, **options)
                if len(log := text.splitlines()) >= lines:
                    return log
                await self.sleep(LOG_SECONDS)

    def summary(self) -> str:
        """The state of the Jobs and pods, for messages."""
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
    try:
        yield ns
    finally:
        cluster.leave(ns.name)
        # What still runs must end, because other scenarios need the nodes.
        with contextlib.suppress(errors.ClientError):
            for name in list(ns.jobs):
                with contextlib.suppress(errors.NotFound):
                    await ns.delete_job(name, DeleteOptions(propagation="Background"))
            for pod in ns.unfinished:
                with contextlib.suppress(errors.NotFound):
                    await ns.delete_pod(pod, DeleteOptions(grace_seconds=0))
