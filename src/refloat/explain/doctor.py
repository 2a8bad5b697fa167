# SPDX-License-Identifier: Apache-2.0
"""The health of a whole cluster: stuck Jobs and pods, lost nodes, Jobs at risk, Refloat itself.

Each verdict is the one that `explain` gives for the single object. `survey` reads the cluster.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from refloat.api.batch import Job
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.explain import job as jobs_of
from refloat.explain import job_attempts, node_state, pod_terminating
from refloat.explain.codes import Code, Severity, severity
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import API_VERSION, Finding
from refloat.explain.job_view import JobView
from refloat.policy.job import job_conditions, job_spec
from refloat.policy.recovery import zombie

# A Job that is younger has not had its chance yet.
YOUNG_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Trouble:
    """An object that does not go on."""

    subject: str
    finding: Finding
    seconds: float
    """Its age."""

    @property
    def severity(self) -> Severity:
        return severity(self.finding.code)

    def as_object(self) -> Object:
        return {
            "object": self.subject,
            "code": str(self.finding.code),
            "severity": str(self.severity),
            "verdict": self.finding.verdict,
            "ageSeconds": round(self.seconds),
            "commands": [each.as_object() for each in self.finding.commands],
        }


@dataclass(frozen=True, slots=True)
class LostNode:
    name: str
    health: str
    pods: int
    """Pods that may still run there."""
    stuck: int
    """Deleted pods that hang there."""

    def as_object(self) -> Object:
        return {"name": self.name, "health": self.health, "pods": self.pods, "stuck": self.stuck}


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What was read of a cluster."""

    jobs: Sequence[Job]
    pods: Sequence[Pod]
    nodes: Sequence[Node] | None
    """None if they may not be read."""
    context: ExplainContext
    limits: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    jobs: tuple[Trouble, ...]
    pods: tuple[Trouble, ...]
    """Deleted pods that hang and belong to no Job of `jobs`."""
    nodes: tuple[LostNode, ...]
    at_risk: tuple[str, ...]
    """Jobs that would wait for ever if a node of theirs died now."""
    refloat: tuple[str, ...]
    """What Refloat does in this cluster, and which process."""
    counts: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[str, ...] = ()

    @property
    def needs_person(self) -> bool:
        stuck = any(each.severity == Severity.ACT for each in (*self.jobs, *self.pods))
        return stuck or any(each.stuck for each in self.nodes)

    def as_object(self) -> Object:
        return {
            "apiVersion": API_VERSION,
            "kind": "Report",
            "needsPerson": self.needs_person,
            "counts": dict(self.counts),
            "jobs": [each.as_object() for each in self.jobs],
            "pods": [each.as_object() for each in self.pods],
            "nodes": [each.as_object() for each in self.nodes],
            "atRisk": list(self.at_risk),
            "refloat": list(self.refloat),
            "limits": list(self.limits),
        }


def examine(cluster: ClusterObjects) -> Report:
    context = cluster.context
    pods_of: dict[str, list[Pod]] = defaultdict(list)
    for pod in cluster.pods:
        if (owner := pod.metadata.controller) is not None:
            pods_of[owner.uid].append(pod)
    active = [
        each for each in cluster.jobs if not job_conditions.is_finished(each.status.conditions)
    ]
    stuck = []
    for job in active:
        view = JobView.of(job, pods_of.get(job.metadata.uid, ()), context)
        finding = jobs_of.state(view, job_attempts.rows(job, view.pods, view.observed, context))
        if severity(finding.code) != Severity.FINE and view.age_seconds >= YOUNG_SECONDS:
            stuck.append(Trouble(f"job {view.namespace}/{view.name}", finding, view.age_seconds))
    outlooks = {
        "zombie recovery": context.recovery,
        "force eviction": context.force_eviction,
        "Jobs of Refloat": context.job_control,
    }
    refloat = []
    for name, outlook in outlooks.items():
        if outlook.configuration is None:
            refloat.append(f"{name}: {outlook.text}")
        refloat += [f"{name}: {each.text}" for each in outlook.points]
    return Report(
        jobs=tuple(sorted(stuck, key=_worst_first)),
        pods=tuple(_hanging_pods(cluster, {each.metadata.uid for each in active})),
        nodes=tuple(_lost_nodes(cluster)),
        at_risk=tuple(_at_risk(active, pods_of, context)),
        refloat=tuple(refloat),
        counts=_counts(cluster, len(active)),
        limits=tuple(cluster.limits),
    )


def _worst_first(trouble: Trouble) -> tuple[bool, float, str]:
    return trouble.severity != Severity.ACT, -trouble.seconds, trouble.subject


def _hanging_pods(cluster: ClusterObjects, jobs: set[str]) -> list[Trouble]:
    """Deleted pods whose grace period is over; those of active Jobs stand with their Job."""
    troubles = []
    for pod in cluster.pods:
        owner = pod.metadata.controller
        if not pod.is_terminating or (owner is not None and owner.uid in jobs):
            continue
        finding = pod_terminating.explain(pod, cluster.context)
        if finding.code in (Code.TERMINATING, Code.UNCOUNTED):
            continue
        seconds = (cluster.context.now - zombie.deleted_at(pod)).total_seconds()
        subject = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
        troubles.append(Trouble(subject, finding, seconds))
    return sorted(troubles, key=_worst_first)


def _lost_nodes(cluster: ClusterObjects) -> list[LostNode]:
    lost = {each.metadata.name: each for each in cluster.nodes or () if node_state.is_lost(each)}
    running, stuck = Counter[str](), Counter[str]()
    for pod in cluster.pods:
        if pod.spec.node_name in lost and not pod.is_terminal:
            (stuck if pod.is_terminating else running)[pod.spec.node_name] += 1
    return [
        LostNode(name, node_state.health(node, cluster.context.now), running[name], stuck[name])
        for name, node in sorted(lost.items())
    ]


def _at_risk(
    jobs: Sequence[Job], pods_of: Mapping[str, Sequence[Pod]], context: ExplainContext
) -> list[str]:
    """Jobs that replace a pod only after its end, whose pods recovery would leave alone."""
    return [
        f"{job.metadata.namespace}/{job.metadata.name}"
        for job in jobs
        if job_spec.of(job, context.gates).waits
        and any(
            pod.spec.node_name
            and not (pod.is_terminal or pod.is_terminating or context.is_recovered(pod))
            for pod in pods_of.get(job.metadata.uid, ())
        )
    ]


def _counts(cluster: ClusterObjects, active: int) -> dict[str, int]:
    counts = {"jobs": len(cluster.jobs), "activeJobs": active, "pods": len(cluster.pods)}
    return counts if cluster.nodes is None else {**counts, "nodes": len(cluster.nodes)}
