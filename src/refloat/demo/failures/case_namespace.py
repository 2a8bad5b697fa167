# SPDX-License-Identifier: Apache-2.0
"""The namespace of a case, with a watch of all pods and Jobs.

Several cases may share a cluster, each in its own namespace and on its own nodes.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from refloat.api import conditions
from refloat.demo import objects
from refloat.demo.demo_cluster import DemoCluster
from refloat.demo.failures import pod_end
from refloat.demo.failures.pod_end import End
from refloat.demo.nodes import NODES
from refloat.demo.objects import Object
from refloat.demo.view import CollectionView, ViewEvent

Condition: TypeAlias = Callable[[Object], object]

POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": pod_end.DISRUPTION}]},
        {
            "action": "FailJob",
            "onExitCodes": {"operator": "In", "values": [137]},
        },
    ]
}
"""The Job ignores disruptions, and fails for a killed container without a disruption."""

BACKOFF_LIMIT = 6

# The script ignores SIGTERM, as process 1 of a container does without a handler. It prints
# its process id after the trap is set; `$$$$` is `$$` for the shell.
FOREVER = "trap '' TERM; echo $$$$; while true; do sleep 0.2; done"

# How often the case polls for the first line of a log.
POLL_SECONDS = 0.05

# Short, because no container of these cases uses its grace period.
GRACE_SECONDS = 1


def pod_spec(
    script: str, *, node: str = "", container: Object | None = None, **more: Any
) -> Object:
    """A pod that runs a script, on the named node if there is one."""
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [main | (container or {})],
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        **more,
    }


class CaseNamespace:
    """The namespace of one case."""

    def __init__(
        self, cluster: DemoCluster, name: str, *, pods: CollectionView, jobs: CollectionView
    ) -> None:
        self.cluster = cluster
        self.name = name
        self._pods = pods
        self._jobs = jobs

    @classmethod
    async def of(cls, cluster: DemoCluster, name: str) -> "CaseNamespace":
        # `pod_end` replaces the name in texts, so the name must not be a common word.
        space = f"demo-{name}"
        await cluster.client.create("/api/v1/namespaces", objects.namespace(space))
        return cls(
            cluster,
            space,
            pods=await cluster.view(f"/api/v1/namespaces/{space}/pods"),
            jobs=await cluster.view(f"/apis/batch/v1/namespaces/{space}/jobs"),
        )

    # -- requests --------------------------------------------------------

    def show_command(self, command: str) -> None:
        """Show the command with which a user would take this step."""
        self.cluster.note(f"$ {command}")

    async def job(self, name: str, spec: Object, **more: Any) -> str:
        """Create a Job with one pod and the policy of all cases; the pod's name."""
        policy = {"podFailurePolicy": POLICY, "backoffLimit": BACKOFF_LIMIT}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {**policy, "template": {"spec": spec}, **more},
        }
        await self.cluster.client.create(self._jobs.path, body)

        def first() -> str:
            return next(
                (event.name for event in self._pods.seen if pod_end.job_of(event) == name), ""
            )

        await self.cluster.until(first)
        return first()

    async def running(self, name: str, spec: Object, **more: Any) -> str:
        """Create a Job and wait for the first line of its pod's log: then the traps are set."""
        pod = await self.job(name, spec, **more)
        await self.until(pod, lambda pod: pod["status"].get("phase") == "Running")
        while not await self.log(pod):
            await self.cluster.clock.sleep(POLL_SECONDS)
        return pod

    async def pod(self, name: str, spec: Object) -> None:
        """Create a pod without an owner."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.cluster.client.create(self._pods.path, body)

    async def delete(self, pod: str) -> None:
        self.show_command(f"kubectl delete pod {pod}")
        await self.cluster.client.delete(f"{self._pods.path}/{pod}")

    async def evict(self, pod: str) -> None:
        path = f"{self._pods.path}/{pod}"
        eviction = objects.eviction(await self.cluster.client.get(path))
        await self.cluster.client.create(f"{path}/eviction", eviction)

    async def lose_node(self, name: str, pod: str) -> None:
        """Cut off the node of a pod and delete the node, which cannot join again."""
        self.cut_off(name)
        await self.cluster.nodes.wait_lost(name)
        # The cluster updates the pod after the node.
        await self.until(
            pod, lambda obj: not conditions.is_true(obj["status"].get("conditions") or [], "Ready")
        )
        self.show_command(f"kubectl delete node {name}")
        await self.cluster.client.delete(f"{NODES}/{name}")

    def cut_off(self, node: str) -> None:
        self.show_command(f"refloat node partition {node}")
        self.cluster.nodes.fail(node, "partition")

    async def log(self, pod: str) -> str:
        return await self.cluster.client.text(f"{self._pods.path}/{pod}/log")

    # -- watches ---------------------------------------------------------

    def last_event(self, pod: str) -> ViewEvent:
        event = self._pods.last(pod)
        assert event is not None, f"pod {pod} was never seen"
        return event

    def phases(self, pod: str) -> list[str]:
        """All phases of the pod, in order."""
        events = [event for event in self._pods.seen if event.name == pod]
        return list(dict.fromkeys(event.object["status"].get("phase") for event in events))

    async def until(self, pod: str, condition: Condition) -> None:
        """Wait until a pod meets the condition."""
        await self.cluster.until(lambda: condition(self.last_event(pod).object))

    async def waiting(self, pod: str, *reasons: str) -> None:
        """Wait until the container waits for one of these reasons."""

        def waits(obj: Object) -> bool:
            containers = obj["status"].get("containerStatuses") or ()
            return any(c["state"].get("waiting", {}).get("reason") in reasons for c in containers)

        await self.until(pod, waits)

    async def job_is(self, job: str, condition: Condition) -> None:
        """Wait until a Job meets the condition."""

        def is_met() -> bool:
            event = self._jobs.last(job)
            return event is not None and bool(condition(event.object))

        await self.cluster.until(is_met)

    async def replaced(self, pod: str) -> None:
        await self.cluster.until(lambda: pod_end.replacement(self._pods.seen, pod))

    async def settled(self, job: str, pod: str) -> End:
        """Wait until the pod has ended and the Job has counted it, and is over or goes on."""

        def is_settled() -> bool:
            owner, last = self._jobs.last(job), self.last_event(pod)
            if (
                owner is None
                or not pod_end.is_terminal(last.object)
                or not pod_end.is_counted(last)
            ):
                return False
            has_next = pod_end.replacement(self._pods.seen, pod) is not None
            goes_on = has_next and not pod_end.is_counting(owner.object)
            return pod_end.is_over(owner.object) or goes_on

        await self.cluster.until(is_settled)
        return self.now(job, pod)

    def now(self, job: str, pod: str) -> End:
        """The state of the pod and the Job now."""
        owner = self._jobs.last(job)
        assert owner is not None, f"job {job} was never seen"
        return pod_end.observe(self._pods.seen, owner, pod)
