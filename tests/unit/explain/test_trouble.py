# SPDX-License-Identifier: Apache-2.0
"""Jobs that were tried on Kubernetes, and that explain named wrongly or said badly before."""

from typing import Any

from refloat.explain.codes import Code
from tests.cases import cases
from tests.unit.explain.test_job import explain, finished, pod, running, unscheduled
from tests.unit.explain.test_pod import event
from tests.unit.policy.builders import job


@cases(
    "explanation code words",
    {
        "a deadline that passed while the pods were refused": (
            lambda: explain(
                finished("Failed", "DeadlineExceeded", activeDeadlineSeconds=5),
                events={
                    "Job/ns/j": [
                        event(
                            "FailedCreate",
                            'Error creating: pods "j-" is forbidden: no account',
                            990,
                            "Job",
                            "j",
                        )
                    ]
                },
            ),
            Code.DEADLINE,
            "(5 s); the pods of Job j are refused: pods",
        ),
        "no pod to be near": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) didn't"
                    " match pod affinity rules."
                ),
            ),
            Code.AFFINITY,
            "no node that fits runs a pod that its pod affinity asks for",
        ),
        "pods to keep away from": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
                ),
            ),
            Code.AFFINITY,
            "each node that fits runs a pod that its pod anti-affinity excludes",
        ),
        "a claim without a volume": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                    spec={"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]},
                ),
            ),
            Code.CLAIM,
            "PersistentVolumeClaim data is missing or not bound",
        ),
        "a resource claim that is not created": (
            lambda: explain(
                job(),
                pod(spec={"nodeName": ""}),
                events={
                    "Pod/ns/p": [
                        event(
                            "FailedResourceClaimCreation",
                            'PodResourceClaim gpu: template "gpu" not found',
                            990,
                            "Pod",
                            "p",
                        )
                    ]
                },
            ),
            Code.UNSCHEDULABLE,
            'its resource claims are not created: PodResourceClaim gpu: template "gpu" not found',
        ),
        "a node that never was": (
            lambda: explain(job(), pod(), nodes={"n1": None}),
            Code.NOT_ACCEPTED,
            "is on node n1, which does not exist",
        ),
        "a node that was deleted": (
            lambda: explain(job(), running(), nodes={"n1": None}),
            Code.NODE_LOST,
            "is on node n1, which does not exist",
        ),
    },
)
def test_each_situation_has_its_code(explanation: Any, code: Code, words: str) -> None:
    answer = explanation()
    assert (answer.finding.code, words in answer.finding.verdict) == (code, True), answer.finding
