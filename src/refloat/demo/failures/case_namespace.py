# SPDX-License-Identifier: Apache-2.0
"""The namespace of a case, with a watch of all pods and Jobs.

Several cases may share a cluster, each in its own namespace and on its own nodes.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from refloat.api import conditions
from refloat.api.meta import Object
from refloat.demo.demo_cluster import DemoCluster
from refloat.demo.failures import pod_end
from refloat.demo.failures.pod_end import End
from refloat.scenario.cluster import NAMESPACES, NODES
from refloat.scenario.namespace import ScenarioEvent, ScenarioNamespace

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


class CaseNamespace(ScenarioNamespace):
    """The namespace of one case."""

    def __init__(self, demo: DemoCluster, name: str) -> None:
        super().__init__(demo.scenario, name)
        self.demo = demo

    @classmethod
    async def of(cls, demo: DemoCluster, name: str) -> "CaseNamespace":
        # `pod_end` replaces the name in texts, so the name must not be a common word.
        space = f"demo-{name}"
        await demo.client.create(NAMESPACES, {"metadata": {"name": space}})
        demo.show(space, "pods", "jobs")
        return cls(demo, space)

    # -- requests --------------------------------------------------------

    def show_command(self, command: str) -> None:
        """Show the command with which a user would take this step."""
        self.demo.note(f"$ {command}")

    async def job(self, name: str, spec: Object, **more: Any) -> str:
        """Create a Job with one pod and the policy of all cases; the pod's name."""
        policy: Object = {"podFailurePolicy": POLICY, "backoffLimit": BACKOFF_LIMIT}
        await self.submit(name, template=spec, **policy | more)

        def names(_: ScenarioNamespace) -> list[str]:
            return [each.name for each in self.pod_events if pod_end.job_of(each.object) == name]

        await self.wait_until(names)
        return names(self)[0]

    async def started(self, name: str, spec: Object, **more: Any) -> str:
        """Create a Job and wait for the first line of its pod's log: then the traps are set."""
        pod = await self.job(name, spec, **more)
        await self.printed(pod)
        return pod

    async def delete(self, pod: str) -> None:
        self.show_command(f"kubectl delete pod {pod}")
        await self.delete_pod(self.named(pod))

    async def lose_node(self, name: str, pod: str) -> None:
        """Cut off the node of a pod and delete the node, which cannot join again."""
        self.cut_off(name)
        await self.demo.nodes.watched.wait_lost(name)
        # The cluster updates the pod after the node.
        await self.until(pod, lambda pod: not conditions.is_true(conditions.of(pod), "Ready"))
        self.show_command(f"kubectl delete node {name}")
        await self.client.delete(NODES, name)

    def cut_off(self, node: str) -> None:
        self.show_command(f"refloat node partition {node}")
        self.demo.nodes.fail(node, "partition")

    # -- watches ---------------------------------------------------------

    @property
    def pod_events(self) -> list[ScenarioEvent]:
        return [each for each in self.history if each.plural == "pods"]

    def phases(self, pod: str) -> list[str]:
        """All phases of the pod, in order."""
        events = [each for each in self.pod_events if each.name == pod]
        return list(dict.fromkeys(each.object["status"].get("phase") for each in events))

    async def until(self, pod: str, condition: Condition) -> None:
        """Wait until a pod meets the condition."""
        await self.wait_until(lambda ns: condition(ns.named(pod)))

    async def waiting(self, pod: str, *reasons: str) -> None:
        """Wait until the container waits for one of these reasons."""

        def waits(obj: Object) -> bool:
            containers = obj["status"].get("containerStatuses") or ()
            return any(c["state"].get("waiting", {}).get("reason") in reasons for c in containers)

        await self.until(pod, waits)

    async def replaced(self, pod: str) -> None:
        await self.wait_until(lambda _: pod_end.replacement(self.pod_events, pod))

    async def settled(self, job: str, pod: str) -> End:
        """Wait until the pod has ended and the Job has counted it, and is over or goes on."""

        def is_settled(_: ScenarioNamespace) -> bool:
            events, owner = self.pod_events, self.jobs[job]
            last = [each for each in events if each.name == pod][-1]
            if not pod_end.is_terminal(last.object) or not pod_end.is_counted(last):
                return False
            has_next = pod_end.replacement(events, pod) is not None
            return pod_end.is_over(owner) or (has_next and not pod_end.is_counting(owner))

        await self.wait_until(is_settled)
        return self.now(job, pod)

    def now(self, job: str, pod: str) -> End:
        """The state of the pod and the Job now."""
        return pod_end.observe(self.pod_events, self.jobs[job], pod)
