# SPDX-License-Identifier: Apache-2.0
"""Writers and watchers on a whole API server in virtual time, all of it traced.

As a program of its own, `python -m tests.simulation.api_program SEED`, it prints the
digest of the trace; with `--trace` after the seed, the trace.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import msgspec

from refloat.api import errors
from refloat.apiserver import bootstrap, identity, watching
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.inprocess import InProcess
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import Resources
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace
from refloat.store.compaction import Compaction
from refloat.store.memory import MemoryStore

WRITERS = 5
ROUNDS = 40

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

Object: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[["Writer"], Awaitable[object]]


class Server(InProcess):
    """An administrator's way to an API server that can be given other gates."""

    def __init__(self, sim: Sim, store: MemoryStore, dispatcher: watching.Dispatcher) -> None:
        self._sim = sim
        self._store = store
        self._dispatcher = dispatcher
        super().__init__(self._made(Gates()), Authorizer(store), identity.ADMIN)

    def use(self, gates: Gates) -> None:
        """As a server that was started anew with these; watches go on."""
        self._resources = self._made(gates)

    def as_user(self, user: identity.Identity) -> InProcess:
        """The way of somebody else, with the gates of now."""
        return InProcess(self._resources, self._authorizer, user)

    def _made(self, gates: Gates) -> Resources:
        clock, rand = self._sim.clock, self._sim.rand
        registry = Registry(self._store, rand=rand, gates=gates)
        evictions = Evictions(registry, clock, gates)
        return Resources(registry, self._dispatcher, evictions, clock=clock, rand=rand)


@asynccontextmanager
async def serving(sim: Sim) -> AsyncIterator[Server]:
    """An API server on a store in memory, and an administrator's way to it."""
    store = MemoryStore(Compaction(age=60.0))
    await bootstrap.ensure(Registry(store, rand=sim.rand, gates=Gates()), sim.clock)
    dispatcher = watching.Dispatcher(store, sim.clock)
    dispatcher.start()
    tasks = Tasks()
    tasks.spawn(_maintain(sim, store), name="maintenance")
    try:
        yield Server(sim, store, dispatcher)
    finally:
        await tasks.close()
        await dispatcher.close()
        await store.close()


async def _maintain(sim: Sim, store: MemoryStore) -> None:
    while True:
        await sim.clock.sleep(10)
        await store.maintain(sim.clock.monotonic())


class Writer:
    """Does one thing after the other, as chance will have it."""

    def __init__(self, sim: Sim, api: InProcess, name: str) -> None:
        self.sim = sim
        self.api = api
        self.name = name

    async def write(self) -> None:
        for _ in range(ROUNDS):
            act = self.sim.rand.choice(ACTS)
            try:
                answer = await act(self)
            except errors.StatusError as error:
                answer = f"{error.code} {error.message}"
            self.sim.trace.add(f"{self.name} {act.__name__}: {answer}")
            await self.sim.clock.sleep(self.sim.rand.choice([0.0, 0.0, 0.5, 1.0, 7.0]))

    async def call(self, method: str, target: str, obj: Object, form: str = "") -> Object:
        form = form or "application/json"
        body = await self.api.call(method, target, msgspec.json.encode(obj), form)
        decoded: Object = msgspec.json.decode(body)
        return decoded


async def make_pod(writer: Writer) -> str:
    obj = {
        "metadata": {"generateName": "p-", "labels": {"by": writer.name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    made = await writer.call("POST", PODS, obj)
    return str(made["metadata"]["name"])


async def make_job(writer: Writer) -> str:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    obj = {"metadata": {"name": _some(writer)}, "spec": {"template": {"spec": spec}}}
    made = await writer.call("POST", JOBS, obj)
    return str(made["metadata"]["uid"])


async def label_pod(writer: Writer) -> str:
    patch = {"metadata": {"labels": {"touched": writer.name}}}
    made = await writer.call("PATCH", f"{PODS}/{await _a_pod(writer)}", patch, MERGE)
    return str(made["metadata"]["resourceVersion"])


async def delete_pod(writer: Writer) -> str:
    options = {"gracePeriodSeconds": writer.sim.rand.choice([0, 30])}
    made = await writer.call("DELETE", f"{PODS}/{await _a_pod(writer)}", options)
    return str(made["metadata"])


async def apply_map(writer: Writer) -> str:
    """Own some fields; who owns which is kept in sets."""
    name = _some(writer)
    data = {f"key-{writer.sim.rand.below(9)}": writer.name for _ in range(4)}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    target = f"{MAPS}/{name}?fieldManager={writer.name}&force={_flag(writer)}"
    return str(await writer.call("PATCH", target, obj, APPLY))


async def count(writer: Writer) -> str:
    """Read, give way, and write if nobody came between."""
    target = f"{MAPS}/counter"
    obj = msgspec.json.decode(await writer.api.call("GET", target))
    obj["data"]["count"] = str(int(obj["data"]["count"]) + 1)
    await asyncio.sleep(0)
    await writer.call("PUT", target, obj)
    return f"counted {obj['data']['count']}"


async def list_pods(writer: Writer) -> str:
    return (await writer.api.call("GET", PODS + "?labelSelector=touched&limit=3")).decode()


ACTS: tuple[Act, ...] = (
    make_pod,
    make_pod,
    make_job,
    label_pod,
    delete_pod,
    apply_map,
    count,
    count,
    list_pods,
)


def _some(writer: Writer) -> str:
    return f"some-{writer.sim.rand.below(4)}"


def _flag(writer: Writer) -> str:
    return writer.sim.rand.choice(["true", "false"])


async def _a_pod(writer: Writer) -> str:
    pods = msgspec.json.decode(await writer.api.call("GET", PODS))["items"]
    if not pods:
        return "none"
    return str(writer.sim.rand.choice(pods)["metadata"]["name"])


async def watch(sim: Sim, api: InProcess, name: str, target: str) -> None:
    """Trace all that a watch says, and watch anew when it ends."""
    while True:
        async with aclosing(api.watch(target)) as lines:
            async for line in lines:
                sim.trace.add(f"{name} saw {line.decode()}")
        sim.trace.add(f"{name} begins anew")


WATCHES = {
    "pods": f"{PODS}?watch=1&timeoutSeconds=40",
    "touched": "/api/v1/pods?watch=1&labelSelector=touched&sendInitialEvents=true"
    "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "maps": "/api/v1/configmaps?watch=1&allowWatchBookmarks=true",
    "jobs": f"{JOBS}?watch=1&fieldSelector=metadata.name=some-1",
}


async def program(sim: Sim) -> Trace:
    """Write for some minutes of virtual time while others watch."""
    watchers = Tasks()
    async with serving(sim) as api:
        counter = {"metadata": {"name": "counter"}, "data": {"count": "0"}}
        await api.call("POST", MAPS, msgspec.json.encode(counter))
        for name, target in WATCHES.items():
            watchers.spawn(watch(sim, api, name, target), name=name)
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(Writer(sim, api, f"writer-{number}").write())
        await sim.clock.sleep(100)
        sim.trace.add((await api.call("GET", f"{MAPS}/counter")).decode())
        await watchers.close()
    return sim.trace


def main(seed: str, *options: str) -> None:
    trace = run(program, seed=int(seed))
    sys.stdout.write(f"{trace}\n" if options else f"{trace.digest()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
