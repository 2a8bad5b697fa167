# SPDX-License-Identifier: Apache-2.0
"""The story of a node that falls silent, and of the pod that hangs on it (KEP-6757).

The Job is the KEP's, by index, on real nodes that run real processes. Its
waits are shorter than Kubernetes', and so are those of the cluster, else the
story would take seven minutes.
"""

from collections.abc import Callable

from refloat.api import conditions, times
from refloat.app import timings
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.demo import objects, picture
from refloat.demo.errors import StoryFailed
from refloat.demo.nodes import NODES, NodeSetting
from refloat.demo.objects import Object
from refloat.demo.picture import Lane, State
from refloat.demo.stage import Setting, Stage
from refloat.demo.view import View
from refloat.policy import node_taints, zombie

NAMES = ("n1", "n2", "n3")
SETTING = Setting(
    "*", tuple(NodeSetting(name) for name in NAMES), gates=Gates({FAILURE_RECOVERY_POLICY: True})
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

# So long before it the reader is told what to look for.
READING_SECONDS = 1.5

# How often those who watch live see the time go on.
TICK_SECONDS = 0.25


def job() -> Object:
    """The KEP's Job, with an index for each pod and with little patience."""
    tolerated = {"operator": "Exists", "effect": "NoExecute"}
    keys = (node_taints.UNREACHABLE, node_taints.NOT_READY)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": JOB},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "completionMode": "Indexed",
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {"annotations": {ANNOTATION: "true"}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "tolerations": [
                        {"key": key, "tolerationSeconds": TOLERATION_SECONDS, **tolerated}
                        for key in keys
                    ],
                    "containers": [
                        {
                            "name": "dummy-job",
                            "image": "registry.k8s.io/e2e-test-images/agnhost:2.53",
                            "command": ["/bin/sh"],
                            "args": ["-c", f"sleep {WORK_SECONDS}"],
                        }
                    ],
                },
            },
        },
    }


class Cast:
    """The nodes, the Job and its pods, as the watches show them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._views: dict[str, View] = {}
        self._lanes: dict[str, Lane] = {}  # by the name of the pod
        self._lost: dict[str, None] = {}
        self._next = ""
        self._ended = False

    async def begin(self) -> None:
        for path in (NODES, PODS, JOBS):
            self._views[path] = await self.stage.view(path, self._look)
        self.stage.meanwhile(self._tick(), "the time")

    # -- what is seen

    def _look(self, _: str = "") -> None:
        for name in NAMES:
            if name not in self._lost and self.is_lost(name):
                self._lost[name] = None
                self.stage.event(f"{name} is unreachable: silent for {SILENCE_SECONDS:g} s")
        for seen in self._views[PODS].seen:
            if seen.name not in self._lanes:
                index = seen.object["metadata"]["labels"][INDEX]
                self._lanes[seen.name] = Lane(index)
            self._note(self._lanes[seen.name], self.pod(seen.name))

    def _note(self, lane: Lane, pod: Object) -> None:
        lane.node = pod["spec"].get("nodeName", "")
        if not lane.note(self.stage.seconds, self._state(pod)):
            return
        if lane.state == State.RUNNING:
            self.stage.event(f"index {lane.index} runs on {lane.node}")
        elif lane.state == State.TERMINATING:
            self.stage.event(
                f"index {lane.index} is evicted from {lane.node}: its pod is being deleted"
            )
        elif lane.state == State.FAILED:
            self.stage.event(_reason(pod))
        elif lane.state == State.SUCCEEDED:
            self.stage.event(f"index {lane.index} is done")

    def _state(self, pod: Object) -> State:
        phase = pod["status"].get("phase")
        if phase in ("Failed", "Succeeded"):
            return State[phase.upper()]
        if "deletionTimestamp" in pod["metadata"]:
            return State.TERMINATING
        if phase != "Running":
            return State.PENDING
        return State.UNREACHABLE if pod["spec"].get("nodeName") in self._lost else State.RUNNING

    def is_lost(self, node: str) -> bool:
        seen = self._views[NODES].last(node)
        taints = seen.object["spec"].get("taints") or () if seen is not None else ()
        return any(each["key"] == node_taints.UNREACHABLE for each in taints)

    def pod(self, name: str) -> Object:
        seen = self._views[PODS].last(name)
        assert seen is not None
        return seen.object

    def job(self) -> Object:
        seen = self._views[JOBS].last(JOB)
        return {} if seen is None else seen.object

    def pods(self, *states: State) -> list[str]:
        """The names of the pods that are one of these."""
        return [name for name, lane in self._lanes.items() if lane.state in states]

    def lane(self, pod: str) -> Lane:
        return self._lanes[pod]

    # -- what is waited for

    def expect(self, text: str, seconds: float | None = None) -> None:
        """Say what comes next, and in how many seconds."""
        when = "" if seconds is None else f"{self.stage.seconds + seconds:.0f} s: "
        self._next = f"{when}{text}"

    async def until(self, holds: Callable[[], object]) -> None:
        await self.stage.until(holds)

    # -- the picture

    async def _tick(self) -> None:
        while not self._ended:
            self.stage.board(["", *self.drawn(), f"{'next':<{picture.INDENT}}{self._next}"])
            await self.stage.clock.sleep(TICK_SECONDS)

    def end(self) -> None:
        """Draw it a last time, to be kept."""
        self._ended = True
        self.stage.board([])
        for line in self.drawn():
            self.stage.line(line)
        self.stage.line("")

    def drawn(self) -> list[str]:
        now = self.stage.seconds
        known = ("unreachable" if name in self._lost else "ready" for name in NAMES)
        told = "   ".join(f"{name} {state}" for name, state in zip(NAMES, known, strict=True))
        nodes = f"{'nodes':<{picture.INDENT}}{told}"
        return [nodes, *picture.draw(list(self._lanes.values()), now)]


async def act(stage: Stage) -> None:
    """Play it."""
    stage.begin()
    cast = Cast(stage)
    await stage.client.create("/api/v1/namespaces", objects.namespace(SPACE))
    await cast.begin()
    stuck = await _start(cast)
    await _lose(cast, stuck)
    await _hang(cast, stuck)
    again = await _free(cast, stuck)
    await _complete(cast, stuck, again)


async def _start(cast: Cast) -> str:
    """A Job of which a pod runs on each node; the name of the pod that will hang."""
    stage = cast.stage
    await stage.step("Three nodes of real processes, and a Job with three indexes")
    stage.note("Of no index may two pods run at once (podReplacementPolicy: Failed). Its user")
    stage.note(f'allows what comes: {ANNOTATION}: "true"')
    cast.expect("three pods run")
    await stage.client.create(JOBS, job())
    await cast.until(lambda: len(cast.pods(*State)) == 3 and not cast.pods(State.PENDING))
    running = sorted(cast.pods(State.RUNNING), key=lambda name: cast.lane(name).node)
    if not running:
        raise StoryFailed(f"no pod runs any more: this machine took {stage.seconds:.0f} s")
    return running[0]


async def _lose(cast: Cast, pod: str) -> None:
    stage, node, index = cast.stage, cast.lane(pod).node, cast.lane(pod).index
    await stage.step(f"Node {node} falls silent; its processes run on, out of reach")
    stage.note(f"$ refloat node freeze {node}")
    stage.nodes.fail(node, "freeze")
    cast.expect(f"the cluster misses {node}", SILENCE_SECONDS)
    await cast.until(lambda: cast.is_lost(node))
    cast.expect(f"index {index} is evicted from {node}", TOLERATION_SECONDS)
    await cast.until(lambda: cast.lane(pod).state == State.TERMINATING)
    cast.expect("its pod should be gone, had anybody heard", _left(cast, pod))
    await stage.clock.sleep(max(0.0, _left(cast, pod)))


async def _hang(cast: Cast, pod: str) -> None:
    stage, lane = cast.stage, cast.lane(pod)
    await stage.step("Its pod hangs in Terminating, and the Job waits")
    if lane.state != State.TERMINATING or cast.job()["status"].get("failed"):
        raise StoryFailed(f"pod {pod} is {lane.state.name if lane.state else 'unknown'} too early")
    stage.note(f"Only {lane.node} could say that it ended. Kubernetes waits for ever; Refloat for")
    stage.note(f"{PERIOD_SECONDS:g} s more (a minute, where waits are not as short as here).")
    left = PERIOD_SECONDS + _left(cast, pod)
    cast.expect("Refloat makes the pod Failed", left)
    await stage.clock.sleep(max(0.0, left - READING_SECONDS))


async def _free(cast: Cast, pod: str) -> str:
    """The name of the pod in its place."""
    stage, lane = cast.stage, cast.lane(pod)
    await stage.step("Refloat makes it Failed, and its index starts on another node")
    await cast.until(lambda: lane.state in picture.OVER)
    if lane.state != State.FAILED or not _reason(cast.pod(pod)).startswith(zombie.REASON):
        raise StoryFailed(f"pod {pod} was not freed: {cast.pod(pod)['status']}")
    cast.expect(f"index {lane.index} starts on another node")

    def others() -> list[str]:
        alike = [name for name in cast.pods(*State) if cast.lane(name).index == lane.index]
        return [name for name in alike if name != pod and cast.lane(name).state != State.PENDING]

    await cast.until(others)
    cast.expect(f"index {lane.index} is done, and with it the Job", WORK_SECONDS)
    return others()[0]


async def _complete(cast: Cast, pod: str, again: str) -> None:
    stage = cast.stage
    await cast.until(lambda: _is_over(cast.job()))
    status = cast.job()["status"]
    await stage.step("The Job is complete")
    cast.end()
    await stage.table(JOBS, headline=f"$ kubectl -n {SPACE} get jobs")
    await stage.table(PODS, headline=f"$ kubectl -n {SPACE} get pods")
    _check(status, cast.lane(pod), cast.lane(again))


def _check(status: Object, stuck: Lane, again: Lane) -> None:
    """The story ended as it was told."""
    if not conditions.is_true(status.get("conditions") or [], "Complete"):
        raise StoryFailed(f"the Job is not complete: {status}")
    if (status.get("succeeded"), status.get("failed")) != (3, 1):
        raise StoryFailed(f"not three pods succeeded and one failed: {status}")
    if stuck.node == again.node:
        raise StoryFailed(f"index {stuck.index} was started on {stuck.node} again")
    if again.states[0][0] < stuck.states[-1][0]:
        raise StoryFailed(f"index {stuck.index} was started again before its pod had failed")


def _is_over(found: Object) -> bool:
    return any(conditions.is_true(conditions.of(found), each) for each in ("Complete", "Failed"))


def _reason(pod: Object) -> str:
    """Why it failed, if it was freed."""
    held = conditions.find(conditions.of(pod), zombie.CONDITION)
    if held is None:
        return f"pod {pod['metadata']['name']} failed: {pod['status']}"
    return f"{held['reason']}: {held['message']}"


def _left(cast: Cast, pod: str) -> float:
    """Seconds until the grace period of a pod is over."""
    until = times.parse(cast.pod(pod)["metadata"]["deletionTimestamp"])
    return (until - cast.stage.clock.now()).total_seconds()
