# SPDX-License-Identifier: Apache-2.0
"""The demo of a node without power, an operator who taints it, and a volume that comes free
(KEP-36)."""

from refloat.api.meta import Object
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.demo.demo_cluster import DemoCluster, DemoSettings
from refloat.demo.nodes import DemoNodeSettings
from refloat.scenario.cluster import NODES, whole
from refloat.scenario.namespace import ScenarioNamespace

SPACE, JOB = "default", "count"
VOLUMES, CLAIMS = whole("persistentvolumes"), whole("persistentvolumeclaims")
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

_ON = f"--feature-gates={TAINT_FORCE_EVICTION}=true"

SETTINGS = DemoSettings(
    controllers="*",
    nodes=(DemoNodeSettings("north", (_ON,)), DemoNodeSettings("south", (_ON,))),
    gates=Gates({TAINT_FORCE_EVICTION: True}),
)


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    await cluster.step("A Job counts, and keeps its count on a volume")
    ns = ScenarioNamespace(cluster.scenario, SPACE)
    cluster.show(SPACE, "pods")
    cluster.show("", "volumeattachments")
    await _submit(ns)
    first = await _running(ns, number=0)
    node = first["spec"]["nodeName"]
    name = first["metadata"]["name"]
    line, *_ = await ns.printed(name)
    cluster.answer(f"the pod {line}; the volume is attached there alone")
    await ns.printed(name, lines=_LINES_AFTER_COUNT)
    await cluster.step(f"Node {node} loses its power")
    cluster.nodes.fail(node, "crash")
    await cluster.nodes.watched.wait_lost(node)
    cluster.note(
        "The cluster knows only that the node is silent. Without help it waits before it deletes "
        "the pod, then until the pod is gone, and then for the volume."
    )
    await cluster.step("An operator knows that the node is off, and taints it")
    began = cluster.seconds
    cluster.note(f"$ kubectl taint node {node} {TAINT['key']}={TAINT['value']}:{TAINT['effect']}")
    taints = await _taints(cluster, node)
    await cluster.client.patch(NODES, node, {"spec": {"taints": [*taints, TAINT]}})
    second = await _running(ns, number=1)
    cluster.answer(f"another pod runs {cluster.seconds - began:.1f} s later, on another node")
    await cluster.step("The Job continues from its count, and ends")
    line, *_ = await ns.printed(second["metadata"]["name"])
    cluster.answer(f"the pod {line}")
    cluster.nodes.heal(node)
    await ns.wait_until(lambda ns: ns.status(JOB).get("completionTime"))
    keys = [taint["key"] for taint in await _taints(cluster, node)]
    outcome = "is still there" if TAINT["key"] in keys else "is gone"
    cluster.answer(f"the Job has counted to {GOAL}; the taint {outcome}")


async def _taints(cluster: DemoCluster, node: str) -> list[Object]:
    return (await cluster.client.get(NODES, node))["spec"].get("taints") or []


async def _submit(ns: ScenarioNamespace) -> None:
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    source = {"driver": "volumes.refloat.dev", "volumeHandle": "count"}
    volume = {"capacity": size, "accessModes": modes, "csi": source}
    metadata = {"name": "count"}
    await ns.client.create(VOLUMES, {"metadata": metadata, "spec": volume})
    claim = {"accessModes": modes, "resources": {"requests": size}, "volumeName": "count"}
    body = {"metadata": metadata, "spec": {**claim, "storageClassName": ""}}
    await ns.client.create(CLAIMS, body, namespace=SPACE)
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "count"}}]
    pod = {"containers": [container], "volumes": volumes}
    conditions = [{"type": "DisruptionTarget"}]
    policy = {"rules": [{"action": "Ignore", "onPodConditions": conditions}]}
    await ns.submit(JOB, template=pod, podFailurePolicy=policy)


async def _running(ns: ScenarioNamespace, *, number: int) -> Object:
    """Wait until the nth pod of the Job runs or has run."""

    def pods(ns: ScenarioNamespace) -> list[Object]:
        phases = ("Running", "Succeeded")
        return [
            pod for pod in list(ns.pods.values())[number:] if pod["status"].get("phase") in phases
        ]

    await ns.wait_until(pods)
    return pods(ns)[0]
