# SPDX-License-Identifier: Apache-2.0
"""Each situation of a Job has its code, its next step and its component."""

from typing import Any

import msgspec
import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod, Taint
from refloat.api.events import Event
from refloat.api.meta import Object
from refloat.explain import job as jobs
from refloat.explain import objects
from refloat.explain.actors import NONE_EVER, Outlook
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext, NodeRoom
from refloat.explain.explanation import Explanation
from tests.cases import cases
from tests.unit.explain.test_pod import LOST, configuration, event, node
from tests.unit.policy.builders import at, failed, job, on_codes, policy, text

NOW = 1_000.0
READY = node(ready="True")


def pod(name: str = "p", **parts: Any) -> Pod:
    """A pod of the Job, with the fields that explain reads beyond those of controllers."""
    meta: Object = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "creationTimestamp": text(0),
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        **parts.pop("metadata", {}),
    }
    spec = {"nodeName": "n1", **parts.pop("spec", {})}
    body = {"metadata": meta, "spec": spec, "status": {"phase": "Pending", **parts}}
    return msgspec.convert(body, objects.DetailedPod)


def running(name: str = "p", **parts: Any) -> Pod:
    return pod(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}], **parts)


def deleted(name: str = "p", *, seconds: float = 900, **parts: Any) -> Pod:
    """Its grace period of 30 s ends at this second."""
    meta = {"deletionTimestamp": text(seconds), "deletionGracePeriodSeconds": 30}
    return pod(name, phase="Running", metadata=meta | parts.pop("metadata", {}), **parts)


def waiting(reason: str, message: str = "") -> Pod:
    state = {"waiting": {"reason": reason, "message": message}}
    spec = {"containers": [{"name": "main", "image": "registry.example.com/train:1"}]}
    return pod(spec=spec, containerStatuses=[{"name": "main", "state": state}])


def unscheduled(message: str, **parts: Any) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    spec = {"nodeName": "", **parts.pop("spec", {})}
    return pod(spec=spec, conditions=[condition], **parts)


def ended(*, reason: str = "", exit_code: int | None = None, target: str = "", **parts: Any) -> Pod:
    conditions = (
        [{"type": "DisruptionTarget", "status": "True", "reason": target}] if target else []
    )
    statuses = []
    if exit_code is not None:
        terminated = {"exitCode": exit_code, **parts.pop("terminated", {})}
        statuses = [{"name": "main", "state": {"terminated": terminated}}]
    return pod(
        phase="Failed", reason=reason, conditions=conditions, containerStatuses=statuses, **parts
    )


def explain(of: Job, *pods: Pod, **context: Any) -> Explanation:
    defaults: dict[str, Any] = {
        "now": at(NOW),
        "nodes": {"n1": READY},
        "recovery": Outlook(configuration()),
    }
    return jobs.explain(of, pods, ExplainContext(**(defaults | context)))


def on_lost_node(*pods: Pod, **context: Any) -> Explanation:
    return explain(job(podReplacementPolicy="Failed"), *pods, nodes={"n1": LOST}, **context)


def with_event(reason: str, note: str, *pods: Pod) -> Explanation:
    old = msgspec.structs.replace(job().metadata, creation_timestamp=text(0))
    of = msgspec.structs.replace(job(), metadata=old)
    return explain(of, *pods, events={"Job/ns/j": [event(reason, note, 990, "Job", "j")]})


def restarted(group: str, phase: str = "Running") -> dict[str, Any]:
    """A container that failed twice, as a kubelet may show it for the whole pause."""
    ended = {"exitCode": 3, "reason": "Error"}
    status = {"name": "main", "restartCount": 1, "state": {"terminated": ended}}
    return {"phase": phase, group: [status], "spec": {"restartPolicy": "OnFailure"}}


def pod_event(reason: str, note: str, of: Pod | None = None) -> Explanation:
    events: dict[str, list[Event]] = {"Pod/ns/p": [event(reason, note, 990, "Pod", "p")]}
    return explain(job(), of or pod(startTime=text(1)), events=events)


def old(**spec: Any) -> Job:
    of = job(**spec)
    meta = msgspec.structs.replace(of.metadata, creation_timestamp=text(0))
    return msgspec.structs.replace(of, metadata=meta)


def finished(kind: str, reason: str, message: str = "", **spec: Any) -> Job:
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": text(990),
    }
    return job(status={"startTime": text(0), "failed": 7, "conditions": [condition]}, **spec)


FAIL_ON_42 = policy(on_codes("FailJob", "In", 42))
IGNORE_5 = policy(on_codes("Ignore", "In", 5))
TERMINATING: dict[str, Any] = {"status": {"startTime": text(0)}, "podReplacementPolicy": "Failed"}


@cases(
    "explanation code words",
    {
        # not started
        "suspended": (lambda: explain(old(suspend=True)), Code.SUSPENDED, "is suspended"),
        "managed by a controller that is absent": (
            lambda: explain(old(managedBy="example.com/x")),
            Code.OTHER_CONTROLLER,
            "managed by example.com/x",
        ),
        "managed by Refloat, which does not run": (
            lambda: explain(
                old(managedBy="refloat.dev/job-controller"), job_control=Outlook(text=NONE_EVER)
            ),
            Code.OTHER_CONTROLLER,
            "no component will act",
        ),
        "no Job controller": (lambda: explain(old()), Code.NO_CONTROLLER, "no Job controller"),
        "refused by a quota": (
            lambda: with_event(
                "FailedCreate", 'Error creating: pods "j-" is forbidden: exceeded quota: q'
            ),
            Code.QUOTA,
            "exceeded quota",
        ),
        "refused by a quota that demands limits": (
            lambda: with_event(
                "FailedCreate",
                'Error creating: pods "j-" is forbidden: failed quota: q: must specify limits.cpu',
            ),
            Code.QUOTA,
            "must specify limits.cpu",
        ),
        "refused by a quota that is not counted yet": (
            lambda: with_event(
                "FailedCreate",
                'Error creating: pods "j-" is forbidden: status unknown for quota: q, resources: x',
            ),
            Code.QUOTA,
            "status unknown for quota",
        ),
        "refused by a webhook": (
            lambda: with_event(
                "FailedCreate", 'Error creating: admission webhook "w" denied the request: no'
            ),
            Code.WEBHOOK,
            "denied the request",
        ),
        "refused by admission": (
            lambda: with_event(
                "FailedCreate", "Error creating: pods is forbidden: no PriorityClass with name x"
            ),
            Code.ADMISSION,
            "no PriorityClass",
        ),
        # Pending
        "does not fit": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes",
                    spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]},
                ),
                rooms=[NodeRoom("n1", {"cpu": 500}), NodeRoom("n2", {"cpu": 1500})],
            ),
            Code.INSUFFICIENT,
            "needs 4 cpu; the most that is free is 1500m on node n2: 2500m too little",
        ),
        "taints": (
            lambda: explain(
                job(), unscheduled("0/3 nodes are available: 3 node(s) had untolerated taints.")
            ),
            Code.TAINTS,
            "all nodes that fit have taints",
        ),
        "the selected node has a taint": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/4 nodes are available: 1 node(s) had untolerated taint {gpu: a}, "
                    "3 node(s) didn't match Pod's node affinity/selector.",
                    spec={"containers": [{"name": "c"}], "nodeSelector": {"pool": "gpu"}},
                ),
                rooms=[
                    NodeRoom("n1", {}, {"pool": "gpu"}, (Taint("gpu", effect="NoSchedule"),)),
                    NodeRoom("n2", {}, {"pool": "cpu"}),
                ],
            ),
            Code.TAINTS,
            "(gpu:NoSchedule on n1)",
        ),
        "the selected node is full": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated "
                    "taint(s), 2 node(s) didn't match Pod's node affinity/selector.",
                    spec={
                        "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}],
                        "nodeSelector": {"pool": "gpu"},
                    },
                ),
                rooms=[
                    NodeRoom("n1", {"cpu": 500}, {"pool": "gpu"}),
                    NodeRoom("n2", {"cpu": 8000}, {"pool": "cpu"}),
                ],
            ),
            Code.INSUFFICIENT,
            "the most that is free is 500m on node n1",
        ),
        "affinity": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
                ),
            ),
            Code.AFFINITY,
            "node selector",
        ),
        "topology spread": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match topology spread constraints."
                ),
            ),
            Code.SPREAD,
            "topology spread",
        ),
        "unbound claim": (
            lambda: explain(
                job(),
                unscheduled(
                    "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
                ),
            ),
            Code.CLAIM,
            "PersistentVolumeClaim",
        ),
        "missing claim": (
            lambda: explain(
                job(),
                unscheduled('0/1 nodes are available: persistentvolumeclaim "data" not found.'),
            ),
            Code.CLAIM,
            "PersistentVolumeClaim",
        ),
        "no nodes": (
            lambda: explain(job(), unscheduled("no nodes available to schedule pods")),
            Code.NO_NODES,
            "no nodes",
        ),
        "no scheduler": (
            lambda: explain(job(), pod(spec={"nodeName": ""})),
            Code.NO_SCHEDULER,
            "default-scheduler has not looked at it",
        ),
        "scheduling gates": (
            lambda: explain(
                job(), pod(spec={"nodeName": "", "schedulingGates": [{"name": "example.com/g"}]})
            ),
            Code.SCHEDULING_GATES,
            "example.com/g",
        ),
        "waits for preemption": (
            lambda: explain(job(), pod(spec={"nodeName": ""}, nominatedNodeName="n2")),
            Code.PREEMPTING,
            "lower priority have left node n2",
        ),
        "image missing": (
            lambda: explain(job(), waiting("ImagePullBackOff", "manifest unknown")),
            Code.IMAGE_MISSING,
            "registry.example.com/train:1 does not exist",
        ),
        "image unauthorised": (
            lambda: explain(
                job(), waiting("ErrImagePull", "pull access denied: 401 Unauthorized, not found")
            ),
            Code.IMAGE_UNAUTHORIZED,
            "may not be pulled",
        ),
        "image name invalid": (
            lambda: explain(job(), waiting("InvalidImageName", "x")),
            Code.IMAGE_NAME,
            "image name",
        ),
        "registry out of reach": (
            lambda: explain(job(), waiting("ErrImagePull", "i/o timeout")),
            Code.IMAGE_BACK_OFF,
            "could not be pulled",
        ),
        "image slow": (
            lambda: pod_event("Pulling", 'Pulling image "x"'),
            Code.IMAGE_PULLING,
            "pulls an image",
        ),
        "ConfigMap missing": (
            lambda: explain(
                job(), waiting("CreateContainerConfigError", 'configmap "c" not found')
            ),
            Code.CONFIG_MAP,
            "ConfigMap c is missing",
        ),
        "Secret missing": (
            lambda: explain(job(), waiting("CreateContainerConfigError", 'secret "s" not found')),
            Code.SECRET,
            "Secret s is missing",
        ),
        "Secret of a volume missing": (
            lambda: pod_event("FailedMount", 'MountVolume.SetUp failed: secret "s" not found'),
            Code.SECRET,
            "Secret s of a volume",
        ),
        "Multi-Attach": (
            lambda: pod_event("FailedAttachVolume", "Multi-Attach error for volume v"),
            Code.MULTI_ATTACH,
            "still attached to another node",
        ),
        "the kubelet is stopped": (
            lambda: explain(
                job(),
                pod(
                    conditions=[
                        {"type": "PodScheduled", "status": "True", "lastTransitionTime": text(1)}
                    ]
                ),
            ),
            Code.NOT_ACCEPTED,
            "has not accepted",
        ),
        # running
        "parallelism is full": (
            lambda: explain(old(completions=3), running()),
            Code.PARALLELISM,
            "2 wait because parallelism is 1",
        ),
        "all pods run": (lambda: explain(old(), running()), Code.RUNNING, "runs 1 pod"),
        "crash loop": (
            lambda: explain(
                job(restart_policy="OnFailure"),
                pod(
                    phase="Running",
                    containerStatuses=[
                        {
                            "name": "main",
                            "restartCount": 3,
                            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                        }
                    ],
                ),
            ),
            Code.CRASH_LOOP,
            "failed 4 times and waits for its restart; last: exit code 1, Error",
        ),
        "a container between its end and its restart": (
            lambda: explain(job(restart_policy="OnFailure"), pod(**restarted("containerStatuses"))),
            Code.CRASH_LOOP,
            "container main of pod p failed 2 times",
        ),
        "an init container between its end and its restart": (
            lambda: explain(
                job(restart_policy="OnFailure"),
                pod(**restarted("initContainerStatuses", phase="Pending")),
            ),
            Code.CRASH_LOOP,
            "container main of pod p failed 2 times",
        ),
        "an image name that containerd refuses": (
            lambda: explain(
                job(),
                waiting("ImagePullBackOff", 'failed to parse image reference "A/b:1"'),
            ),
            Code.IMAGE_NAME,
            "is no valid name",
        ),
        "a container that keeps its pod from ending": (
            lambda: explain(
                job(),
                pod(
                    phase="Running",
                    containerStatuses=[
                        {"name": "main", "state": {"terminated": {"exitCode": 0}}},
                        {"name": "proxy", "state": {"running": {}}},
                    ],
                    spec={"restartPolicy": "Never"},
                ),
            ),
            Code.RUNS_ON,
            "because container proxy runs on",
        ),
        "a startup probe that fails": (
            lambda: pod_event("Unhealthy", "Startup probe failed: no answer", pod(phase="Running")),
            Code.NOT_READY,
            "is not Ready: Startup probe failed: no answer",
        ),
        "back-off": (
            lambda: explain(old(status={"startTime": text(0)}), failed("a", ended=NOW - 5)),
            Code.BACK_OFF,
            "exit code 1",
        ),
        "terminating in its grace period": (
            lambda: explain(job(**TERMINATING), deleted(seconds=NOW + 20)),
            Code.TERMINATING,
            "until the end of its grace period",
        ),
        "terminating too long on a living node": (
            lambda: explain(job(**TERMINATING), deleted()),
            Code.TERMINATING_OVERDUE,
            "node n1 lives",
        ),
        "lost node without opt-in": (
            lambda: on_lost_node(deleted()),
            Code.TERMINATING_LOST_NODE,
            "lacks the annotation",
        ),
        "lost node with opt-in": (
            lambda: on_lost_node(
                deleted(
                    metadata={
                        "annotations": {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}
                    }
                )
            ),
            Code.TERMINATING_RECOVERY,
            "zombie recovery will free the pod",
        ),
        "a running pod on a lost node": (
            lambda: on_lost_node(running()),
            Code.NODE_LOST,
            "has stopped reporting",
        ),
        # failing and finished
        "a rule matched": (
            lambda: explain(
                finished("Failed", "PodFailurePolicy", "Container main for pod ns/p failed")
            ),
            Code.RULE,
            "Container main for pod ns/p failed",
        ),
        "back-off limit": (
            lambda: explain(finished("Failed", "BackoffLimitExceeded"), ended(exit_code=3)),
            Code.BACKOFF_LIMIT,
            "7 pods failed, and backoffLimit is 6",
        ),
        "failed indexes": (
            lambda: explain(finished("Failed", "FailedIndexes")),
            Code.FAILED_INDEXES,
            "failed",
        ),
        "too many failed indexes": (
            lambda: explain(finished("Failed", "MaxFailedIndexesExceeded", maxFailedIndexes=1)),
            Code.MAX_FAILED_INDEXES,
            "maxFailedIndexes is 1",
        ),
        "deadline": (
            lambda: explain(finished("Failed", "DeadlineExceeded", activeDeadlineSeconds=9)),
            Code.DEADLINE,
            "activeDeadlineSeconds (9 s)",
        ),
        "complete": (
            lambda: explain(finished("Complete", "CompletionsReached")),
            Code.COMPLETE,
            "succeeded",
        ),
        "success policy": (
            lambda: explain(finished("Complete", "SuccessPolicy", "Matched rules at index 0")),
            Code.SUCCESS_POLICY,
            "Matched rules at index 0",
        ),
        "FailureTarget waits for pods": (
            lambda: explain(finished("FailureTarget", "BackoffLimitExceeded"), deleted()),
            Code.FAILING,
            "waits for the end of pod p",
        ),
        "SuccessCriteriaMet waits for pods": (
            lambda: explain(finished("SuccessCriteriaMet", "SuccessPolicy"), deleted()),
            Code.SUCCEEDING,
            "waits for the end of pod p",
        ),
        "deleted, held by finalizers": (
            lambda: explain(
                msgspec.structs.replace(
                    job(deleted=True),
                    metadata=msgspec.structs.replace(
                        job(deleted=True).metadata, finalizers=("example.com/held",)
                    ),
                )
            ),
            Code.DELETING_FINALIZERS,
            "example.com/held",
        ),
        "deleted, waits for its pods": (
            lambda: explain(job(deleted=True), deleted()),
            Code.DELETING,
            "(1 pod left)",
        ),
    },
)
def test_each_situation_has_its_code(explanation: Any, code: Code, words: str) -> None:
    answer = explanation()
    assert (answer.finding.code, words in answer.finding.verdict) == (code, True), answer.finding


def test_restarts_use_up_the_back_off_limit() -> None:
    """behaviour A12.2: a limit of 3 allows two restarts."""
    limited = job(restart_policy="OnFailure", backoffLimit=3)
    answer = explain(limited, pod(**restarted("containerStatuses")))
    assert answer.budget == (
        "0 failures and 1 restart counted, backoffLimit 3: 1 more will not fail the Job"
    )


def test_a_job_that_ended_by_restarts_says_so() -> None:
    ended = finished("Failed", "BackoffLimitExceeded", restart_policy="OnFailure", backoffLimit=7)
    assert "restarted too often for backoffLimit 7" in explain(ended).finding.verdict


@pytest.mark.parametrize(
    ("reason", "note", "words"),
    [
        ("Unhealthy", "Liveness probe failed: no answer", "after its liveness probe failed"),
        ("Unhealthy", "Startup probe errored: no such file", "after its startup probe failed"),
        ("FailedPostStartHook", "PostStartHook failed", "after its postStart hook failed"),
    ],
)
def test_an_attempt_says_why_the_kubelet_killed_its_container(
    reason: str, note: str, words: str
) -> None:
    (attempt,) = pod_event(reason, note, ended(exit_code=137)).attempts
    assert attempt.how == f"container main: SIGKILL (exit code 137), {words}"


def test_a_readiness_probe_kills_nothing() -> None:
    answer = pod_event("Unhealthy", "Readiness probe failed: no", ended(exit_code=137))
    assert answer.attempts[0].how == "container main: SIGKILL (exit code 137)"
