# SPDX-License-Identifier: Apache-2.0
"""The whole embedded cluster in virtual time: API server, all controllers, simulated nodes.

What runs is `app.inside.Inside` as `refloat up` runs it, with Kubernetes' own
waits. Its pods do what the annotation `refloat.dev/simulate` says, its nodes
fail when `fleet` is told so. Whatever becomes of nodes, pods and Jobs is taken
down in a journal, with the second in which it could be seen.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from refloat.agent import simulated
from refloat.agent.fleet import Fleet
from refloat.api import structs, times
from refloat.api.batch import Job
from refloat.api.coordination import NODE_NAMESPACE as LEASE_NAMESPACE
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.apiserver.identity import Identity
from refloat.app import controllers
from refloat.app.controllers import Chosen
from refloat.app.inside import Inside
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.contract import Kind
from refloat.client.local import LocalClient
from refloat.policy.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.informer import Informer
from refloat.sim.run import Sim
from tests.simulation import api_program
from tests.simulation.api_program import Server

T = TypeVar("T", bound=ApiObject)

NAMESPACE = "default"

# All of them, as `refloat up` starts them.
EVERYTHING = Chosen(controllers.KNOWN, simulated_nodes=3)

Line: TypeAlias = tuple[int, str]
"""A second, and what could be seen from then on."""

GONE = "gone"


def describe_pod(pod: Pod) -> str:
    """Its phase and what stands on the way to its end, in few words."""
    words = [pod.status.phase or "Pending"]
    if not pod.spec.node_name:
        words.append("unbound")
    if structs.is_true(pod.status.conditions, "Ready"):
        words.append("ready")
    if pod.is_terminating:
        words.append(f"terminating({pod.metadata.deletion_grace_period_seconds})")
    target = structs.find(pod.status.conditions, "DisruptionTarget")
    if target is not None:
        words.append(target.reason if target.status == "True" else "undisrupted")
    return " ".join(words)


def describe_job(job: Job) -> str:
    """Its counts, pods that are not counted yet, and its conditions that are true."""
    status = job.status
    counts = f"active {status.active} terminating {status.terminating or 0}"
    counts += f" failed {status.failed} succeeded {status.succeeded}"
    waiting = status.uncounted_terminated_pods
    if waiting is not None and (waiting.failed or waiting.succeeded):
        counts += f" uncounted {len(waiting.failed or ())}+{len(waiting.succeeded or ())}"
    true = [each for each in status.conditions or () if each.status == "True"]
    return " ".join([counts, *(f"{each.type}={each.reason}" for each in true)])


def describe_node(node: Node) -> str:
    """Its Ready condition, and its taints in order."""
    ready = structs.find(node.status.conditions, "Ready")
    taints = sorted(
        f"{each.key.rpartition('/')[2]}:{each.effect}" for each in node.spec.taints or ()
    )
    return " ".join([f"Ready={ready.status if ready is not None else ''}", *taints])


@dataclass(slots=True)
class Journal:
    """What could be seen of each object, by name and uid, from the first to the last."""

    clock: Callable[[], float]
    lines: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    objects: dict[str, ApiObject] = field(default_factory=dict)
    """How each was last seen."""

    def follow(self, describe: Callable[[Any], str]) -> Callable[[Any, Any], None]:
        def saw(old: ApiObject | None, new: ApiObject | None) -> None:
            seen = new if new is not None else old
            assert seen is not None
            uid = seen.metadata.uid
            self._note(uid, GONE if new is None else describe(new))
            self.objects[uid] = seen

        return saw

    def _note(self, uid: str, text: str) -> None:
        lines = self.lines.setdefault(uid, [])
        if not lines or lines[-1][1] != text:
            lines.append((self.clock(), text))


class Cluster:
    """A running cluster; times count from the last `mark`."""

    def __init__(self, sim: Sim, server: Server) -> None:
        self.sim = sim
        self.server = server
        self.client = LocalClient(server, field_manager="test")
        self.journal = Journal(sim.clock.monotonic)
        self.metrics = CollectorRegistry()
        self._began = sim.clock.monotonic()
        self._insides: list[Inside] = []
        self._watched: list[Informer[Any]] = []

    # -- what runs

    async def start(
        self,
        chosen: Chosen = EVERYTHING,
        gates: Gates | None = None,
        recovery: FailureRecoveryPolicy | None = None,
    ) -> None:
        """Start controllers and nodes; more than once with parts that differ in their gates."""
        self.metrics = CollectorRegistry()
        inside = Inside(
            self._connect,
            chosen,
            gates=gates or Gates(),
            clock=self.sim.clock,
            rand=self.sim.rand,
            registry=self.metrics,
            recovery=recovery,
        )
        self._insides.append(inside)
        inside.start()

    async def stop_last(self) -> None:
        """What was started last ends."""
        await self._insides.pop().close()

    def _connect(self, user: Identity) -> LocalClient:
        manager = user.name.rpartition(":")[2]
        return LocalClient(self.server.as_user(user), field_manager=manager)

    @property
    def fleet(self) -> Fleet:
        """The nodes, to be made to fail."""
        return next(each.fleet for each in self._insides if each.fleet is not None)

    async def watch(self) -> None:
        await self._watch(kinds.PODS, describe_pod)
        await self._watch(kinds.JOBS, describe_job)
        await self._watch(kinds.NODES, describe_node)

    async def _watch(self, kind: Kind[Any], describe: Callable[[Any], str]) -> None:
        made = Informer(self.client, kind, clock=self.sim.clock, rand=self.sim.rand)
        made.add_handler(self.journal.follow(describe))
        self._watched.append(made)
        made.start()
        await made.wait_synced()

    async def close(self) -> None:
        for inside in self._insides:
            await inside.close()
        for informer in self._watched:
            await informer.close()

    # -- time

    @property
    def seconds(self) -> float:
        """Since the last mark."""
        return self.sim.clock.monotonic() - self._began

    async def mark(self) -> None:
        """Count from the next whole second: that is what timestamps have."""
        left = 1.0 - self.sim.clock.now().microsecond / 1e6
        await self.sim.clock.sleep(left)
        self._began = self.sim.clock.monotonic()

    async def until(self, seconds: float) -> None:
        """Wait until so long after the mark, and a moment for what happens then."""
        await self.sim.clock.sleep(seconds - self.seconds + 0.05)

    # -- what is done

    async def submit(self, name: str = "j", *, script: Object | None = None, **spec: Any) -> None:
        """A Job whose containers do as the script says: by default run until they are stopped."""
        pod, more = spec.pop("pod", {}), spec.pop("annotations", {})
        template = {
            "metadata": {
                "annotations": {**annotation(script or {"main": {"seconds": None}}), **more}
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "work"}],
                **pod,
            },
        }
        body = {"metadata": {"name": name}, "spec": {"template": template, **spec}}
        await self.client.create(kinds.JOBS, body, namespace=NAMESPACE)

    async def taint(self, node: str, *taints: Object) -> None:
        held = (await self.raw("nodes", node))["spec"].get("taints", [])
        patch = {"spec": {"taints": [*held, *taints]}}
        await self.client.patch(kinds.NODES, node, patch)

    # -- what is seen

    async def raw(self, plural: str, name: str) -> Object:
        """A whole object, with every field that it has."""
        place = {"jobs": "/apis/batch/v1/namespaces/default", "nodes": "/api/v1"}
        folder = place.get(plural, "/api/v1/namespaces/default")
        found: Object = json.loads(await self.server.call("GET", f"{folder}/{plural}/{name}"))
        return found

    def pods(self, job: str = "j") -> list[Pod]:
        """All pods that a Job ever had, in the order in which they came, as last seen."""
        return [pod for pod in self._seen(Pod) if _owner(pod) == job]

    def story(self, seen: ApiObject, *, since: float = -1.0) -> list[Line]:
        """What was seen of an object after the mark, each with its second."""
        told = self.journal.lines.get(seen.metadata.uid, ())
        lines = ((when - self._began, text) for when, text in told)
        return [(round(when), text) for when, text in lines if when > since]

    def job(self, name: str = "j") -> Job:
        return next(each for each in self._seen(Job) if each.metadata.name == name)

    def node(self, name: str) -> Node:
        return next(each for each in self._seen(Node) if each.metadata.name == name)

    def _seen(self, kind: type[T]) -> Iterable[T]:
        return [each for each in self.journal.objects.values() if isinstance(each, kind)]

    def node_of(self, pod: Pod) -> str:
        """The node of a pod, as last seen."""
        seen = self.journal.objects[pod.metadata.uid]
        assert isinstance(seen, Pod)
        return seen.spec.node_name

    async def found(self, pod: Pod) -> Pod | None:
        with contextlib.suppress(errors.NotFound):
            return await self.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
        return None

    async def last_beat(self, node: str) -> float:
        """The second in which its lease was renewed for the last time."""
        lease = await self.client.get(kinds.LEASES, node, namespace=LEASE_NAMESPACE)
        return self.at(lease.spec.renew_time)

    def at(self, when: str | None) -> float:
        """A time of the API as seconds after the mark."""
        assert when is not None
        ago = (self.sim.clock.now() - times.parse(when)).total_seconds()
        return round(self.seconds - ago, 1)

    def lost_at(self, node: str) -> int:
        """The second in which its silence was noticed."""
        told = self.story(self.node(node))
        return next(when for when, text in told if "Ready=Unknown" in text)


def annotation(script: Object) -> dict[str, str]:
    return {simulated.ANNOTATION: json.dumps(script)}


def _owner(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.name if owner is not None else ""


@contextlib.asynccontextmanager
async def cluster(
    sim: Sim,
    chosen: Chosen = EVERYTHING,
    *,
    gates: Gates | None = None,
    server_gates: Gates | None = None,
    recovery: FailureRecoveryPolicy | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster whose nodes are ready; time counts from a whole second after that.

    The API server has the gates of the controllers, or others, as in a rollout.
    """
    async with api_program.serving(sim) as server:
        server.use(server_gates or gates or Gates())
        made = Cluster(sim, server)
        try:
            await made.watch()
            await made.start(chosen, gates, recovery)
            await sim.clock.sleep(20)
            await made.mark()
            yield made
        finally:
            await made.close()
