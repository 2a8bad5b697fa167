# SPDX-License-Identifier: Apache-2.0
"""Pods that their cluster ends."""

from refloat.explain.codes import Code
from tests.e2e.situations.nodes import IMAGES, LARGE, LOW, SECOND, WORKER
from tests.e2e.situations.steps import (
    Situation,
    create,
    every,
    evict,
    explained,
    failures,
    job,
    job_is,
    logged,
    node_command,
    phase,
    run_low,
    taint,
)

EVICTIONS = (
    Situation(
        "drained",
        "A client evicted the pod, as `kubectl drain` does",
        Code.RUNNING,
        ("EvictedByApi", "1 failure counted"),
        (job("drained", node=WORKER),),
        every(failures("drained", 1), phase("drained", "Running")),
        ((logged("drained"), evict("drained")),),
    ),
    Situation(
        "taint-eviction",
        "The node got a NoExecute taint",
        Code.BACKOFF_LIMIT,
        ("EvictedByTaint",),
        (job("taint-eviction", node=SECOND, backoffLimit=0),),
        job_is("taint-eviction", "Failed"),
        ((logged("taint-eviction"), taint(SECOND, "NoExecute")),),
    ),
    Situation(
        "node-shutdown",
        "The node shut down",
        Code.BACKOFF_LIMIT,
        ("NodeShutdown", "in response to imminent node shutdown"),
        (
            job(
                "node-shutdown",
                node=SECOND,
                pod={"tolerations": [{"operator": "Exists"}]},
                backoffLimit=0,
            ),
        ),
        job_is("node-shutdown", "Failed"),
        (
            (
                every(logged("node-shutdown"), explained("tainted-pool")),
                node_command("shutdown", SECOND),
            ),
        ),
    ),
    Situation(
        "node-pressure",
        "The node ran low on memory",
        Code.BACKOFF_LIMIT,
        ("EvictedByNodePressure", "The node was low on resource: memory"),
        (job("node-pressure", node=LOW, backoffLimit=0),),
        job_is("node-pressure", "Failed"),
        (
            (
                every(logged("node-pressure"), explained("waits-for-preemption")),
                run_low(LOW),
            ),
        ),
    ),
    Situation(
        "preempted",
        "The scheduler removed the pod for another",
        Code.BACKOFF_LIMIT,
        ("PreemptedByScheduler",),
        (job("preempted", main=LARGE, node=IMAGES, backoffLimit=0),),
        job_is("preempted", "Failed"),
        (
            (
                logged("preempted"),
                create(
                    job("preempts", main=LARGE, pod={"priorityClassName": "important"}, node=IMAGES)
                ),
            ),
        ),
    ),
)
