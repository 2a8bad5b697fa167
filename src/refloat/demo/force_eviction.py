# SPDX-License-Identifier: Apache-2.0
"""The story of a node that loses its power, of somebody who knows it, and of a volume that comes
free (KEP-36)."""

from collections.abc import Callable
from typing import Any

from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.demo.nodes import NODES, NodeSetting
from refloat.demo.objects import Object
from refloat.demo.stage import Setting, Stage

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
TAINT = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}

# So far it counts; its node goes off long before that.
GOAL = 60

# It begins where the last one was, slowly the first time: its node is to go off meanwhile. A
# count is moved to its place: power that goes off while it is written must not leave half of
# it. It is said only once it is there.
SCRIPT = f"""
n=0; [ -e /data/count ] && read n < /data/count
echo "begins at $n on $NODE"
pause=0.1; [ $n -eq 0 ] && pause=1
while [ $n -lt {GOAL} ]; do
  n=`expr $n + 1`; echo $n > /data/next; mv /data/next /data/count; echo $n; sleep $pause
done
"""

# That many lines of its log show that a count is on the volume.
_HAS_COUNTED = 2

_POLL_SECONDS = 0.05

_ON = f"--feature-gates={TAINT_FORCE_EVICTION}=true"

SETTING = Setting(
    controllers="*",
    nodes=(NodeSetting("north", (_ON,)), NodeSetting("south", (_ON,))),
    gates=Gates({TAINT_FORCE_EVICTION: True}),
)


async def act(stage: Stage) -> None:
    """Play it."""
    await stage.step("A Job counts, and keeps its count on a volume")
    await stage.view(PODS)
    await stage.view(ATTACHMENTS)
    await _submit(stage)
    first = await _running(stage, but="")
    node = first["spec"]["nodeName"]
    stage.answer(f"it {await _said(stage, first)}; the volume is attached there alone")
    await _said(stage, first, lines=_HAS_COUNTED)
    await stage.step(f"Node {node} loses its power")
    stage.nodes.fail(node, "crash")
    await stage.nodes.lost(node)
    stage.note(
        "The cluster knows that it is silent, and no more. Left alone it would wait: to delete "
        "the pod, until that is gone, and then for the volume."
    )
    await stage.step("Somebody who knows that it is off says so")
    began = stage.seconds
    stage.note(f"$ kubectl taint node {node} {TAINT['key']}={TAINT['value']}:{TAINT['effect']}")
    held = (await stage.client.get(f"{NODES}/{node}"))["spec"].get("taints") or []
    await stage.client.patch(f"{NODES}/{node}", {"spec": {"taints": [*held, TAINT]}})
    second = await _running(stage, but=first["metadata"]["name"])
    stage.answer(f"another pod runs {stage.seconds - began:.1f} s later, on another node")
    await stage.step("The Job goes on where it was, and ends")
    stage.answer(f"it {await _said(stage, second)}")
    stage.nodes.heal(node)
    await _until(stage, f"{JOBS}/count", lambda job: job["status"].get("completionTime"))
    left = (await stage.client.get(f"{NODES}/{node}"))["spec"].get("taints") or []
    gone = "is gone" if TAINT["key"] not in [each["key"] for each in left] else "is left"
    stage.answer(f"it has counted to {GOAL}; the taint {gone}")


async def _submit(stage: Stage) -> None:
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    source = {"driver": "volumes.refloat.dev", "volumeHandle": "count"}
    volume = {"capacity": size, "accessModes": modes, "csi": source}
    await stage.client.create("/api/v1/persistentvolumes", _named("count", volume))
    claim = {"accessModes": modes, "resources": {"requests": size}, "volumeName": "count"}
    await stage.client.create(CLAIMS, _named("count", {**claim, "storageClassName": ""}))
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "count"}}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    disrupted = [{"type": "DisruptionTarget"}]
    policy = {"rules": [{"action": "Ignore", "onPodConditions": disrupted}]}
    spec = {"podFailurePolicy": policy, "template": {"spec": pod}}
    await stage.client.create(JOBS, _named("count", spec))


def _named(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


async def _running(stage: Stage, *, but: str) -> Object:
    """The Job's pod, once it runs or has run; not the one that was there before."""

    def found(listed: Object) -> list[Object]:
        there = [each for each in listed["items"] if each["metadata"]["name"] != but]
        return [each for each in there if each["status"].get("phase") in ("Running", "Succeeded")]

    return found(await _until(stage, PODS, found))[0]


async def _said(stage: Stage, pod: Object, *, lines: int = 1) -> str:
    """The first line of its log, once there are so many."""
    path = f"{PODS}/{pod['metadata']['name']}/log"
    while len(said := (await stage.client.text(path)).splitlines()) < lines:
        await stage.clock.sleep(_POLL_SECONDS)
    return said[0]


async def _until(stage: Stage, path: str, holds: Callable[[Object], Any]) -> Object:
    while not holds(found := await stage.client.get(path)):
        await stage.clock.sleep(_POLL_SECONDS)
    return found
