# SPDX-License-Identifier: Apache-2.0
"""What explain predicts happens: random clusters in virtual time.

Each Job is explained again and again. A prediction with a time names an act of a component:
a pod is created, deleted or freed, a Job fails or is removed. The next thing that happens to
the Job or to its pods must be this act at this time, unless something else happens to them
before. Then the prediction is withdrawn: a node failed or returned, a container ended.
"""

import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.base.rand import Rand
from refloat.client import errors, kinds
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.explain.codes import Code
from refloat.explain.explanation import Explanation, NextStep
from refloat.explain.gather import Explainer
from refloat.policy.job import job_conditions, pod_state
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.informer import Change
from refloat.sim.cluster import NAMESPACE, Cluster
from refloat.sim.run import Sim
from tests.virtual import virtual

ON = Gates({FAILURE_RECOVERY_POLICY: True})
SECONDS = 900
STEP_SECONDS = 7.0

# A component needs a moment for its act; times of the API have whole seconds, and a Job that
# waits for less than a second is woken after one.
EARLY_SECONDS, LATE_SECONDS = 1.0, 3.0

# The node controller notices a silent node after at most so many seconds.
UNNOTICED_SECONDS = 60.0

# The acts, by how the texts of next steps begin.
ACTS = {
    "creates the next pod": "pod created",
    "deletes the pod, unless": "pod deleted",
    "kills the containers": "pod ended",
    "marks the pod Failed": "pod forced",
    "fails the Job if": "job failed",
    "deletes the Job and its pods": "job deleted",
}


@dataclass
class Observed:
    """What happened to the Jobs and their pods, by the uid of the Job."""

    acts: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    pods: dict[tuple[str, str], str] = field(default_factory=dict)
    """The Job of each pod that exists, by the names of the pod and its node."""

    def add(self, uid: str, seconds: float, act: str) -> None:
        self.acts.setdefault(uid, []).append((seconds, act))

    nodes: list[float] = field(default_factory=list)
    """When a node failed or returned: recovery forces nothing while too many are lost."""

    def disturb(self, seconds: float, act: str, name: str) -> None:
        """Something from outside happens to a pod, or to the pods of a node."""
        if act.startswith("node "):
            self.nodes.append(seconds)
        for (pod, node), uid in self.pods.items():
            if name in (pod, node):
                self.add(uid, seconds, act)

    def count(self, uid: str) -> int:
        return len(self.acts.get(uid, ()))

    def after(self, uid: str, count: int) -> list[tuple[float, str]]:
        """What happened after the first so many acts."""
        return self.acts.get(uid, [])[count:]


@dataclass(frozen=True)
class Prediction:
    uid: str
    made: float
    seen: int
    """How many acts had happened by then."""
    at: float
    act: str
    explanation: Explanation

    def mistake(self, observed: Observed, end: float) -> str:
        """How what happened differs; empty if it does not, or if nobody can tell."""
        happened = observed.after(self.uid, self.seen)
        first = happened[0] if happened else (end, "the end of the test")
        if self.act == "pod forced" and any(
            self.made - UNNOTICED_SECONDS <= each <= first[0] for each in observed.nodes
        ):
            return ""
        if first[1] != self.act:
            # Something else came first, and the prediction is withdrawn.
            return "" if first[0] <= self.at + LATE_SECONDS else f"nothing, then {first}"
        if self.at - EARLY_SECONDS <= first[0] <= self.at + LATE_SECONDS:
            return ""
        return f"{first}"

    def is_checked(self, observed: Observed) -> bool:
        happened = observed.after(self.uid, self.seen)
        return bool(happened) and happened[0][1] == self.act


class Predictions:
    def __init__(self, sim: Sim, cluster: Cluster) -> None:
        self._sim = sim
        self._cluster = cluster
        self.observed = Observed()
        self.all: list[Prediction] = []
        self.codes: set[Code] = set()

    async def watch(self) -> None:
        await self._cluster.watch(kinds.PODS, self._pod)
        await self._cluster.watch(kinds.JOBS, self._job)

    def _pod(self, change: Change[Pod]) -> None:
        owner = change.current.metadata.controller
        if owner is None:
            return
        key = (change.current.metadata.name, change.current.spec.node_name)
        self.observed.pods[key] = owner.uid
        if change.new is None:
            del self.observed.pods[key]
        for act in _pod_acts(change.old, change.new):
            self.observed.add(owner.uid, self._cluster.seconds, act)

    def _job(self, change: Change[Job]) -> None:
        for act in _job_acts(change.old, change.new):
            self.observed.add(change.current.metadata.uid, self._cluster.seconds, act)

    async def explain_all(self) -> None:
        explainer = Explainer(self._cluster.client, self._sim.clock)
        async for job in explainer.jobs(NAMESPACE):
            try:
                explanation = await explainer.of_job(job)
            except errors.NotFound:
                continue
            self.codes.add(explanation.finding.code)
            for step in explanation.finding.next:
                self._note(job, explanation, step)

    def _note(self, job: Job, explanation: Explanation, step: NextStep) -> None:
        act = next((act for text, act in ACTS.items() if step.text.startswith(text)), None)
        if act is None or step.at is None or not step.component:
            return
        at = self._seconds(step.at)
        uid, seen = job.metadata.uid, self.observed.count(job.metadata.uid)
        if act == "pod ended" and self._has_silent_node(uid):
            return
        self.all.append(Prediction(uid, self._cluster.seconds, seen, at, act, explanation))

    def _has_silent_node(self, uid: str) -> bool:
        """Whether a node of the Job fails and the cluster does not know it yet."""
        nodes = {node for (_, node), job in self.observed.pods.items() if job == uid and node}
        return any(self._cluster.fleet.fault(node) is not None for node in nodes)

    def _seconds(self, at: datetime) -> float:
        return self._cluster.seconds + (at - self._sim.clock.now()).total_seconds()


def _pod_acts(old: Pod | None, new: Pod | None) -> list[str]:
    if new is None:
        return []
    acts = []
    if old is None:
        acts.append("pod created")
    if new.is_terminating and (old is None or not old.is_terminating):
        acts.append("pod deleted")
    if new.is_terminal and (old is None or not old.is_terminal):
        acts.append("pod forced" if zombie.is_forced(new) else "pod ended")
    if old is not None and pod_state.is_ready(new) != pod_state.is_ready(old):
        acts.append("pod readiness")
    return acts


def _job_acts(old: Job | None, new: Job | None) -> list[str]:
    if new is None:
        return ["job gone"]
    if new.metadata.deletion_timestamp and not (old and old.metadata.deletion_timestamp):
        return ["job deleted"]
    before = {each.type for each in (old.status.conditions or () if old else ())}
    added = {each.type for each in new.status.conditions or ()} - before
    if job_conditions.FAILURE_TARGET in added:
        return ["job failed"]
    return [f"job {each}" for each in sorted(added)]


# -- random Jobs and faults -------------------------------------------------------------


async def submit(cluster: Cluster, rand: Rand, name: str) -> None:
    script: list[Object] = [
        {"seconds": 1 + rand.below(40), "exitCode": rand.choice([0, 0, 1, 5, 42, 137])}
        for _ in range(1 + rand.below(5))
    ]
    spec: dict[str, Any] = {"backoffLimit": rand.choice([0, 2, 6])}
    if rand.below(2):
        spec["podFailurePolicy"] = _policy(rand)
    elif rand.below(2):
        spec["podReplacementPolicy"] = "Failed"
    if rand.below(3) == 0:
        spec["activeDeadlineSeconds"] = 30 + rand.below(200)
    if rand.below(3) == 0:
        spec["ttlSecondsAfterFinished"] = rand.below(120)
    if rand.below(3) == 0:
        forever: Object = {"seconds": None, "ignoreTerm": bool(rand.below(2))}
        script = [forever]
    annotations = {zombie.ANNOTATIONS[0]: "true"} if rand.below(2) else {}
    await cluster.submit(name, script={"main": script}, annotations=annotations, **spec)


def _policy(rand: Rand) -> Object:
    ignore = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [5]}}
    fail = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    lost = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    rules = [ignore, fail, lost]
    rand.shuffle(rules)
    return {"rules": rules}


async def disturb(cluster: Cluster, observed: Observed, rand: Rand) -> None:
    """A node fails or returns, or a user deletes a pod; mostly nothing."""
    chance = rand.below(40)
    fleet = cluster.fleet
    name = rand.choice(fleet.names())
    if chance < 2:
        observed.disturb(cluster.seconds, f"node {name}", name)
    if chance == 0 and fleet.fault(name) is None:
        fleet.fail(name, rand.choice(["crash", "freeze", "partition"]))
    elif chance == 1 and fleet.fault(name) is not None:
        fleet.heal(name)
    elif chance == 2:
        async for page in cluster.client.list(kinds.PODS, namespace=NAMESPACE):
            pods = [each for each in page.items if not each.is_terminal]
            if pods:
                pod = rand.choice(pods)
                observed.disturb(cluster.seconds, "user", pod.metadata.name)
                await cluster.client.delete(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)


async def publish(cluster: Cluster, sim: Sim) -> None:
    """The record that `refloat up` publishes."""
    controllers = (actors.FAILURE_RECOVERY, actors.FORCE_EVICTION, "job-controller")
    actor = Actor("refloat-up", "embedded", sim.clock.now(), controllers)
    document = actors.configuration({}, ON, timedelta(minutes=1))
    body: Object = {
        "metadata": {"name": actors.NAME},
        "data": {"refloat-up": actors.write(actor, document)},
    }
    try:
        await cluster.client.create(kinds.CONFIG_MAPS, body, namespace=actors.NAMESPACE)
    except errors.AlreadyExists:
        patch = {"data": body["data"]}
        await cluster.client.patch(
            kinds.CONFIG_MAPS, actors.NAME, patch, namespace=actors.NAMESPACE
        )


async def play(sim: Sim) -> Predictions:
    async with Cluster(sim, gates=ON, recovery=FailureRecoveryPolicy()) as cluster:
        predictions = Predictions(sim, cluster)
        await predictions.watch()
        rand, number = sim.rand, 0
        while cluster.seconds < SECONDS:
            if number < 12 and rand.below(4) == 0:
                number += 1
                await submit(cluster, rand, f"j{number}")
            await publish(cluster, sim)
            await disturb(cluster, predictions.observed, rand)
            await cluster.sleep(STEP_SECONDS + rand.random())
            await predictions.explain_all()
        return predictions


@virtual(seeds=4)
async def test_what_explain_predicts_happens(sim: Sim) -> None:
    predictions = await play(sim)
    observed = predictions.observed
    due = [each for each in predictions.all if each.at + LATE_SECONDS < SECONDS]
    mistakes = [
        f"at {each.made:.1f} {each.explanation.finding.code}: {each.act} at {each.at:.1f},"
        f" but {mistake}: {each.explanation.finding.verdict}"
        for each in due
        if (mistake := each.mistake(observed, SECONDS))
    ]
    checked = sum(each.is_checked(observed) for each in due)
    sys.stdout.write(
        f"\nchecked {checked} of {len(due)} predictions, {len(predictions.codes)} codes\n"
    )
    assert not mistakes, "\n".join(mistakes)
    assert checked >= 15
    assert len(predictions.codes) >= 6
