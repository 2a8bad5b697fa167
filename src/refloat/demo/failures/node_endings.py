# SPDX-License-Identifier: Apache-2.0
"""Pods that their node ends, and a container that a process on its node kills."""

import os
import signal
from functools import partial

from refloat.demo.failures.case import Case, Difference
from refloat.demo.failures.case_namespace import FOREVER, CaseNamespace, pod_spec
from refloat.demo.failures.pod_end import End
from refloat.demo.failures.shared_values import (
    COUNTED,
    ENDED,
    FAILED_BY_137,
    IGNORED,
    KILLED,
    NOT_DISRUPTED,
    REJECTED,
    WORKER,
    case_node,
    settings,
)

# `tail` keeps all of its input in memory: 100 MB.
GREEDY = "{ head -c 100000000 /dev/zero; sleep 1000; } | tail"

# Writes 3 MB into the volume.
WRITING = f"head -c 3000000 /dev/zero > ${{REFLOAT_VOLUME_WORK:-/work}}/big; {FOREVER}"


async def pressure(namespace: CaseNamespace, *, node: str, signal: str) -> End:
    """Raise the eviction threshold above the free amount; the machine does not fill up."""
    pod = await namespace.started("work", pod_spec(FOREVER, node=node))
    threshold = f"--eviction-hard={signal}<100.0%"
    namespace.show_command(f"refloat agent --name {node} '{threshold}'")
    namespace.demo.nodes.change_flags(node, threshold)
    return await namespace.settled("work", pod)


async def memory_limit(namespace: CaseNamespace) -> End:
    limit = {"resources": {"limits": {"memory": "32Mi"}}}
    pod = await namespace.job("work", pod_spec(GREEDY, node=WORKER.name, container=limit))
    return await namespace.settled("work", pod)


async def storage_limit(namespace: CaseNamespace) -> End:
    container = {
        "resources": {"limits": {"ephemeral-storage": "1Mi"}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    volumes = [{"name": "work", "emptyDir": {}}]
    spec = pod_spec(WRITING, node=WORKER.name, container=container, volumes=volumes)
    return await namespace.settled("work", await namespace.job("work", spec))


async def shutdown(namespace: CaseNamespace, *, node: str, script: str) -> End:
    pod = await namespace.started("work", pod_spec(script, node=node))
    namespace.show_command(f"refloat node shutdown {node}")
    namespace.demo.nodes.shut_down(node)
    return await namespace.settled("work", pod)


async def admission(namespace: CaseNamespace) -> End:
    await namespace.demo.nodes.watched.wait_condition(FULL.name, "DiskPressure")
    tolerations = [{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}]
    pod = await namespace.job("work", pod_spec(FOREVER, node=FULL.name, tolerations=tolerations))
    return await namespace.settled("work", pod)


async def container_kill(namespace: CaseNamespace) -> End:
    pod = await namespace.started("work", pod_spec(FOREVER, node=WORKER.name))
    process = int((await namespace.printed(pod))[0])
    namespace.show_command(f"kill -9 {process}")
    os.kill(process, signal.SIGKILL)
    return await namespace.settled("work", pod)


LOW_MEMORY, LOW_DISK, LOW_PIDS = (
    case_node("low-memory"),
    case_node("low-disk"),
    case_node("low-pids"),
)
FULL = case_node("full", "--eviction-hard=nodefs.available<100.0%")
OFF, OFF_HANDLED = case_node("off"), case_node("off-handled")


_EVICTED = {"phase": "Failed", "reason": "Evicted"}
_BY_KUBELET = {"disruption": "TerminationByKubelet"}
_LOW = "The node was low on resource: {0}. Threshold quantity: N, available: N."
_USING = _LOW + " Container main was using N, request is 0, has larger consumption of {0}."
_WHOLE_MESSAGE = "the KEP has only the beginning of the message"
_KNOWN = "in the KEP's run the kubelet did not know the exit code of the container; here it does"
_STORAGE = "Pod ephemeral local storage usage exceeds the total limit of containers {}."
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."

CASES = (
    Case(
        "memory-pressure",
        "A node that runs low on memory evicts a Job's pod",
        "Memory-pressure eviction",
        "A Job runs, and its node has too little free memory.",
        partial(pressure, node=LOW_MEMORY.name, signal="memory.available"),
        settings(LOW_MEMORY),
        kep={
            **_BY_KUBELET,
            "status": "ContainerStatusUnknown",
            **_EVICTED,
            "message": "The node was low on resource: memory. (...)",
            "container": "terminated 137 ContainerStatusUnknown",
        },
        differs={
            "status": Difference("Error", _KNOWN),
            "message": Difference(_USING.format("memory"), _WHOLE_MESSAGE),
            "container": Difference("terminated 137 Error", _KNOWN),
        },
        more={"because": _USING.format("memory"), **ENDED, **IGNORED},
    ),
    Case(
        "disk-pressure",
        "A node that runs low on disk evicts a Job's pod",
        "Disk-pressure eviction",
        "A Job runs, and its node has too little free disk.",
        partial(pressure, node=LOW_DISK.name, signal="nodefs.available"),
        settings(LOW_DISK),
        kep={
            **_BY_KUBELET,
            "status": "Error",
            **_EVICTED,
            "message": "The node was low on resource: ephemeral-storage. (...)",
            **KILLED,
        },
        differs={"message": Difference(_USING.format("ephemeral-storage"), _WHOLE_MESSAGE)},
        more={"because": _USING.format("ephemeral-storage"), **ENDED, **IGNORED},
    ),
    Case(
        "pid-pressure",
        "A node that runs low on process ids evicts a Job's pod",
        "PID-pressure eviction",
        "A Job runs, and its node has too few free process ids.",
        partial(pressure, node=LOW_PIDS.name, signal="pid.available"),
        settings(LOW_PIDS),
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
        "A Job's container has a limit of 32Mi, and uses 100 MB.",
        memory_limit,
        settings(WORKER),
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
        "A Job's container has a limit of 1Mi, and writes 3 MB into an emptyDir.",
        storage_limit,
        settings(WORKER),
        kep={
            **NOT_DISRUPTED,
            "status": "Error",
            **_EVICTED,
            "message": _STORAGE.format("1Gi"),
            **KILLED,
        },
        differs={
            "message": Difference(_STORAGE.format("1Mi"), "the limit in the KEP's run was larger")
        },
        more={"because": "", **ENDED, **FAILED_BY_137},
    ),
    Case(
        "shutdown",
        "A node shuts down under a container that ignores SIGTERM",
        "Graceful node shutdown, exit code 137",
        "A Job runs, and its node shuts down; the container ignores SIGTERM.",
        partial(shutdown, node=OFF.name, script=FOREVER),
        settings(OFF),
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
        "A node shuts down under a container that exits with 0",
        "Graceful node shutdown, exit code 0",
        "A Job runs, and its node shuts down; the container handles SIGTERM and exits with 0.",
        partial(
            shutdown,
            node=OFF_HANDLED.name,
            script="trap 'exit 0' TERM; echo ready; while true; do sleep 0.2; done",
        ),
        settings(OFF_HANDLED),
        kep={
            **_BY_KUBELET,
            "status": "Completed",
            "phase": "Succeeded",
            "reason": "",
            "message": "",
            "container": "terminated 0",
        },
        differs={
            "container": Difference("terminated 0 Completed", "the KEP leaves the reason out")
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
        "A node is under disk pressure. A Job's pod tolerates the taint, so the scheduler chooses "
        "this node.",
        admission,
        settings(FULL),
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
                "the message of today",
            )
        },
        more={"because": "", **REJECTED, **COUNTED},
    ),
    Case(
        "container-kill",
        "A process on the node kills a container",
        "Direct container kill",
        "A Job runs, and a user kills the container's process on the node.",
        container_kill,
        settings(WORKER),
        kep={"status": "Error", "phase": "Failed", "reason": "", "message": "", **KILLED},
        more={**NOT_DISRUPTED, "because": "", **ENDED, **FAILED_BY_137},
    ),
)
