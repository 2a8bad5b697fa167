# SPDX-License-Identifier: Apache-2.0
"""What explain says of a pod that hangs, in the words of the decisions themselves."""

from typing import Any

import msgspec

from refloat.api import self_fence
from refloat.api.core import Node, Pod, PodStatus
from refloat.api.events import Event, ObjectReference
from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY
from refloat.config import load
from refloat.explain import pod as pods
from refloat.explain.actors import NONE_EVER, Outlook
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Evidence, Finding
from refloat.policy.recovery import zombie
from tests.cases import cases
from tests.unit.policy.builders import at, text

NONE = Outlook(text=NONE_EVER)
ON = {FAILURE_RECOVERY_POLICY: True}


def stuck(**metadata: Any) -> Pod:
    """Deleted at second 70 with a grace period of 30 s."""
    meta = {
        "name": "train-0",
        "namespace": "ml",
        "annotations": {zombie.ANNOTATIONS[0]: "true"},
        "deletionTimestamp": text(100),
        "deletionGracePeriodSeconds": 30,
        **metadata,
    }
    status = {"phase": "Running"}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}, Pod)


def node(*taints: Object, ready: str = "Unknown") -> Node:
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "NodeStatusUnknown",
        "lastTransitionTime": text(0),
    }
    body = {"metadata": {"name": "n1"}, "spec": {"taints": list(taints)}}
    return msgspec.convert({**body, "status": {"conditions": [condition]}}, Node)


LOST = node({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": text(5)})


def configuration(gates: dict[str, bool] = ON, **policy: Any) -> load.Configuration:
    document = {
        "apiVersion": load.API_VERSION,
        "kind": load.KIND,
        "featureGates": gates,
        "failureRecoveryPolicy": policy,
    }
    return load.parse(document)


def event(reason: str, note: str, seconds: float, kind: str, name: str) -> Event:
    return Event(
        reason=reason,
        note=note,
        deprecated_last_timestamp=text(seconds),
        regarding=ObjectReference(kind=kind, name=name),
    )


def explain(pod: Pod, **context: Any) -> Finding:
    defaults: dict[str, Any] = {
        "now": at(110),
        "nodes": {"n1": LOST},
        "promises": {"n1": {}},
        "recovery": Outlook(configuration()),
    }
    return pods.explain(pod, ExplainContext(**(defaults | context)))


def evidence(finding: Finding, source: str) -> list[str]:
    return [each.text for each in finding.evidence if each.source.startswith(source)]


def test_the_time_of_the_forced_end_comes_with_the_trigger() -> None:
    finding = explain(stuck())
    assert finding.code == Code.TERMINATING_RECOVERY
    assert finding.next[0].at == at(160)
    assert finding.next[0].component == "zombie recovery"
    assert zombie.ANNOTATIONS[0] in finding.verdict


def test_a_pod_that_is_due_waits_for_the_silence_of_its_node() -> None:
    """explain does not watch Leases, so it does not say that the pod is forced now."""
    outlook = Outlook(configuration(nodeGracePeriod="90s"))
    finding = explain(stuck(), now=at(170), recovery=outlook)
    assert finding.next[0].at is None
    (decision,) = evidence(finding, "failure recovery")
    assert "must stay unchanged for 1m30s" in decision


def test_a_taint_on_a_ready_node_is_no_evidence() -> None:
    alive = node(*(msgspec.to_builtins(each) for each in LOST.spec.taints or ()), ready="True")
    finding = explain(stuck(), nodes={"n1": alive}, now=at(150))
    assert finding.code == Code.TERMINATING_OVERDUE
    assert "node n1 lives" in finding.verdict
    assert evidence(finding, "node/n1")[0].startswith("ready, since")


def test_the_missing_annotation_is_named_with_the_command_that_adds_it() -> None:
    finding = explain(stuck(annotations={}))
    assert finding.code == Code.TERMINATING_LOST_NODE
    assert zombie.ANNOTATIONS[0] in finding.verdict
    assert finding.commands[0].command == (
        f"kubectl annotate pod train-0 -n ml {zombie.ANNOTATIONS[0]}=true"
    )


@cases(
    "outlook want",
    {
        "the gate is off": (Outlook(configuration({})), "the gate FailureRecoveryPolicy is off"),
        "recovery only reports": (
            Outlook(configuration(mode="Report")),
            "the mode is Report: recovery reports and changes nothing",
        ),
        "no Refloat runs": (NONE, NONE_EVER),
    },
)
def test_the_reason_why_nothing_acts_is_named(outlook: Outlook, want: str) -> None:
    finding = explain(stuck(), recovery=outlook)
    assert finding.code == Code.TERMINATING_LOST_NODE
    assert finding.verdict.endswith(want)
    assert "a person acts" in finding.next[0].text


def test_what_holds_a_pod_that_is_due_is_evidence() -> None:
    why = "the budget of 5 pods in 1m0s is used up"
    events = {"Node//n1": [event("FailureRecoveryHeld", why, 165, "Node", "n1")]}
    (line,) = evidence(explain(stuck(), now=at(170), events=events), "event node/n1")
    assert line.endswith(why)


def test_a_pod_that_hangs_on_a_living_node_is_looked_for_there() -> None:
    """needs 13: reported, never acted on."""
    alive = {"n1": node(ready="True")}
    late = explain(stuck(), nodes=alive)
    assert late.code == Code.TERMINATING
    late = explain(stuck(), nodes=alive, now=at(120))
    assert late.code == Code.TERMINATING_OVERDUE
    assert late.commands[0].text == "look at the node: the kubelet's log, the containers"
    in_time = explain(stuck(), nodes=alive, now=at(90))
    assert in_time.code == Code.TERMINATING
    assert in_time.next[0].at == at(100)


def ended(*finalizers: str) -> Pod:
    pod = stuck(finalizers=list(finalizers))
    return msgspec.structs.replace(pod, status=PodStatus(phase="Failed"))


def test_finalizers_that_keep_an_ended_pod_are_named() -> None:
    finding = explain(ended("batch.kubernetes.io/job-tracking", "example.com/held"))
    assert finding.code == Code.TERMINATING_FINALIZERS
    assert "the finalizers example.com/held keep its object" in finding.verdict


def test_an_ended_pod_with_the_jobs_own_finalizer_waits_to_be_counted() -> None:
    assert explain(ended("batch.kubernetes.io/job-tracking")).code == Code.UNCOUNTED


def test_the_deletion_and_the_node_come_with_their_times() -> None:
    finding = explain(stuck())
    assert evidence(finding, "pod/train-0 metadata.deletionTimestamp") == [
        "deleted 40s ago with a grace period of 30 s"
    ]
    assert evidence(finding, "node/n1") == [
        "lost: the kubelet has stopped reporting, since 1m50s (NodeStatusUnknown)"
    ]


def test_the_pod_of_a_node_that_does_not_exist_is_removed_by_the_garbage_collector() -> None:
    finding = explain(stuck(), nodes={"n1": None})
    assert "no longer exists" in finding.verdict
    assert finding.next[0].component == "the pod garbage collector"


def test_of_a_node_that_is_not_readable_nothing_is_claimed() -> None:
    finding = explain(stuck(), nodes={}, now=at(170))
    assert finding.code == Code.TERMINATING_OVERDUE
    assert "may be lost" in finding.verdict
    assert finding.next == ()
    assert evidence(finding, "failure recovery") == []


def test_the_process_that_acts_is_evidence() -> None:
    actor = Evidence("actor", "manager m1 leads")
    finding = explain(stuck(), recovery=Outlook(configuration(), points=(actor,)))
    assert actor in finding.evidence


@cases(
    "tolerations want seconds",
    {
        "none": ([], "deletes the pod, unless the node returns first", None),
        "for ever": (
            [{"operator": "Exists"}],
            "the pod stays until its node returns, or a person acts",
            None,
        ),
        "for five minutes": (
            [{"operator": "Exists", "tolerationSeconds": 300}],
            "deletes the pod, unless the node returns first",
            305,
        ),
    },
)
def test_a_pod_on_a_lost_node_has_the_time_of_its_eviction(
    tolerations: list[Object], want: str, seconds: int | None
) -> None:
    """behaviour C2.3-C2.5"""
    spec = {"nodeName": "n1", "tolerations": tolerations}
    running = msgspec.convert({"spec": spec, "status": {"phase": "Running"}}, Pod)
    finding = explain(running)
    assert finding.code == Code.NODE_LOST
    (step,) = finding.next
    assert (step.text, step.at) == (want, None if seconds is None else at(seconds))


def test_a_running_pod_on_a_living_node_has_nothing_to_wait_for() -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    running = msgspec.convert({"spec": {"nodeName": "n1"}, "status": ready}, Pod)
    finding = explain(running, nodes={"n1": node(ready="True")})
    assert (finding.code, finding.next) == (Code.RUNNING, ())


def test_a_promise_of_the_node_is_evidence() -> None:
    condition = {
        "type": self_fence.CONDITION,
        "status": "True",
        "message": self_fence.write(self_fence.Promise(380, 5, "ab")),
    }
    armed = msgspec.convert(
        {"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "conditions": [condition]}}, Pod
    )
    want = "the node ends the pod by itself 380 s after it last reached the API"
    listed = {"n1": {"": self_fence.Promise(380, 5)}}
    assert evidence(explain(armed, promises=listed), "self-fence") == [want]
    assert evidence(explain(armed), "self-fence") == []
    (shown,) = evidence(explain(armed, promises={}), "self-fence")
    assert shown.startswith(f"{want}; the pod's condition shows this")


def test_a_forced_end_has_the_words_of_its_condition() -> None:
    condition = {"type": zombie.CONDITION, "status": "True", "message": "Pod forcefully terminated"}
    failed = msgspec.convert({"status": {"phase": "Failed", "conditions": [condition]}}, Pod)
    finding = explain(failed)
    assert "ForcedByRecovery" in finding.verdict
    assert any("Pod forcefully terminated" in each.text for each in finding.evidence)


def test_the_last_events_are_evidence_and_no_more() -> None:
    events = [event(f"R{i}", "note", i, "Pod", "train-0") for i in range(9)]
    finding = explain(stuck(), now=at(9), events={"Pod/ml/train-0": events[::-1]})
    lines = evidence(finding, "event pod/train-0")
    assert [each.partition(",")[0] for each in lines] == ["R4", "R5", "R6", "R7", "R8"]
