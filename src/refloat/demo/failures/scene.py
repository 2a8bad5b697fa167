# SPDX-License-Identifier: Apache-2.0
"""Where a scenario plays: a namespace of a stage, of which all pods and Jobs are watched.

Several scenarios may share a stage, each in a namespace of its own, on nodes
that each of them names.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from refloat.api import conditions
from refloat.demo import objects
from refloat.demo.failures import end
from refloat.demo.failures.end import End
from refloat.demo.nodes import NODES
from refloat.demo.objects import Object
from refloat.demo.stage import Stage
from refloat.demo.view import Seen, View

Holds: TypeAlias = Callable[[Object], object]

POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": end.DISRUPTION}]},
        {
            "action": "FailJob",
            "onExitCodes": {"operator": "In", "values": [137]},
        },
    ]
}
"""Disruptions are nobody's fault; what is killed, and was not disrupted, is not tried again."""

BACKOFF_LIMIT = 6

# It does not heed SIGTERM: as process 1 of a container it would not, unless it listened.
# It says its process id when it is as far as that; `$$$$` is `$$` for the shell.
FOREVER = "trap '' TERM; echo $$$$; while true; do sleep 0.2; done"

# How often a log is looked at until there is something in it.
POLL_SECONDS = 0.05

# Of a container that is asked to end; more only lets everybody wait.
GRACE_SECONDS = 1


def pod_spec(
    script: str, *, node: str = "", container: Object | None = None, **more: Any
) -> Object:
    """A pod that runs a script, on a node if it is named."""
    made = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [made | (container or {})],
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        **more,
    }


class Scene:
    """One namespace."""

    def __init__(self, stage: Stage, space: str, *, pods: View, jobs: View) -> None:
        self.stage = stage
        self.space = space
        self._pods = pods
        self._jobs = jobs

    @classmethod
    async def of(cls, stage: Stage, name: str) -> "Scene":
        # Texts are searched for it: it must be no word.
        space = f"demo-{name}"
        await stage.client.create("/api/v1/namespaces", objects.namespace(space))
        return cls(
            stage,
            space,
            pods=await stage.view(f"/api/v1/namespaces/{space}/pods"),
            jobs=await stage.view(f"/apis/batch/v1/namespaces/{space}/jobs"),
        )

    # -- doing -----------------------------------------------------------

    def does(self, command: str) -> None:
        """Show what is done now, as somebody would do it by hand."""
        self.stage.note(f"$ {command}")

    async def job(self, name: str, spec: Object, **more: Any) -> str:
        """A Job of one pod, under the policy of all scenarios; the pod's name."""
        policy = {"podFailurePolicy": POLICY, "backoffLimit": BACKOFF_LIMIT}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {**policy, "template": {"spec": spec}, **more},
        }
        await self.stage.client.create(self._jobs.path, body)
        return await self._first_of(name)

    async def running(self, name: str, spec: Object, **more: Any) -> str:
        """The same, once its pod runs and has said something: then its traps are set."""
        pod = await self.job(name, spec, **more)
        await self.until(pod, lambda each: each["status"].get("phase") == "Running")
        while not await self.log(pod):
            await self.stage.clock.sleep(POLL_SECONDS)
        return pod

    async def pod(self, name: str, spec: Object) -> None:
        """A pod of nobody's."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.stage.client.create(self._pods.path, body)

    async def delete(self, pod: str) -> None:
        self.does(f"kubectl delete pod {pod}")
        await self.stage.client.delete(f"{self._pods.path}/{pod}")

    async def evict(self, pod: str) -> None:
        found = await self.stage.client.get(f"{self._pods.path}/{pod}")
        await self.stage.client.create(f"{self._pods.path}/{pod}/eviction", objects.eviction(found))

    async def lose_node(self, name: str, pod: str) -> None:
        """Delete the node of a pod; one that is not cut off would join again."""
        self.cut_off(name)
        await self.stage.nodes.lost(name)
        await self.until(pod, _is_unready)  # the cluster says so of the pod after the node
        self.does(f"kubectl delete node {name}")
        await self.stage.client.delete(f"{NODES}/{name}")

    def cut_off(self, node: str) -> None:
        self.does(f"refloat node partition {node}")
        self.stage.nodes.fail(node, "partition")

    async def log(self, pod: str) -> str:
        return await self.stage.client.text(f"{self._pods.path}/{pod}/log")

    # -- seeing ----------------------------------------------------------

    async def _first_of(self, job: str) -> str:
        def first() -> str:
            return next((each.name for each in self._pods.seen if end.job_of(each) == job), "")

        await self.stage.until(first)
        return first()

    def seen(self, pod: str) -> Seen:
        found = self._pods.last(pod)
        assert found is not None, f"pod {pod} was never seen"
        return found

    def phases(self, pod: str) -> list[str]:
        """All that it went through, in order."""
        told = [each.object["status"].get("phase") for each in self._pods.seen if each.name == pod]
        return list(dict.fromkeys(told))

    async def until(self, pod: str, holds: Holds) -> None:
        """Wait until something is so of a pod."""
        await self.stage.until(lambda: holds(self.seen(pod).object))

    async def waiting(self, pod: str, *reasons: str) -> None:
        """Wait until its container waits, for one of these reasons."""

        def waits(found: Object) -> bool:
            told = found["status"].get("containerStatuses") or ()
            return any(each["state"].get("waiting", {}).get("reason") in reasons for each in told)

        await self.until(pod, waits)

    async def job_is(self, job: str, holds: Holds) -> None:
        """Wait until something is so of a Job."""

        def is_so() -> bool:
            found = self._jobs.last(job)
            return found is not None and bool(holds(found.object))

        await self.stage.until(is_so)

    async def replaced(self, pod: str) -> None:
        await self.stage.until(lambda: end.replacement(self._pods.seen, pod))

    async def settled(self, job: str, pod: str) -> End:
        """How it ended, once the pod has, and the Job has seen to it and is over or goes on."""

        def is_settled() -> bool:
            found, last = self._jobs.last(job), self.seen(pod)
            if found is None or not end.is_terminal(last.object) or not end.is_counted(last):
                return False
            goes_on = end.replacement(self._pods.seen, pod) and not end.is_counting(found.object)
            return bool(end.is_over(found.object) or goes_on)

        await self.stage.until(is_settled)
        return self.now(job, pod)

    def now(self, job: str, pod: str) -> End:
        """How it is."""
        found = self._jobs.last(job)
        assert found is not None, f"job {job} was never seen"
        return end.observe(self._pods.seen, found, pod)


def _is_unready(pod: Object) -> bool:
    return not conditions.is_true(pod["status"].get("conditions") or [], "Ready")
