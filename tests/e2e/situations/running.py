# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods run, fail again and again, or are being deleted."""

from refloat.explain.codes import Code
from tests import builders
from tests.e2e.situations.nodes import WORKER
from tests.e2e.situations.steps import (
    HOLD,
    LONG_GRACE,
    STUBBORN,
    Situation,
    delete_pods,
    deleted,
    every,
    exit_rule,
    failures,
    job,
    logged,
    pod_failed,
    status,
    waiting,
)

RUNNING = (
    Situation(
        "running",
        "The Job runs and has a deadline",
        Code.RUNNING,
        ("runs 1 pod", "activeDeadlineSeconds"),
        (job("running", node=WORKER, activeDeadlineSeconds=86400),),
        status("running", active=1, ready=1),
    ),
    Situation(
        "parallelism",
        "As many pods run as the Job allows",
        Code.PARALLELISM,
        ("3 wait because parallelism is 2",),
        (job("parallelism", node=WORKER, parallelism=2, completions=5),),
        status("parallelism", active=2, ready=2),
    ),
    Situation(
        "crash-loop",
        "The container fails, and the kubelet restarts it",
        Code.CRASH_LOOP,
        ("waits for its restart", "last: exit code 3", "--previous"),
        (job("crash-loop", "exit 3", pod={"restartPolicy": "OnFailure"}, node=WORKER),),
        waiting("crash-loop", "CrashLoopBackOff"),
    ),
    Situation(
        "back-off",
        "Pods fail, and the Job controller waits before the next",
        Code.BACK_OFF,
        ("backs off", "exit code 3", "the Job controller creates the next pod", "kubectl logs"),
        (job("back-off", "exit 3", node=WORKER, backoffLimit=20),),
        failures("back-off", 5),
    ),
    Situation(
        "ignore-loop",
        "An Ignore rule discards each failure",
        Code.IGNORE_LOOP,
        ("rule 0: Ignore discards each failure", "exit code 42", "activeDeadlineSeconds"),
        (job("ignore-loop", "exit 42", node=WORKER, **exit_rule("Ignore", 42)),),
        lambda view: len(view.of("ignore-loop")) >= 4,
    ),
    Situation(
        "long-grace",
        "A deleted pod uses its grace period, and the replacement waits",
        Code.TERMINATING,
        ("podReplacementPolicy is Failed", "has until the end of its grace period", "in 5"),
        (job("long-grace", STUBBORN, pod=LONG_GRACE, node=WORKER, podReplacementPolicy="Failed"),),
        status("long-grace", terminating=1),
        ((logged("long-grace"), delete_pods("long-grace")),),
    ),
)

HELD = (
    Situation(
        "held-pod",
        "A deleted pod has ended, and a finalizer keeps it",
        Code.TERMINATING_FINALIZERS,
        ("the finalizers example.com/hold keep its object",),
        (
            {
                **builders.pod("held-pod"),
                "metadata": {"name": "held-pod", "finalizers": [HOLD]},
                "spec": job("x", node=WORKER)["spec"]["template"]["spec"],
            },
        ),
        every(deleted("held-pod"), pod_failed("held-pod")),
        ((logged("held-pod"), delete_pods("held-pod")),),
        kind="pod",
    ),
)
