# SPDX-License-Identifier: Apache-2.0
"""The demo of a node without power, an operator who taints it, and a volume that comes free
(KEP-36)."""

from collections.abc import Callable
from typing import Any

from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.demo.demo_cluster import DemoCluster, DemoSettings
from refloat.demo.nodes import NODES, DemoNodeSettings
from refloat.demo.objects import Object

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
TAINT = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}

# The program counts to this number; its node goes off long before.
GOAL = 60

# A run continues from the count on the volume. The first run counts slowly, because its node
# goes off meanwhile. `mv` puts each count in place as a whole, in case the power goes off
# during the write; the program prints a count only when the file is there.
SCRIPT = f"""
n=0; [ -e /data/count ] && read n < /data/count
echo "begins at $n on $NODE"
pause=0.1; [ $n -eq 0 ] && pause=1
while [ $n -lt {GOAL} ]; do
  n=`expr $n + 1`; echo $n > /data/next; mv /data/next /data/count; echo $n; sleep $pause
done
"""

# With so many lines in the log, a count is on the volume.
_LINES_AFTER_COUNT = 2

_POLL_SECONDS = 0.05

_ON = f"--feature-gates={TAINT_FORCE_EVICTION}=true"

SETTINGS = DemoSettings(
    controllers="*",
    nodes=(DemoNodeSettings("north", (_ON,)), DemoNodeSettings("south", (_ON,))),
    gates=Gates({TAINT_FORCE_EVICTION: True}),
)


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    await cluster.step("A Job counts, and keeps its count on a volume")
    await cluster.view(PODS)
    await cluster.view(ATTACHMENTS)
    await _submit(cluster)
    first = await _running(cluster, but="")
    node = first["spec"]["nodeName"]
    cluster.answer(
        f"the pod {await _first_line(cluster, first)}; the volume is attached there alone"
    )
    await _first_line(cluster, first, lines=_LINES_AFTER_COUNT)
    await cluster.step(f"Node {node} loses its power")
    cluster.nodes.fail(node, "crash")
    await cluster.nodes.wait_lost(node)
    cluster.note(
        "The cluster knows only that the node is silent. Without help it waits before it deletes "
        "the pod, then until the pod is gone, and then for the volume."
    )
    await cluster.step("An operator knows that the node is off, and taints it")
    began = cluster.seconds
    cluster.note(f"$ kubectl taint node {node} {TAINT['key']}={TAINT['value']}:{TAINT['effect']}")
    taints = await _taints(cluster, node)
    await cluster.client.patch(f"{NODES}/{node}", {"spec": {"taints": [*taints, TAINT]}})
    second = await _running(cluster, but=first["metadata"]["name"])
    cluster.answer(f"another pod runs {cluster.seconds - began:.1f} s later, on another node")
    await cluster.step("The Job continues from its count, and ends")
    cluster.answer(f"the pod {await _first_line(cluster, second)}")
    cluster.nodes.heal(node)
    await _until(cluster, f"{JOBS}/count", lambda job: job["status"].get("completionTime"))
    keys = [taint["key"] for taint in await _taints(cluster, node)]
    outcome = "is still there" if TAINT["key"] in keys else "is gone"
    cluster.answer(f"the Job has counted to {GOAL}; the taint {outcome}")


async def _taints(cluster: DemoCluster, node: str) -> list[Object]:
    return (await cluster.client.get(f"{NODES}/{node}"))["spec"].get("taints") or []


async def _submit(cluster: DemoCluster) -> None:
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    source = {"driver": "volumes.refloat.dev", "volumeHandle": "count"}
    volume = {"capacity": size, "accessModes": modes, "csi": source}
    await cluster.client.create("/api/v1/persistentvolumes", _named("count", volume))
    claim = {"accessModes": modes, "resources": {"requests": size}, "volumeName": "count"}
    await cluster.client.create(CLAIMS, _named("count", {**claim, "storageClassName": ""}))
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "count"}}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    conditions = [{"type": "DisruptionTarget"}]
    policy = {"rules": [{"action": "Ignore", "onPodConditions": conditions}]}
    spec = {"podFailurePolicy": policy, "template": {"spec": pod}}
    await cluster.client.create(JOBS, _named("count", spec))


def _named(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


async def _running(cluster: DemoCluster, *, but: str) -> Object:
    """Wait for a pod of another name that runs or has run."""

    def matches(collection: Object) -> list[Object]:
        pods = [pod for pod in collection["items"] if pod["metadata"]["name"] != but]
        return [pod for pod in pods if pod["status"].get("phase") in ("Running", "Succeeded")]

    return matches(await _until(cluster, PODS, matches))[0]


async def _first_line(cluster: DemoCluster, pod: Object, *, lines: int = 1) -> str:
    """The first line of the pod's log, when the log has at least so many lines."""
    path = f"{PODS}/{pod['metadata']['name']}/log"
    while len(log := (await cluster.client.text(path)).splitlines()) < lines:
        await cluster.clock.sleep(_POLL_SECONDS)
    return log[0]


async def _until(cluster: DemoCluster, path: str, condition: Callable[[Object], Any]) -> Object:
    while not condition(obj := await cluster.client.get(path)):
        await cluster.clock.sleep(_POLL_SECONDS)
    return obj
