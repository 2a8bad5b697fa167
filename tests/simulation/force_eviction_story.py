# SPDX-License-Identifier: Apache-2.0
"""A whole cluster in which a node with a Job's pod and its volume goes off and is force evicted.

The node can be made to return before and after each write of force eviction.
What must never be is looked for at every change: work that runs twice, a volume
on two nodes, a pod that is started where it is evicted from.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from refloat.agent.runtime import Runtime
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.api.storage import VolumeAttachment
from refloat.apiserver import identity
from refloat.apiserver.identity import Identity
from refloat.app.controllers import Chosen
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.client import kinds
from refloat.client.contract import Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.policy import force_eviction
from refloat.policy.force_eviction import PROGRESS, WISH
from refloat.runtime.informer import Informer
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import api_program
from tests.simulation.cluster_world import EVERYTHING, Cluster

T = TypeVar("T")

ON = Gates({TAINT_FORCE_EVICTION: True})
NAME = "kubernetes.io/csi/volumes.refloat.dev^data"
FREE: Object = {"restartPolicy": "OnFailure"}
WORK: Object = {
    **FREE,
    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
}
TAINT = {"key": WISH.key, "value": WISH.value, "effect": WISH.effect}

Moment: TypeAlias = tuple[int, Literal["before", "after"]]
"""The number of a write of force eviction, and on which side of it."""


class Hooked(LocalClient):
    """That of force eviction: something happens before and after each of its writes."""

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


class Late(LocalClient):
    """That of the nodes, of which one is not told what becomes of its pods."""

    untold = ""

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        return LateWatch(super()._open(request, kind), self)


class LateWatch(Generic[T]):
    def __init__(self, watch: Watch[T], client: Late) -> None:
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


class Story(Cluster):
    """A cluster that remembers what should never have been."""

    def __init__(self, sim: Sim, server: api_program.Server) -> None:
        super().__init__(sim, server)
        self.wrong: list[str] = []
        self.returns_at: Moment | None = None
        self.returns: Callable[[], Awaitable[None]] = self._nothing
        self.hooked: Hooked | None = None
        self.late = Late(server, field_manager="nodes")
        self._attached: dict[str, str] = {}  # attachment -> node
        self._said: dict[str, None] = {}  # nodes that were told that it is attached

    async def _nothing(self) -> None:
        pass

    def _connect(self, user: Identity) -> LocalClient:
        if user == identity.ADMIN and self._insides:
            return self.late
        if not user.name.endswith(":force-eviction-controller"):
            return super()._connect(user)
        self.hooked = Hooked(self.server.as_user(user), self._moment)
        return self.hooked

    async def _moment(self, moment: Moment) -> None:
        if moment == self.returns_at:
            await self.returns()

    # -- what must never be

    async def judge(self) -> None:
        await self._follow(kinds.VOLUME_ATTACHMENTS, self._saw_attachment)
        await self._follow(kinds.NODES, self._saw_node)
        for name in self.fleet.names():
            runtime: Any = self.fleet.worker(name).runtime
            runtime.start = partial(self._start, runtime, runtime.start, name)

    async def _follow(self, kind: Any, saw: Callable[[Any, Any], None]) -> None:
        made = Informer(self.client, kind, clock=self.sim.clock, rand=self.sim.rand)
        made.add_handler(saw)
        self._watched.append(made)
        made.start()
        await made.wait_synced()

    def _saw_attachment(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        if new is None:
            assert old is not None
            self._attached.pop(old.metadata.name, None)
        else:
            self._attached[new.metadata.name] = new.spec.node_name
        if len(self._attached) > 1:
            self.wrong.append(f"attached twice: {sorted(self._attached.values())}")

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
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
        if not force_eviction.tolerates(pod, force_eviction.wishes(node)):
            self.wrong.append(f"{pod.metadata.name} was started on {name}, which is evicted")
        if force_eviction.claims(pod) and name not in self._attached.values():
            self.wrong.append(f"{pod.metadata.name} was started on {name} without its volume")
        if sum(self.running().values()) > 1:
            self.wrong.append(f"runs more than once: {dict(self.running())}")

    def running(self) -> Counter[str]:
        """How many containers run on each node."""
        found: Counter[str] = Counter()
        for name in self.fleet.names():
            runtime = self.fleet.worker(name).runtime
            for uid in runtime.pods():
                held = runtime.containers(uid).values()
                found[name] += sum(not each.current.has_ended for each in held)
        return +found

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

    async def wish(self, node: str) -> None:
        held = (await self.client.get(kinds.NODES, node)).spec.taints or ()
        if not any(force_eviction.is_wish(each) for each in held):
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
            assert force_eviction.wishes(node) == ()
            assert PROGRESS not in (node.metadata.annotations or {})
            used = (NAME,) if each == name else ()
            assert (node.status.volumes_in_use or ()) == used


@contextlib.asynccontextmanager
async def story(sim: Sim) -> AsyncIterator[Story]:
    """The nodes have a cache of their own, as agents have."""
    async with api_program.serving(sim) as server:
        server.use(ON)
        made = Story(sim, server)
        try:
            await made.watch()
            await made.start(replace(EVERYTHING, simulated_nodes=0), ON)
            await made.start(Chosen(simulated_nodes=EVERYTHING.simulated_nodes), ON)
            await sim.clock.sleep(20)
            await made.judge()
            await made.mark()
            yield made
        finally:
            await made.close()
