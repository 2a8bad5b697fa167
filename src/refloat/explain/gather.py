# SPDX-License-Identifier: Apache-2.0
"""Reads from a cluster what an explanation is made of, and nothing more.

A right that the user lacks makes the explanation shorter and is named in its limits. Nothing
here writes.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from refloat.api import names, self_fence, structs
from refloat.api.batch import Job
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Namespace, Node, Pod
from refloat.api.events import Event
from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.base.errors import UsageError
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.contract import EVERYTHING, Client, Kind, Selector
from refloat.config import actors as records_of
from refloat.config.actors import FAILURE_RECOVERY, FORCE_EVICTION
from refloat.explain import (
    cronjob,
    doctor,
    gone_attempts,
    job,
    node,
    node_state,
    objects,
    pod,
    pod_end,
    pod_pending,
)
from refloat.explain.actors import Actors
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext, NodeRoom, event_key
from refloat.explain.explanation import Explanation, Finding
from refloat.policy.job import job_gates
from refloat.policy.job.job_gates import JobGates
from refloat.policy.recovery import zombie

T = TypeVar("T", bound=ApiObject)

JOB_CONTROLLER = "job-controller"
JOB_NAME = "batch.kubernetes.io/job-name"

# Warnings that `doctor` reads at most: about a second of a busy API server.
MAX_EVENTS = 5_000

# Pods of one Job whose events and nodes are read; the worst state is among the first.
MAX_PODS = 20

# Rights that the user may lack, and what they show.
_READ_LEASES = f"get leases in {NODE_NAMESPACE}: which pods their nodes end by themselves"
_READ_NAMESPACES = "get namespaces: whether recovery selects the namespace"
_READ_NODES = "get nodes: whether the nodes of the pods are alive"
_READ_EVENTS = "list events: what controllers reported"

# What keeps a pod off the nodes that it selects is read only for these answers.
_NEED_ROOMS = frozenset((Code.INSUFFICIENT, Code.AFFINITY, Code.TAINTS))

KINDS = {
    "po": "pod",
    "pod": "pod",
    "pods": "pod",
    "no": "node",
    "node": "node",
    "nodes": "node",
    "job": "job",
    "jobs": "job",
    "jobs.batch": "job",
    "job.batch": "job",
    "cj": "cronjob",
    "cronjob": "cronjob",
    "cronjobs": "cronjob",
    "cronjob.batch": "cronjob",
}


@dataclass(slots=True)
class _Reads:
    """What was read for one explanation."""

    nodes: dict[str, Node | None] = field(default_factory=dict)
    leases: dict[str, Lease | None] = field(default_factory=dict)
    """Of nodes, by name; None for one that does not exist."""
    namespaces: dict[str, Namespace | None] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    unreachable: tuple[int, int] | None = None
    rooms: list[NodeRoom] | None = None
    missing: dict[str, None] = field(default_factory=dict)
    """The rights that the user lacks, each with what it would show."""


class Explainer:
    """Explains objects of one cluster for one call: a command, or one round of a watch.

    The processes that act are the same for all objects of a call, so they are read once.
    """

    def __init__(
        self, client: Client, clock: Clock, server_now: Callable[[], datetime | None] | None = None
    ) -> None:
        """`server_now` is the time of the API server, where it is known."""
        self._client = client
        self._clock = clock
        self._server_clock = server_now
        self._known_actors: Actors | None = None

    async def explain(self, what: str, namespace: str) -> Explanation:
        """`job/NAME` and so on; raises what `client.errors` has if the object does not exist."""
        kind, name = parse(what)
        _check_name(namespace, f"namespace {namespace!r}")
        if kind == "node":
            return await self._node(name)
        if kind == "pod":
            return await self._pod(name, namespace)
        if kind == "job":
            return await self.of_job(await self._client.get(kinds.JOBS, name, namespace=namespace))
        reads = _Reads()
        cron = await self._client.get(objects.CRON_JOBS, name, namespace=namespace)
        jobs = await self._all(kinds.JOBS, reads, "list jobs", namespace=namespace)
        await self._read_events("CronJob", name, namespace, reads)
        finding = cronjob.explain(cron, _owned(cron, jobs), await self._context(reads, namespace))
        return self._explanation("CronJob", namespace, name, finding, reads)

    async def jobs(self, namespace: str) -> AsyncIterator[Job]:
        """All Jobs of a namespace; of all namespaces if that is empty."""
        async for page in self._client.list(kinds.JOBS, namespace=namespace):
            for each in page.items:
                yield each

    async def of_job(self, job_: Job) -> Explanation:
        namespace, reads = job_.metadata.namespace, _Reads()
        selector = EVERYTHING
        if not job_.spec.manual_selector:  # pods of a selector of its own lack the label
            selector = Selector(labels=f"{JOB_NAME}={job_.metadata.name}")
        candidates = await self._all(objects.PODS, reads, "list pods", selector, namespace)
        pods = _owned(job_, candidates)
        await self._read_events("Job", job_.metadata.name, namespace, reads)
        events = reads.events[event_key("Job", namespace, job_.metadata.name)]
        for name in gone_attempts.names(job_, pods, events) if job_.status.failed else ():
            await self._read_events("Pod", name, namespace, reads)
        chosen = sorted(pods, key=_is_quiet)[:MAX_PODS]
        await self._read_around(chosen, reads)
        context = await self._context(reads, namespace)
        explanation = job.explain(job_, pods, context, tuple(reads.missing))
        if explanation.finding.code not in _NEED_ROOMS:
            return explanation
        reads.rooms = await self._rooms(reads)
        context = await self._context(reads, namespace)
        return job.explain(job_, pods, context, tuple(reads.missing))

    async def _pod(self, name: str, namespace: str) -> Explanation:
        reads = _Reads()
        pod_ = await self._client.get(objects.PODS, name, namespace=namespace)
        await self._read_around([pod_], reads)
        finding = pod.explain(pod_, await self._context(reads, namespace))
        if finding.code in _NEED_ROOMS:
            reads.rooms = await self._rooms(reads)
            finding = pod.explain(pod_, await self._context(reads, namespace))
        return self._explanation("Pod", namespace, name, finding, reads)

    async def _node(self, name: str) -> Explanation:
        reads = _Reads()
        node_ = await self._client.get(kinds.NODES, name)
        reads.nodes[name] = node_
        on_node = Selector(fields=f"spec.nodeName={name}")
        pods = await self._all(objects.PODS, reads, "list pods in all namespaces", on_node)
        await self._read_events("Node", name, "", reads)
        await self._read_lease(name, reads)
        for namespace in dict.fromkeys(each.metadata.namespace for each in pods):
            await self._read_namespace(namespace, reads)
        finding = node.explain(node_, pods, await self._context(reads, ""))
        return self._explanation("Node", "", name, finding, reads)

    def _explanation(
        self, kind: str, namespace: str, name: str, finding: Finding, reads: _Reads
    ) -> Explanation:
        now = self._now()
        return Explanation(kind, namespace, name, now, finding, limits=tuple(reads.missing))

    def _now(self) -> datetime:
        now = None if self._server_clock is None else self._server_clock()
        return now or self._clock.now()

    async def _context(self, reads: _Reads, namespace: str) -> ExplainContext:
        if self._known_actors is None:
            self._known_actors = await self._read_actors()
        actors = replace(self._known_actors, now=self._now())
        job_control = actors.outlook(JOB_CONTROLLER, namespace)
        gates = job_gates.ALL_ON
        if job_control.configuration is not None:
            gates = JobGates.of(Gates(job_control.configuration.feature_gates))
        return ExplainContext(
            now=actors.now,
            recovery=actors.outlook(FAILURE_RECOVERY, namespace),
            force_eviction=actors.outlook(FORCE_EVICTION),
            job_control=job_control,
            gates=gates,
            nodes=reads.nodes,
            promises={
                name: {} if lease is None else dict(self_fence.read_listed(lease))
                for name, lease in reads.leases.items()
            },
            namespaces={
                name: each.metadata.labels or {} for name, each in reads.namespaces.items() if each
            },
            events=reads.events,
            unreachable=reads.unreachable,
            rooms=reads.rooms,
        )

    async def survey(self, namespace: str) -> doctor.ClusterObjects:
        """All that `doctor` reads, of a namespace or of all; one paginated list for each kind."""
        reads, place = _Reads(), namespace
        jobs = [each async for each in self.jobs(place)]
        pods = await self._all(objects.PODS, reads, "list pods", namespace=place)
        nodes = await self._all(kinds.NODES, reads, "list nodes: which nodes are lost")
        readable = not any("list nodes" in each for each in reads.missing)
        if readable:
            names = {each.spec.node_name for each in pods if each.spec.node_name}
            reads.nodes |= dict.fromkeys(names) | {each.metadata.name: each for each in nodes}
            reads.unreachable = _unreachable(nodes)
        warnings = await self._all(
            kinds.EVENTS, reads, _READ_EVENTS, Selector(fields="type=Warning"), place, MAX_EVENTS
        )
        for each in warnings:
            of = each.regarding
            reads.events.setdefault(event_key(of.kind, of.namespace, of.name), []).append(each)
        if len(warnings) >= MAX_EVENTS:
            reads.missing[f"more than {MAX_EVENTS} warnings: later ones were not read"] = None
        hanging = [each for each in pods if each.is_terminating and not each.is_terminal]
        if hanging:
            # With one list each: thousands of nodes may be lost.
            leases = await self._all(kinds.LEASES, reads, _READ_LEASES, namespace=NODE_NAMESPACE)
            if _READ_LEASES not in reads.missing:
                reads.leases |= dict.fromkeys(each.spec.node_name for each in hanging)
                reads.leases |= {each.metadata.name: each for each in leases}
            if place:
                await self._read_namespace(place, reads)
            else:
                spaces = await self._all(kinds.NAMESPACES, reads, _READ_NAMESPACES)
                reads.namespaces |= {each.metadata.name: each for each in spaces}
        context = await self._context(reads, place)
        return doctor.ClusterObjects(
            jobs, pods, nodes if readable else None, context, (*reads.missing,)
        )

    # -- reads ------------------------------------------------------------------------

    async def _read_around(self, pods: Sequence[Pod], reads: _Reads) -> None:
        """Events, nodes and labels of namespaces of these pods."""
        for each in pods:
            place = each.spec.node_name
            if not _is_quiet(each):
                await self._read_events("Pod", each.metadata.name, each.metadata.namespace, reads)
            if place and place not in reads.nodes and not each.is_terminal:
                await self._get(kinds.NODES, place, reads.nodes, reads, _READ_NODES)
                if reads.nodes.get(place) is not None:
                    await self._read_events("Node", place, "", reads)
            if each.is_terminating and not each.is_terminal:
                await self._read_namespace(each.metadata.namespace, reads)
                await self._read_lease(place, reads)
        if any(each is not None and node_state.is_lost(each) for each in reads.nodes.values()):
            # Recovery waits while too many nodes are unreachable.
            nodes = await self._all(kinds.NODES, reads, "list nodes: how many are unreachable")
            reads.unreachable = _unreachable(nodes) if nodes else None

    async def _read_lease(self, node_name: str, reads: _Reads) -> None:
        """It lists the pods that the node ends by itself."""
        into = reads.leases
        await self._get(kinds.LEASES, node_name, into, reads, _READ_LEASES, NODE_NAMESPACE)

    async def _read_namespace(self, name: str, reads: _Reads) -> None:
        await self._get(kinds.NAMESPACES, name, reads.namespaces, reads, _READ_NAMESPACES)

    async def _get(
        self,
        kind: Kind[T],
        name: str,
        into: dict[str, T | None],
        reads: _Reads,
        right: str,
        namespace: str = "",
    ) -> None:
        """Each object once; None for one that does not exist."""
        if not name or name in into:
            return
        try:
            obj = await self._client.get(kind, name, namespace=namespace)
        except errors.NotFound:
            into[name] = None
        except errors.Forbidden:
            reads.missing[right] = None
        else:
            into[name] = obj

    async def _read_events(self, kind: str, name: str, namespace: str, reads: _Reads) -> None:
        """By name: events of nodes have a uid that no Node ever had."""
        selector = Selector(fields=f"regarding.kind={kind},regarding.name={name}")
        right = "list events: what controllers and kubelets reported"
        events = await self._all(kinds.EVENTS, reads, right, selector, namespace)
        reads.events[event_key(kind, namespace, name)] = events

    async def _rooms(self, reads: _Reads) -> list[NodeRoom] | None:
        """What each node has left; None if it may not be read."""
        right = "list nodes and pods in all namespaces: what keeps the pod off each node"
        nodes = await self._all(kinds.NODES, reads, right)
        pods = await self._all(kinds.PODS, reads, right) if nodes else []
        if not nodes or right in reads.missing:
            return None
        return pod_pending.rooms(nodes, pods)

    async def _read_actors(self) -> Actors:
        """The processes that reported, of the one namespace where tenants cannot write."""
        try:
            records = await self._client.get(
                kinds.CONFIG_MAPS, records_of.NAME, namespace=records_of.NAMESPACE
            )
            published = records_of.read(records.data)
        except errors.NotFound:
            published = []
        except errors.Forbidden:
            return Actors(self._now())
        leases = {}
        for controller, name in records_of.LEASES.items():
            with contextlib.suppress(errors.NotFound, errors.Forbidden):
                leases[controller] = await self._client.get(
                    kinds.LEASES, name, namespace=records_of.NAMESPACE
                )
        return Actors(self._now(), published, leases)

    async def _all(
        self,
        kind: Kind[T],
        reads: _Reads,
        right: str,
        selector: Selector = EVERYTHING,
        namespace: str = "",
        enough: int | None = None,
    ) -> list[T]:
        """No further page once there are `enough`."""
        items: list[T] = []
        try:
            async for page in self._client.list(kind, selector=selector, namespace=namespace):
                items += page.items
                if enough is not None and len(items) >= enough:
                    break
        except errors.Forbidden:
            reads.missing[right] = None
        return items


def _owned(owner: ApiObject, candidates: Sequence[T]) -> list[T]:
    """Those whose controller is the owner."""
    uid = owner.metadata.uid
    return [
        each
        for each in candidates
        if each.metadata.controller is not None and each.metadata.controller.uid == uid
    ]


def _is_quiet(pod_: Pod) -> bool:
    """Nothing about the pod needs its events: it runs and is Ready, or it has ended by itself."""
    statuses = pod_.status.container_statuses or ()
    if pod_.is_terminal:
        # The events say why a kubelet killed a container.
        ended = (each.state.terminated for each in statuses)
        killed = any(each is not None and each.exit_code > pod_end.SIGNAL_BASE for each in ended)
        return not pod_.metadata.finalizers and not killed
    is_ready = structs.is_true(pod_.status.conditions, "Ready")
    waits = any(each.state.waiting for each in statuses)
    return is_ready and not waits and not pod_.is_terminating


def _unreachable(nodes: Sequence[Node]) -> tuple[int, int]:
    return sum(map(zombie.is_unreachable, nodes)), len(nodes)


def parse(what: str) -> tuple[str, str]:
    """Kind and name of `job/NAME`."""
    kind, slash, name = what.partition("/")
    if kind.lower() not in KINDS or not (slash and name):
        expected = "expected job/NAME, pod/NAME, node/NAME or cronjob/NAME"
        raise UsageError(f"{what!r}: {expected}")
    _check_name(name, repr(what))
    return KINDS[kind.lower()], name


def _check_name(name: str, what: str) -> None:
    if wrong := names.path_segment(name):
        raise UsageError(f"{what}: a name {' and '.join(wrong)}")
