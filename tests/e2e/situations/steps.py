# SPDX-License-Identifier: Apache-2.0
"""What the table of situations is made of: conditions, acts and manifests.

A condition reads one `View` of the cluster; an act changes the cluster.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refloat.api import times
from refloat.explain.codes import Code
from tests.e2e import cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Object

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PATHS = {
    "Job": JOBS,
    "CronJob": "/apis/batch/v1/namespaces/default/cronjobs",
    "Pod": PODS,
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": f"{CORE}/persistentvolumeclaims",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}

# Explain waits 15 s for a scheduler, and 10 s beyond the grace period for a kubelet.
SCHEDULER_SECONDS, KUBELET_SECONDS = 16, 11

SAFE = {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}
HOLD = "example.com/hold"

# -- the cluster at one time ----------------------------------------------------------


@dataclass(frozen=True)
class View:
    """What the API shows, and what was explained already."""

    api: Api
    jobs: Mapping[str, Object]
    pods: Mapping[str, Object]
    nodes: Mapping[str, Object]
    events: Sequence[Object]
    explained: frozenset[str]

    @classmethod
    def read(cls, api: Api, explained: Sequence[str]) -> "View":
        def items(path: str) -> dict[str, Object]:
            return {each["metadata"]["name"]: each for each in api.get(path)["items"]}

        events = api.get(f"{CORE}/events")["items"]
        jobs, pods, nodes = items(JOBS), items(PODS), items("/api/v1/nodes")
        return cls(api, jobs, pods, nodes, events, frozenset(explained))

    def of(self, job: str) -> list[Object]:
        """The pods of a Job, the oldest first; or the one pod with the name."""
        if job in self.pods:
            return [self.pods[job]]
        pods = [
            each
            for each in self.pods.values()
            if (each["metadata"].get("labels") or {}).get("job-name") == job
        ]
        return sorted(pods, key=lambda each: each["metadata"]["creationTimestamp"])


def _elapsed(text: str) -> float:
    return time.time() - times.parse(text).timestamp()


Condition = Callable[[View], Any]


def age(job: str, seconds: float) -> Condition:
    """The Job has a pod that is so old."""
    return lambda view: any(
        _elapsed(each["metadata"]["creationTimestamp"]) > seconds for each in view.of(job)
    )


def every(*conditions: Condition) -> Condition:
    return lambda view: all(each(view) for each in conditions)


def created(job: str) -> Condition:
    return lambda view: job in view.jobs


def job_is(job: str, condition: str) -> Condition:
    return lambda view: _true(view.jobs[job], condition)


def _true(obj: Object, condition: str) -> bool:
    conditions = obj["status"].get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def status(job: str, **want: Any) -> Condition:
    def holds(view: View) -> bool:
        shown = view.jobs[job]["status"]
        return all(shown.get(key) == value for key, value in want.items())

    return holds


def failures(job: str, least: int) -> Condition:
    return lambda view: view.jobs[job]["status"].get("failed", 0) >= least


def phase(job: str, name: str, number: int = 1) -> Condition:
    """So many pods have the phase and are not being deleted."""
    return lambda view: (
        number
        <= sum(
            each["status"].get("phase") == name and "deletionTimestamp" not in each["metadata"]
            for each in view.of(job)
        )
    )


def deleted(job: str) -> Condition:
    return lambda view: any("deletionTimestamp" in each["metadata"] for each in view.of(job))


def deleted_for(job: str, seconds: float) -> Condition:
    """The grace period of a deleted pod ended so long ago."""

    def holds(view: View) -> bool:
        times_ = [each["metadata"].get("deletionTimestamp") for each in view.of(job)]
        return any(each and _elapsed(each) > seconds for each in times_)

    return holds


def gone(job: str) -> Condition:
    return lambda view: not view.of(job)


def pod_failed(name: str) -> Condition:
    return lambda view: view.pods[name]["status"].get("phase") in ("Failed", "Succeeded")


def nominated(job: str) -> Condition:
    return lambda view: any(each["status"].get("nominatedNodeName") for each in view.of(job))


def waiting(job: str, *reasons: str) -> Condition:
    """A container waits for one of these reasons."""

    def holds(view: View) -> bool:
        return any(
            (state["state"].get("waiting") or {}).get("reason") in reasons
            for pod in view.of(job)
            for group in ("initContainerStatuses", "containerStatuses")
            for state in pod["status"].get(group) or ()
        )

    return holds


def unscheduled(job: str) -> Condition:
    def holds(view: View) -> bool:
        return any(
            each.get("reason") == "Unschedulable"
            for pod in view.of(job)
            for each in pod["status"].get("conditions") or ()
        )

    return holds


def event(job: str, reason: str) -> Condition:
    """An event of the Job or of one of its pods."""

    def holds(view: View) -> bool:
        names = {job, *(each["metadata"]["name"] for each in view.of(job))}
        return any(
            each["reason"] == reason and each["involvedObject"]["name"] in names
            for each in view.events
        )

    return holds


def logged(job: str) -> Condition:
    """A pod has printed its first line: the traps of the script are set."""

    def holds(view: View) -> bool:
        running = [each for each in view.of(job) if each["status"].get("phase") == "Running"]
        return any(
            view.api.ask("GET", f"{PODS}/{each['metadata']['name']}/log").text for each in running
        )

    return holds


def lost(node: str) -> Condition:
    def holds(view: View) -> bool:
        taints = view.nodes[node]["spec"].get("taints") or ()
        return any(
            (each["key"], each["effect"]) == ("node.kubernetes.io/unreachable", "NoExecute")
            for each in taints
        )

    return holds


def explained(*names: str) -> Condition:
    return lambda view: view.explained.issuperset(names)


# -- what is done to the cluster ------------------------------------------------------


def _no_failures(verb: str, node: str) -> None:
    raise AssertionError(f"no node of this cluster can {verb}")


@dataclass
class Playground:
    """A cluster with the nodes that situations change."""

    kubeconfig: Path
    api: Api
    agents: dict[str, AgentProcess] = field(default_factory=dict)
    fail: Callable[[str, str], object] = _no_failures
    """Makes a node fail, in the words of `refloat node`: `freeze` and `node-0`."""

    def explain(self, *subjects: str) -> str:
        done = cluster.run("explain", "--kubeconfig", self.kubeconfig, *subjects)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


Act = Callable[[Playground, View], object]
Step = tuple[Condition, Act]


def create(*objects: Object) -> Act:
    def act(ground: Playground, view: View) -> None:
        for each in objects:
            ground.api.create(PATHS[each["kind"]], each)

    return act


def delete_pods(job: str) -> Act:
    def act(ground: Playground, view: View) -> None:
        for each in view.of(job):
            ground.api.done("DELETE", f"{PODS}/{each['metadata']['name']}")

    return act


def delete_job(job: str) -> Act:
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    return lambda ground, view: ground.api.done("DELETE", f"{JOBS}/{job}", body)


def evict(job: str) -> Act:
    def act(ground: Playground, view: View) -> None:
        (pod,) = view.of(job)
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        ground.api.create(f"{PODS}/{name}/eviction", body)

    return act


def kill(job: str) -> Act:
    """SIGKILL for the process whose id the container printed."""

    def act(ground: Playground, view: View) -> None:
        (pod,) = view.of(job)
        log = ground.api.ask("GET", f"{PODS}/{pod['metadata']['name']}/log").text
        os.kill(int(log), signal.SIGKILL)

    return act


def taint(node: str, effect: str) -> Act:
    taints = [{"key": "example.com/maintenance", "effect": effect}]
    path = f"/api/v1/nodes/{node}"
    return lambda ground, view: ground.api.patch(path, {"spec": {"taints": taints}})


def node_command(verb: str, name: str) -> Act:
    """As `refloat node shutdown n1`."""
    return lambda ground, view: ground.fail(verb, name)


def run_low(node: str) -> Act:
    """Raise the eviction threshold above the free amount."""

    def act(ground: Playground, view: View) -> None:
        agent = ground.agents[node]
        agent.kill()
        agent.command += ["--eviction-hard", "memory.available<100.0%"]
        agent.start()

    return act


# -- manifests ------------------------------------------------------------------------

# The process id is the first line; `$$$$` is `$$` for the shell.
STUBBORN = "trap '' TERM; echo $$$$; while true; do sleep 0.2; done"
FOREVER = "echo $$$$; exec sleep 1000"
GREEDY = "{ head -c 100000000 /dev/zero; sleep 1000; } | tail"
WRITING = f"head -c 3000000 /dev/zero > ${{REFLOAT_VOLUME_WORK:-/work}}/big; {FOREVER}"
# The pods with an even completion index fail.
EVEN_FAILS = "exit $(( JOB_COMPLETION_INDEX % 2 == 0 ))"

# Longer than any test.
LONG_GRACE = {"terminationGracePeriodSeconds": 3600}


def container(script: str = FOREVER, **fields: Any) -> Object:
    return {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **fields}


def job(
    name: str,
    script: str = FOREVER,
    *,
    main: Object | None = None,
    pod: Object | None = None,
    metadata: Object | None = None,
    template: Object | None = None,
    node: str = "",
    **spec: Any,
) -> Object:
    pod_spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container(script, **(main or {}))],
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        **(pod or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"template": {"metadata": template or {}, "spec": pod_spec}, **spec},
    }


def claiming(claim: str) -> Object:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def exit_rule(action: str, code: int) -> Object:
    on = {"operator": "In", "values": [code]}
    return {"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": on}]}}


@dataclass(frozen=True)
class Situation:
    """One object to explain: how it comes to be, and what explain says."""

    name: str
    """The object to explain has this name."""
    title: str
    code: Code
    words: tuple[str, ...]
    manifests: tuple[Object, ...]
    ready: Condition
    """The API shows that the situation is there."""
    steps: tuple[Step, ...] = ()
    """What is done after the manifests, each when its condition holds."""
    kind: str = "job"

    @property
    def subject(self) -> str:
        return f"{self.kind}/{self.name}"
