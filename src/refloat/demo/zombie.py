# SPDX-License-Identifier: Apache-2.0
"""The main demo: a node falls silent, its pod hangs, Refloat frees the pod (KEP-6757).

The Job is the example of the KEP, with an index for each pod, on nodes that run real
processes. All waits are shorter than in Kubernetes: the same would take seven minutes.
"""

from refloat.api import conditions, times
from refloat.api.meta import Object
from refloat.app import timings
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.demo import picture
from refloat.demo.demo_cluster import DemoCluster, DemoSettings
from refloat.demo.errors import DemoFailed
from refloat.demo.nodes import DemoNodeSettings
from refloat.demo.picture import PodState, PodTimeline
from refloat.policy.node import node_taints
from refloat.policy.recovery import zombie
from refloat.scenario.namespace import ScenarioNamespace

NAMES = ("n1", "n2", "n3")
SETTINGS = DemoSettings(
    "*",
    tuple(DemoNodeSettings(name) for name in NAMES),
    gates=Gates({FAILURE_RECOVERY_POLICY: True}),
)

SPACE = "demo"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
JOB = "train"

ANNOTATION = zombie.ANNOTATIONS[0]
INDEX = "batch.kubernetes.io/job-completion-index"

WORK_SECONDS = 10
TOLERATION_SECONDS = 2
GRACE_SECONDS = 2
SILENCE_SECONDS = timings.FAST.node_lifecycle.health.grace
PERIOD_SECONDS = timings.FAST.recovery_period.total_seconds()

# How long before the event the demo begins the next step.
READING_SECONDS = 1.5

# How often the live picture is drawn.
TICK_SECONDS = 0.25


async def submit(ns: ScenarioNamespace) -> None:
    """The example of the KEP, with an index for each pod and short waits."""
    toleration = {"operator": "Exists", "effect": "NoExecute"}
    keys = (node_taints.UNREACHABLE, node_taints.NOT_READY)
    container = {
        "name": "dummy-job",
        "image": "registry.k8s.io/e2e-test-images/agnhost:2.53",
        "command": ["/bin/sh"],
        "args": ["-c", f"sleep {WORK_SECONDS}"],
    }
    pod = {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "tolerations": [
            {"key": key, "tolerationSeconds": TOLERATION_SECONDS, **toleration} for key in keys
        ],
        "containers": [container],
    }
    await ns.submit(
        JOB,
        template=pod,
        annotations={ANNOTATION: "true"},
        parallelism=3,
        completions=3,
        completionMode="Indexed",
        podReplacementPolicy="Failed",
    )


class JobProgress:
    """The nodes, the Job and its pods, as the watches show them."""

    def __init__(self, cluster: DemoCluster, ns: ScenarioNamespace) -> None:
        self.cluster = cluster
        self.ns = ns
        self._timelines: dict[str, PodTimeline] = {}  # by the name of the pod
        self._lost: dict[str, None] = {}
        self._next = ""
        self._is_ended = False
        for namespace in (SPACE, ""):
            cluster.scenario.listen(namespace, self._update)
        cluster.spawn(self._tick(), "the time")

    # -- what the watches show

    def _update(self, *_: object) -> None:
        for name in NAMES:
            if name not in self._lost and self.is_lost(name):
                self._lost[name] = None
                self.cluster.event(f"{name} is unreachable: silent for {SILENCE_SECONDS:g} s")
        for pod in self.ns.pods.values():
            index = pod["metadata"]["labels"][INDEX]
            timeline = self._timelines.setdefault(pod["metadata"]["name"], PodTimeline(index))
            self._note(timeline, pod)

    def _note(self, timeline: PodTimeline, pod: Object) -> None:
        timeline.node = pod["spec"].get("nodeName", "")
        if not timeline.note(self.cluster.seconds, self._state(pod)):
            return
        if timeline.state == PodState.RUNNING:
            self.cluster.event(f"index {timeline.index} runs on {timeline.node}")
        elif timeline.state == PodState.TERMINATING:
            self.cluster.event(
                f"index {timeline.index} is evicted from {timeline.node}: its pod is being deleted"
            )
        elif timeline.state == PodState.FAILED:
            self.cluster.event(_reason(pod))
        elif timeline.state == PodState.SUCCEEDED:
            self.cluster.event(f"index {timeline.index} is done")

    def _state(self, pod: Object) -> PodState:
        phase = pod["status"].get("phase")
        if phase in ("Failed", "Succeeded"):
            return PodState[phase.upper()]
        if "deletionTimestamp" in pod["metadata"]:
            return PodState.TERMINATING
        if phase != "Running":
            return PodState.PENDING
        return (
            PodState.UNREACHABLE if pod["spec"].get("nodeName") in self._lost else PodState.RUNNING
        )

    def is_lost(self, node: str) -> bool:
        return node_taints.UNREACHABLE in self.cluster.nodes.watched.taints(node)

    def pods(self, *states: PodState) -> list[str]:
        """The names of the pods in one of these states."""
        return [name for name, timeline in self._timelines.items() if timeline.state in states]

    def timeline(self, pod: str) -> PodTimeline:
        return self._timelines[pod]

    # -- waiting

    def expect(self, text: str, seconds: float | None = None) -> None:
        """Show the next event to expect, and its second."""
        when = "" if seconds is None else f"{self.cluster.seconds + seconds:.0f} s: "
        self._next = f"{when}{text}"

    # -- the picture

    async def _tick(self) -> None:
        while not self._is_ended:
            self.cluster.board(["", *self.picture(), f"{'next':<{picture.INDENT}}{self._next}"])
            await self.cluster.clock.sleep(TICK_SECONDS)

    def end(self) -> None:
        """Draw the last picture."""
        self._is_ended = True
        self.cluster.board([])
        for line in self.picture():
            self.cluster.line(line)
        self.cluster.line("")

    def picture(self) -> list[str]:
        now = self.cluster.seconds
        states = ("unreachable" if name in self._lost else "ready" for name in NAMES)
        line = "   ".join(f"{name} {state}" for name, state in zip(NAMES, states, strict=True))
        nodes = f"{'nodes':<{picture.INDENT}}{line}"
        return [nodes, *picture.draw(list(self._timelines.values()), now)]


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    cluster.begin()
    progress = JobProgress(cluster, await cluster.namespace(SPACE))
    pod = await _start(progress)
    await _lose(progress, pod)
    replacement = await _free(progress, pod)
    await _complete(progress, pod, replacement)


async def _start(progress: JobProgress) -> str:
    """Create the Job; the name of the pod that will hang, once a pod runs on each node."""
    cluster = progress.cluster
    await cluster.step("Three nodes of real processes, and a Job with three indexes")
    cluster.note("podReplacementPolicy: Failed forbids two running pods of one index. The user")
    cluster.note(f'opted in: {ANNOTATION}: "true"')
    progress.expect("three pods run")
    await submit(progress.ns)
    await progress.ns.wait_until(
        lambda _: len(progress.pods(*PodState)) == 3 and not progress.pods(PodState.PENDING)
    )
    running = sorted(progress.pods(PodState.RUNNING), key=lambda name: progress.timeline(name).node)
    if not running:
        raise DemoFailed(
            f"all pods ended early: the start took {cluster.seconds:.0f} s on this machine"
        )
    return running[0]


async def _lose(progress: JobProgress, pod: str) -> None:
    """The node of the pod falls silent, and the pod hangs."""
    cluster, timeline = progress.cluster, progress.timeline(pod)
    node = timeline.node
    await cluster.step(f"Node {node} falls silent. Its processes still run, out of reach")
    cluster.note(f"$ refloat node freeze {node}")
    cluster.nodes.fail(node, "freeze")
    progress.expect(f"the node controller calls {node} unreachable", SILENCE_SECONDS)
    await cluster.nodes.watched.wait_until(lambda _: progress.is_lost(node))
    progress.expect(f"index {timeline.index} is evicted from {node}", TOLERATION_SECONDS)
    await progress.ns.wait_until(lambda _: timeline.state == PodState.TERMINATING)
    progress.expect("the grace period of the pod ends", _rest_of_grace(progress, pod))
    await cluster.clock.sleep(max(0.0, _rest_of_grace(progress, pod)))
    await cluster.step("The pod hangs in Terminating, and the Job waits")
    if timeline.state != PodState.TERMINATING or progress.ns.status(JOB).get("failed"):
        raise DemoFailed(
            f"pod {pod} is {timeline.state.name if timeline.state else 'unknown'} too early"
        )
    cluster.note(f"Only {node} could report its end. Kubernetes waits for ever. Refloat waits")
    cluster.note(f"{PERIOD_SECONDS:g} s more (60 s by default; the demo has short waits).")
    seconds = PERIOD_SECONDS + _rest_of_grace(progress, pod)
    progress.expect("Refloat marks the pod Failed", seconds)
    await cluster.clock.sleep(max(0.0, seconds - READING_SECONDS))


async def _free(progress: JobProgress, pod: str) -> str:
    """Wait for the replacement; its name."""
    cluster, timeline = progress.cluster, progress.timeline(pod)
    await cluster.step(
        f"Refloat marks the pod Failed, and index {timeline.index} starts on another node"
    )
    await progress.ns.wait_until(lambda _: timeline.state in picture.OVER)
    if timeline.state != PodState.FAILED or not _reason(progress.ns.named(pod)).startswith(
        zombie.REASON
    ):
        raise DemoFailed(f"pod {pod} was not freed: {progress.ns.named(pod)['status']}")
    progress.expect(f"index {timeline.index} starts on another node")

    def others() -> list[str]:
        timelines = {name: progress.timeline(name) for name in progress.pods(*PodState)}
        return [
            name
            for name, other in timelines.items()
            if name != pod and other.index == timeline.index and other.state != PodState.PENDING
        ]

    await progress.ns.wait_until(lambda _: others())
    progress.expect(f"index {timeline.index} is done, and with it the Job", WORK_SECONDS)
    return others()[0]


async def _complete(progress: JobProgress, pod: str, replacement: str) -> None:
    cluster = progress.cluster
    status = await progress.ns.finished(JOB)
    await cluster.step("The Job is complete")
    progress.end()
    await cluster.table(JOBS, headline=f"$ kubectl -n {SPACE} get jobs")
    await cluster.table(PODS, headline=f"$ kubectl -n {SPACE} get pods")
    _check(status, progress.timeline(pod), progress.timeline(replacement))


def _check(status: Object, first: PodTimeline, second: PodTimeline) -> None:
    """Check that the cluster did what the demo claims."""
    if not conditions.is_true(status.get("conditions") or [], "Complete"):
        raise DemoFailed(f"the Job is not complete: {status}")
    if (status.get("succeeded"), status.get("failed")) != (3, 1):
        raise DemoFailed(f"not three pods succeeded and one failed: {status}")
    if first.node == second.node:
        raise DemoFailed(f"index {first.index} started on {first.node} again")
    if second.states[0][0] < first.states[-1][0]:
        raise DemoFailed(f"index {first.index} started again before its pod had failed")


def _reason(pod: Object) -> str:
    """The reason of a failed pod: the condition of zombie recovery, if there is one."""
    condition = conditions.find(conditions.of(pod), zombie.CONDITION)
    if condition is None:
        return f"pod {pod['metadata']['name']} failed: {pod['status']}"
    return f"{condition['reason']}: {condition['message']}"


def _rest_of_grace(progress: JobProgress, pod: str) -> float:
    """Seconds until the end of the pod's grace period."""
    until = times.parse(progress.ns.named(pod)["metadata"]["deletionTimestamp"])
    return (until - progress.cluster.clock.now()).total_seconds()
