# SPDX-License-Identifier: Apache-2.0
"""Pods that their node ends, or a container that somebody kills there."""

import os
import signal
from functools import partial

from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.end import End
from refloat.demo.failures.scene import FOREVER, Scene, pod_spec
from refloat.demo.failures.words import (
    COUNTED,
    ENDED,
    FAILED_BY_137,
    IGNORED,
    KILLED,
    NOT_DISRUPTED,
    REJECTED,
    WORKER,
    own,
    setting,
)

# Holds what it has read: 100 MB.
GREEDY = "{ head -c 100000000 /dev/zero; sleep 1000; } | tail"

# Writes 3 MB into its volume.
WRITING = f"head -c 3000000 /dev/zero > ${{REFLOAT_VOLUME_WORK:-/work}}/big; {FOREVER}"


async def pressure(scene: Scene, *, node: str, signal: str) -> End:
    """The machine is not filled: the node wants more of it to be free than there is."""
    pod = await scene.running("work", pod_spec(FOREVER, node=node))
    threshold = f"--eviction-hard={signal}<100.0%"
    scene.does(f"refloat agent --name {node} '{threshold}'")
    scene.stage.nodes.renew(node, threshold)
    return await scene.settled("work", pod)


async def memory_limit(scene: Scene) -> End:
    limit = {"resources": {"limits": {"memory": "32Mi"}}}
    pod = await scene.job("work", pod_spec(GREEDY, node=WORKER.name, container=limit))
    return await scene.settled("work", pod)


async def storage_limit(scene: Scene) -> End:
    container = {
        "resources": {"limits": {"ephemeral-storage": "1Mi"}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    volumes = [{"name": "work", "emptyDir": {}}]
    spec = pod_spec(WRITING, node=WORKER.name, container=container, volumes=volumes)
    return await scene.settled("work", await scene.job("work", spec))


async def shutdown(scene: Scene, *, node: str, script: str) -> End:
    pod = await scene.running("work", pod_spec(script, node=node))
    scene.does(f"refloat node shutdown {node}")
    scene.stage.nodes.shut_down(node)
    return await scene.settled("work", pod)


async def admission(scene: Scene) -> End:
    await scene.stage.nodes.says(FULL.name, "DiskPressure")
    tolerated = [{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}]
    pod = await scene.job("work", pod_spec(FOREVER, node=FULL.name, tolerations=tolerated))
    return await scene.settled("work", pod)


async def container_kill(scene: Scene) -> End:
    pod = await scene.running("work", pod_spec(FOREVER, node=WORKER.name))
    process = int(await scene.log(pod))
    scene.does(f"kill -9 {process}")
    os.kill(process, signal.SIGKILL)
    return await scene.settled("work", pod)


LOW_MEMORY, LOW_DISK, LOW_PIDS = own("low-memory"), own("low-disk"), own("low-pids")
FULL = own("full", "--eviction-hard=nodefs.available<100.0%")
OFF, OFF_HANDLED = own("off"), own("off-handled")


_EVICTED = {"phase": "Failed", "reason": "Evicted"}
_BY_KUBELET = {"disruption": "TerminationByKubelet"}
_LOW = "The node was low on resource: {0}. Threshold quantity: N, available: N."
_USING = _LOW + " Container main was using N, request is 0, has larger consumption of {0}."
_WHOLE = "the KEP has only its beginning; this is how it goes on (D6.1)"
_KNOWN = (
    "in the KEP's run the kubelet had lost sight of the container; here it is known how it ended"
)
_STORAGE = "Pod ephemeral local storage usage exceeds the total limit of containers {}."
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."

CASES = (
    Case(
        "memory-pressure",
        "A node that runs low on memory evicts a Job's pod",
        "Memory-pressure eviction",
        "A Job runs, and its node finds too little memory left.",
        partial(pressure, node=LOW_MEMORY.name, signal="memory.available"),
        setting(LOW_MEMORY),
        kep={
            **_BY_KUBELET,
            "status": "ContainerStatusUnknown",
            **_EVICTED,
            "message": "The node was low on resource: memory. (...)",
            "container": "terminated 137 ContainerStatusUnknown",
        },
        differs={
            "status": Difference("Error", _KNOWN),
            "message": Difference(_USING.format("memory"), _WHOLE),
            "container": Difference("terminated 137 Error", _KNOWN),
        },
        more={"because": _USING.format("memory"), **ENDED, **IGNORED},
    ),
    Case(
        "disk-pressure",
        "A node that runs low on disk evicts a Job's pod",
        "Disk-pressure eviction",
        "A Job runs, and its node finds too little of its disk left.",
        partial(pressure, node=LOW_DISK.name, signal="nodefs.available"),
        setting(LOW_DISK),
        kep={
            **_BY_KUBELET,
            "status": "Error",
            **_EVICTED,
            "message": "The node was low on resource: ephemeral-storage. (...)",
            **KILLED,
        },
        differs={"message": Difference(_USING.format("ephemeral-storage"), _WHOLE)},
        more={"because": _USING.format("ephemeral-storage"), **ENDED, **IGNORED},
    ),
    Case(
        "pid-pressure",
        "A node that runs low on process ids evicts a Job's pod",
        "PID-pressure eviction",
        "A Job runs, and its node finds too few process ids left.",
        partial(pressure, node=LOW_PIDS.name, signal="pid.available"),
        setting(LOW_PIDS),
        kep={**_BY_KUBELET},
        more={
            "status": "Error",
            **_EVICTED,
            "message": _LOW.format("pids"),
            **KILLED,
            "because": _LOW.format("pids"),
            **ENDED,
            **IGNORED,
        },
    ),
    Case(
        "memory-limit",
        "A container takes more memory than its limit",
        "Container memory limit exceeded",
        "A Job's container may have 32Mi, and takes 100 MB.",
        memory_limit,
        setting(WORKER),
        kep={
            **NOT_DISRUPTED,
            "status": "OOMKilled",
            "phase": "Failed",
            "reason": "",
            "message": "",
            "container": "terminated 137 OOMKilled",
        },
        more={"because": "", **ENDED, **FAILED_BY_137},
    ),
    Case(
        "storage-limit",
        "A container writes more than its ephemeral-storage limit",
        "Container ephemeral-storage limit exceeded",
        "A Job's container may write 1Mi, and writes 3 MB into an emptyDir.",
        storage_limit,
        setting(WORKER),
        kep={
            **NOT_DISRUPTED,
            "status": "Error",
            **_EVICTED,
            "message": _STORAGE.format("1Gi"),
            **KILLED,
        },
        differs={
            "message": Difference(_STORAGE.format("1Mi"), "the limit of the KEP's run was larger")
        },
        more={"because": "", **ENDED, **FAILED_BY_137},
    ),
    Case(
        "shutdown",
        "A node shuts down under a container that does not listen",
        "Graceful node shutdown, exit code 137",
        "A Job runs, and its node shuts down; the container does not heed SIGTERM.",
        partial(shutdown, node=OFF.name, script=FOREVER),
        setting(OFF),
        kep={
            **_BY_KUBELET,
            "status": "Error",
            "phase": "Failed",
            "reason": "Terminated",
            "message": _SHUTDOWN,
            **KILLED,
        },
        more={"because": _SHUTDOWN, **ENDED, **IGNORED},
    ),
    Case(
        "shutdown-handled",
        "A node shuts down under a container that ends well",
        "Graceful node shutdown, exit code 0",
        "A Job runs, and its node shuts down; the container handles SIGTERM and exits with 0.",
        partial(
            shutdown,
            node=OFF_HANDLED.name,
            script="trap 'exit 0' TERM; echo ready; while true; do sleep 0.2; done",
        ),
        setting(OFF_HANDLED),
        kep={
            **_BY_KUBELET,
            "status": "Completed",
            "phase": "Succeeded",
            "reason": "",
            "message": "",
            "container": "terminated 0",
        },
        differs={
            "container": Difference(
                "terminated 0 Completed", "the KEP leaves the reason out (D5.4)"
            )
        },
        more={
            "because": _SHUTDOWN,
            "conditions": "ContainersReady=False (PodCompleted), Initialized=True (PodCompleted), "
            "PodReadyToStartContainers=False, PodScheduled=True, Ready=False (PodCompleted)",
            "job": "Complete: CompletionsReached",
            "replaced": "no",
        },
    ),
    Case(
        "admission",
        "A node that is low on disk turns a Job's pod away",
        "Pod admission error",
        "A node is under disk pressure, and a Job's pod gets there nevertheless: it tolerates "
        "the taint.",
        admission,
        setting(FULL),
        kep={
            **NOT_DISRUPTED,
            "status": "Evicted",
            **_EVICTED,
            "message": "Pod The node had condition: [DiskPressure].",
            "container": "none",
        },
        differs={
            "message": Difference(
                "Pod was rejected: The node had condition: [DiskPressure].",
                "the words of today (D6.5)",
            )
        },
        more={"because": "", **REJECTED, **COUNTED},
    ),
    Case(
        "container-kill",
        "A container is killed by somebody on its node",
        "Direct container kill",
        "A Job runs, and somebody kills the container's process on the node.",
        container_kill,
        setting(WORKER),
        kep={"status": "Error", "phase": "Failed", "reason": "", "message": "", **KILLED},
        more={**NOT_DISRUPTED, "because": "", **ENDED, **FAILED_BY_137},
    ),
)
