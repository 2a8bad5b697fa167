# SPDX-License-Identifier: Apache-2.0
"""A simulated node that is lost, and a pod that does not end."""

import json
from typing import Any

from refloat.explain.codes import Code
from tests.e2e.cluster import Object
from tests.e2e.situations.steps import (
    KUBELET_SECONDS,
    SAFE,
    Situation,
    delete_pods,
    deleted_for,
    every,
    failures,
    job,
    lost,
    node_command,
    phase,
    status,
)

LOST_NODE, LIVING = "node-0", "node-1"
ALL_LOST = ("no-opt-in", "opted-in", "recovered", "node-lost")
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}


def on_lost_node(name: str, template: Object | None = None, **spec: Any) -> Object:
    """A Job whose pod is evicted one second after the loss of its node."""
    toleration = {**UNREACHABLE, "effect": "NoExecute", "tolerationSeconds": 1}
    return job(
        name,
        pod={"tolerations": [toleration]},
        template=simulated({"seconds": None}, **(template or {})),
        podReplacementPolicy="Failed",
        node=LOST_NODE,
        **spec,
    )


def simulated(*attempts: Object, annotations: Object | None = None, **metadata: Any) -> Object:
    script = json.dumps({"main": attempts})
    return {**metadata, "annotations": {"refloat.dev/simulate": script, **(annotations or {})}}


ON_SIMULATED = (
    Situation(
        "no-opt-in",
        "The pod is on a lost node, and nothing allows recovery",
        Code.TERMINATING_LOST_NODE,
        ("its node node-0 is lost", "lacks the annotation", "safe-to-forcefully-terminate=true"),
        (on_lost_node("no-opt-in"),),
        every(lost(LOST_NODE), status("no-opt-in", terminating=1)),
        (
            (
                every(*(phase(each, "Running") for each in ALL_LOST)),
                node_command("freeze", LOST_NODE),
            ),
        ),
    ),
    Situation(
        "opted-in",
        "The pod is on a lost node, and recovery will free it",
        Code.TERMINATING_RECOVERY,
        ("zombie recovery will free the pod", "zombie recovery marks the pod Failed"),
        (on_lost_node("opted-in", {"annotations": SAFE}),),
        every(lost(LOST_NODE), status("opted-in", terminating=1)),
    ),
    Situation(
        "recovered",
        "Zombie recovery freed the pod, and its replacement selects the lost node too",
        Code.TAINTS,
        ("ForcedByRecovery", "node.kubernetes.io/unreachable"),
        (on_lost_node("recovered", {"labels": {"recovery": "soon"}}),),
        every(failures("recovered", 1), lambda view: len(view.of("recovered")) == 2),
    ),
    Situation(
        "node-lost",
        "The node is lost, and the pod tolerates that for ever",
        Code.NODE_LOST,
        ("which has stopped reporting", "for ever"),
        (
            job(
                "node-lost",
                pod={"tolerations": [UNREACHABLE]},
                template=simulated({"seconds": None}),
                node=LOST_NODE,
            ),
        ),
        lost(LOST_NODE),
    ),
    Situation(
        LOST_NODE,
        "The node is lost",
        Code.NODE_SILENT,
        ("has stopped reporting",),
        (),
        every(lost(LOST_NODE), status("no-opt-in", terminating=1)),
        kind="node",
    ),
    Situation(
        "overdue",
        "A deleted pod does not end on a living node",
        Code.TERMINATING_OVERDUE,
        ("its grace period ended", "node node-1 lives", "forces nothing on a living node"),
        (
            job(
                "overdue",
                template=simulated({"seconds": None, "ignoreTerm": True, "killSeconds": 10_000}),
                node=LIVING,
                podReplacementPolicy="Failed",
            ),
        ),
        deleted_for("overdue", KUBELET_SECONDS),
        ((phase("overdue", "Running"), delete_pods("overdue")),),
    ),
)
