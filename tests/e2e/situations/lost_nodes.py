# SPDX-License-Identifier: Apache-2.0
"""A simulated node that is lost, and a pod that does not end."""

import json
from collections.abc import Sequence
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

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}


SOON = {"labels": {"recovery": "soon"}}
ALL_LOST = ("no-opt-in", "opted-in", "recovered", "node-lost")


def on_lost_node(lost_node: str, name: str, template: Object | None = None, **spec: Any) -> Object:
    """A Job whose pod is evicted one second after the loss of its node."""
    toleration = {**UNREACHABLE, "effect": "NoExecute", "tolerationSeconds": 1}
    return job(
        name,
        pod={"tolerations": [toleration]},
        template=simulated({"seconds": None}, **(template or {})),
        podReplacementPolicy="Failed",
        node=lost_node,
        **spec,
    )


def simulated(*attempts: Object, annotations: Object | None = None, **metadata: Any) -> Object:
    script = json.dumps({"main": attempts})
    return {**metadata, "annotations": {"refloat.dev/simulate": script, **(annotations or {})}}


def situations(
    lost_node: str,
    living: str,
    *,
    on_lost: Sequence[str] = ALL_LOST,
    soon: Object = SOON,
) -> tuple[Situation, ...]:
    """On two simulated nodes; the first is lost when these Jobs run.

    `soon` is what recovery selects a pod by that recovery frees at once.
    """
    return (
        Situation(
            "no-opt-in",
            "The pod is on a lost node, and nothing allows recovery",
            Code.TERMINATING_LOST_NODE,
            (
                f"its node {lost_node} is lost",
                "lacks the annotation",
                "safe-to-forcefully-terminate=true",
            ),
            (on_lost_node(lost_node, "no-opt-in"),),
            every(lost(lost_node), status("no-opt-in", terminating=1)),
            (
                (
                    every(*(phase(each, "Running") for each in on_lost)),
                    node_command("freeze", lost_node),
                ),
            ),
        ),
        Situation(
            "opted-in",
            "The pod is on a lost node, and recovery will free it",
            Code.TERMINATING_RECOVERY,
            ("zombie recovery will free the pod", "zombie recovery marks the pod Failed"),
            (on_lost_node(lost_node, "opted-in", {"annotations": SAFE}),),
            every(lost(lost_node), status("opted-in", terminating=1)),
        ),
        Situation(
            "recovered",
            "Zombie recovery freed the pod, and its replacement selects the lost node too",
            Code.TAINTS,
            ("ForcedByRecovery", "node.kubernetes.io/unreachable"),
            (on_lost_node(lost_node, "recovered", soon),),
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
                    node=lost_node,
                ),
            ),
            lost(lost_node),
        ),
        Situation(
            lost_node,
            "The node is lost",
            Code.NODE_SILENT,
            ("has stopped reporting",),
            (),
            every(lost(lost_node), status("no-opt-in", terminating=1)),
            kind="node",
        ),
        Situation(
            "overdue",
            "A deleted pod does not end on a living node",
            Code.TERMINATING_OVERDUE,
            ("its grace period ended", f"node {living} lives", "forces nothing on a living node"),
            (
                job(
                    "overdue",
                    template=simulated(
                        {"seconds": None, "ignoreTerm": True, "killSeconds": 10_000}
                    ),
                    node=living,
                    podReplacementPolicy="Failed",
                ),
            ),
            deleted_for("overdue", KUBELET_SECONDS),
            ((phase("overdue", "Running"), delete_pods("overdue")),),
        ),
    )
