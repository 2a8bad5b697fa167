# SPDX-License-Identifier: Apache-2.0
"""A whole cluster in which a node with a Job's pod and its volume goes off and is force evicted.

The node can be made to return before and after each write of force eviction.
What must never be is looked for at every change: work that runs twice, a volume
on two nodes, a pod that starts on the node that is evicted.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from refloat.agent.runtime import Runtime
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.api.storage import VolumeAttachment
from refloat.apiserver import identity
from refloat.apiserver.identity import Identity
from refloat.app.controller_names import ControllerSelection
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.client import kinds
from refloat.client.contract import Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.force_eviction import PROGRESS, REQUEST_TAINT
from refloat.runtime.informer import Change
from refloat.sim.cluster import ALL_CONTROLLERS, Cluster
from refloat.sim.run import Sim
from tests import builders

T = TypeVar("T")

ON = Gates({TAINT_FORCE_EVICTION: True})
NAME = "kubernetes.io/csi/volumes.refloat.dev^data"
FREE: Object = {"restartPolicy": "OnFailure"}
WORK: Object = {**FREE, "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}
TAINT = {"key": REQUEST_TAINT.key, "value": REQUEST_TAINT.value, "effect": REQUEST_TAINT.effect}

Moment: TypeAlias = tuple[int, Literal["before", "after"]]
"""The number of a write of force eviction, and the side of that write."""


class Hooked(LocalClient):
    """The client of force eviction: the hook runs before and after each of its writes."""

    def __init__(self, api: Any, hook: Callable[[Moment], Awaitable[None]]) -> None:
        super().__init__(api, field_manager="force-eviction-controller")
        self._hook = hook
        self.writes = 0

    async def _call(self, request: Request) -> bytes:
        if request.method == "GET" or "/events" in request.path:
            return await super()._call(request)
        self.writes += 1
        number = self.writes
        await self._hook((number, "before"))
        answer = await super()._call(request)
        await self._hook((number, "after"))
        return answer


class LateClient(LocalClient):
    """The client of the nodes, of which one gets no events about its pods."""

    untold = ""

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        return LateWatch(super()._open(request, kind), self)


class LateWatch(Generic[T]):
    def __init__(self, watch: Watch[T], client: LateClient) -> None:
        self._watch = watch
        self._client = client

    def __aiter__(self) -> "LateWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while True:
            event = await self._watch.__anext__()
            if not isinstance(event.object, Pod):
                return event
            if not self._client.untold or event.object.spec.node_name != self._client.untold:
                return event

    async def aclose(self) -> None:
        await self._watch.aclose()


class EvictedNodeCluster(Cluster):
    """A cluster that records violations. The nodes have a cache of their own, as agents have."""

    late: LateClient

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim, gates=ON)
        self.wrong: list[str] = []
        self.returns_at: Moment | None = None
        self.returns: Callable[[], Awaitable[None]] = self._nothing
        self.hooked: Hooked | None = None
        self._attached: dict[str, str] = {}  # attachment -> node
        self._said: dict[str, None] = {}  # nodes whose status lists the volume as attached

    async def _nothing(self) -> None:
        pass

    async def start_all(self) -> None:
        self.late = LateClient(self.server, field_manager="nodes")
        self.start(replace(ALL_CONTROLLERS, simulated_nodes=0), ON)
        self.start(ControllerSelection(simulated_nodes=ALL_CONTROLLERS.simulated_nodes), ON)
        await self.sleep(20)
        await self.judge()

    def connect(self, user: Identity) -> LocalClient:
        if user == identity.ADMIN and self.parts:
            return self.late
        if not user.name.endswith(":force-eviction-controller"):
            return super().connect(user)
        self.hooked = Hooked(self.server.as_user(user), self._moment)
        return self.hooked

    async def _moment(self, moment: Moment) -> None:
        if moment == self.returns_at:
            await self.returns()

    # -- what must never be

    async def judge(self) -> None:
        await self.watch(kinds.VOLUME_ATTACHMENTS, self._saw_attachment)
        await self.watch(kinds.NODES, self._saw_node)
        for name in self.fleet.names():
            runtime: Any = self.fleet.worker(name).runtime
            runtime.start = partial(self._start, runtime, runtime.start, name)

    def _saw_attachment(self, change: Change[VolumeAttachment]) -> None:
        name = change.current.metadata.name
        if change.new is None:
            self._attached.pop(name, None)
        else:
            self._attached[name] = change.new.spec.node_name
        if len(self._attached) > 1:
            self.wrong.append(f"attached twice: {sorted(self._attached.values())}")

    def _saw_node(self, change: Change[Node]) -> None:
        new = change.new
        assert new is not None
        name = new.metadata.name
        self._said.pop(name, None)
        if any(each.name == NAME for each in new.status.volumes_attached or ()):
            self._said[name] = None
        if len(self._said) > 1:
            self.wrong.append(f"said to be attached to {sorted(self._said)}")

    async def _start(
        self, runtime: Runtime, start: Any, name: str, pod: Pod, container: str, attempt: int
    ) -> None:
        await start(pod, container, attempt)
        node = await self.client.get(kinds.NODES, name)
        if not force_eviction.tolerates(pod, force_eviction.request_taints(node)):
            self.wrong.append(f"{pod.metadata.name} was started on {name}, which is evicted")
        if force_eviction.claims(pod) and name not in self._attached.values():
            self.wrong.append(f"{pod.metadata.name} was started on {name} without its volume")
        if sum(self.running().values()) > 1:
            self.wrong.append(f"runs more than once: {dict(self.running())}")

    def running(self) -> Counter[str]:
        """How many containers run on each node."""
        counts: Counter[str] = Counter()
        for name in self.fleet.names():
            runtime = self.fleet.worker(name).runtime
            for uid in runtime.pods():
                containers = runtime.containers(uid).values()
                counts[name] += sum(not each.current.has_ended for each in containers)
        return +counts

    # -- what is done

    async def begin(self, work: Object = WORK) -> str:
        """A Job whose pod has a volume runs; the node of that pod."""
        await self.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("v"))
        claim = builders.claim("c", volume="v")
        await self.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
        await self.submit(pod=work, podReplacementPolicy="Failed", backoffLimit=100)
        await self.sim.clock.sleep(10)
        [node] = self.running()
        return node

    async def request_eviction(self, node: str) -> None:
        taints = (await self.client.get(kinds.NODES, node)).spec.taints or ()
        if not any(force_eviction.is_request(each) for each in taints):
            await self.taint(node, TAINT)

    async def settled(self) -> None:
        """The Job goes on, in one place, with its volume; nothing is left of the eviction."""
        assert self.wrong == []
        [(name, count)] = self.running().items()
        assert count == 1
        assert list(self._attached.values()) == [name]
        assert list(self._said) == [name]
        assert (self.job().status.active, self.job().status.terminating) == (1, 0)
        for each in self.fleet.names():
            node = await self.client.get(kinds.NODES, each)
            assert force_eviction.request_taints(node) == ()
            assert PROGRESS not in (node.metadata.annotations or {})
            used = (NAME,) if each == name else ()
            assert (node.status.volumes_in_use or ()) == used
