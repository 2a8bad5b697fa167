# SPDX-License-Identifier: Apache-2.0
"""Writers and watchers on an API server in virtual time, with a trace of all steps.

As a program of its own, `python -m tests.simulation.api_program SEED` prints the
digest of the trace; with `--trace` after the seed, the trace.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from refloat.api import errors
from refloat.apiserver.local_server import LocalConnection
from refloat.base.tasks import Tasks
from refloat.sim import api_server
from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace

WRITERS = 5
ROUNDS = 40

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

Object: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[["Writer"], Awaitable[object]]


class Writer:
    """Does one thing after the other, in random order."""

    def __init__(self, sim: Sim, api: LocalConnection, name: str) -> None:
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
    pod = await writer.call("POST", PODS, obj)
    return str(pod["metadata"]["name"])


async def make_job(writer: Writer) -> str:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    obj = {"metadata": {"name": _some(writer)}, "spec": {"template": {"spec": spec}}}
    job = await writer.call("POST", JOBS, obj)
    return str(job["metadata"]["uid"])


async def label_pod(writer: Writer) -> str:
    patch = {"metadata": {"labels": {"touched": writer.name}}}
    pod = await writer.call("PATCH", f"{PODS}/{await _a_pod(writer)}", patch, MERGE)
    return str(pod["metadata"]["resourceVersion"])


async def delete_pod(writer: Writer) -> str:
    options = {"gracePeriodSeconds": writer.sim.rand.choice([0, 30])}
    pod = await writer.call("DELETE", f"{PODS}/{await _a_pod(writer)}", options)
    return str(pod["metadata"])


async def apply_map(writer: Writer) -> str:
    """Own some fields; who owns which is kept in sets."""
    name = _some(writer)
    data = {f"key-{writer.sim.rand.below(9)}": writer.name for _ in range(4)}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    force = writer.sim.rand.choice(["true", "false"])
    target = f"{MAPS}/{name}?fieldManager={writer.name}&force={force}"
    return str(await writer.call("PATCH", target, obj, APPLY))


async def count(writer: Writer) -> str:
    """Read, yield to other tasks, and write unless another writer was faster."""
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


async def _a_pod(writer: Writer) -> str:
    pods = msgspec.json.decode(await writer.api.call("GET", PODS))["items"]
    if not pods:
        return "none"
    return str(writer.sim.rand.choice(pods)["metadata"]["name"])


async def watch(sim: Sim, api: LocalConnection, name: str, target: str) -> None:
    """Trace all events of a watch, and watch again when the watch ends."""
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
    async with api_server.serve(sim) as api:
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
