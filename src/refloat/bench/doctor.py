# SPDX-License-Identifier: Apache-2.0
"""`refloat bench doctor`: how long `refloat doctor` takes with 10,000 pods.

An API server holds pods of 6 KB in Jobs of a hundred, and 500 nodes, of which one is lost with
deleted pods on it. The command runs as a user runs the command: the start of Python, TLS, paginated
lists, judgement. The reads are counted in a second survey, in this process.
"""

import asyncio
import sys
import time

from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench import clients, pods
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.requests import Request
from refloat.explain import doctor
from refloat.explain.gather import Explainer

PODS = 10_000
AIM_SECONDS = 5.0

_TEMPLATE: Object = {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
}


async def measure(progress: Progress, *, pods: int = PODS) -> list[Row]:
    """Fill a server, and run doctor on it."""
    async with clients.up() as cluster:
        progress(f"{pods} pods")
        await _fill(cluster.client, pods)
        progress("refloat doctor")
        seconds = await _command("--kubeconfig", str(cluster.kubeconfig))
        rows = [cost("doctor: the command", seconds, "s", aim=AIM_SECONDS)]
        progress("its reads")
        return rows + await _survey(cluster)


class CountingClient(HttpClient):
    """Counts requests and bytes; a watch is an error."""

    requests = 0
    size = 0

    async def _call(self, request: Request) -> bytearray:
        body = await super()._call(request)
        self.requests += 1
        self.size += len(body)
        return body

    def _open(self, request: Request, kind: object) -> object:  # type: ignore[override]
        raise AssertionError(f"doctor watches {request.path}")


async def _survey(cluster: clients.UpCluster) -> list[Row]:
    clock = RealClock()
    client = CountingClient(kubeconfig.load([cluster.kubeconfig]), clock=clock, rand=Rand())
    started = time.perf_counter()
    try:
        objects = await Explainer(client, clock, client.server_now).survey("")
    finally:
        await client.close()
    reading = time.perf_counter() - started
    started = time.perf_counter()
    doctor.examine(objects)
    judging = time.perf_counter() - started
    return [
        cost("doctor: reading", reading, "s"),
        cost("doctor: judging", judging, "s"),
        cost("doctor: requests", client.requests, ""),
        cost("doctor: megabytes", client.size / 1e6, "MB"),
        Row("doctor: pods read", len(objects.pods), ""),
    ]


async def _command(*arguments: str) -> float:
    """The seconds of one run."""
    code = "import sys; from refloat.cli.main import main; sys.argv[0] = 'refloat'; main()"
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "doctor", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # else Ctrl-C interrupts Python's start, with a traceback
    )
    code_ = await process.wait()
    if code_ != 1:
        raise RuntimeError(f"refloat doctor ended with {code_}; 1 says that a person must act")
    return time.perf_counter() - started


async def _fill(client: HttpClient, count: int) -> None:
    for number in range(pods.NAMESPACES):
        await client.create(kinds.NAMESPACES, {"metadata": {"name": f"team-{number:02d}"}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}

    async def create_node(number: int) -> None:
        status = {"conditions": [ready if number else lost]}
        name = f"node-{number:04d}.example.internal"
        await client.create(kinds.NODES, {"metadata": {"name": name}, "status": status})

    await clients.for_each(range(pods.NODES), create_node)
    maker = pods.PodMaker()
    bodies = [maker.pod(number) for number in range(count)]
    uids = await _jobs(client, bodies)

    async def create(pod: Object) -> None:
        metadata = {key: v for key, v in pod["metadata"].items() if key not in pods.SERVER_FIELDS}
        namespace, name = metadata["namespace"], metadata["name"]
        (owner,) = metadata["ownerReferences"]
        metadata["ownerReferences"] = [{**owner, "uid": uids[namespace, owner["name"]]}]
        await client.create(kinds.PODS, {**pod, "metadata": metadata}, namespace=namespace)
        status = {"status": pod["status"]}
        await client.patch(kinds.PODS, name, status, namespace=namespace, subresource="status")
        if pod["spec"]["nodeName"].startswith("node-0000"):
            await client.delete(kinds.PODS, name, namespace=namespace)

    await clients.for_each(bodies, create)


async def _jobs(client: HttpClient, bodies: list[Object]) -> dict[tuple[str, str], str]:
    """A Job for each owner of the pods; its uid by namespace and name."""
    uids: dict[tuple[str, str], str] = {}
    for pod in bodies:
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["ownerReferences"][0]["name"]
        if key in uids:
            continue
        spec = {
            "completionMode": "Indexed",
            "completions": pods.PODS_PER_JOB,
            "parallelism": pods.PODS_PER_JOB,
            "podReplacementPolicy": "Failed",
            "template": _TEMPLATE,
        }
        body: Object = {"metadata": {"name": key[1]}, "spec": spec}
        job = await client.create(kinds.JOBS, body, namespace=key[0])
        uids[key] = job.metadata.uid
    return uids
