# SPDX-License-Identifier: Apache-2.0
"""What explain says of a node, its pods, and the actions of Refloat there."""

from typing import Any

import msgspec

from refloat.api.core import Node, Pod
from refloat.explain import node as nodes
from refloat.explain import node_state
from refloat.explain.actors import Outlook
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Evidence, Finding
from refloat.policy.recovery import zombie
from refloat.policy.recovery.force_eviction import PROGRESS
from tests.cases import cases
from tests.unit.explain.test_pod import LOST, NONE, configuration, evidence, node, stuck
from tests.unit.policy.builders import at, text

RULE = {"taintNodeOutOfService": {"unreachableNodeTimeout": "10m"}}


def explain(of: Node, *pods: Pod, **context: Any) -> Finding:
    defaults: dict[str, Any] = {"now": at(110), "recovery": Outlook(configuration())}
    return nodes.explain(of, pods, ExplainContext(**(defaults | context)))


def test_each_stuck_pod_has_its_decision() -> None:
    finding = explain(LOST, stuck())
    assert finding.code == Code.NODE_SILENT
    assert "1 deleted pods hang there" in finding.verdict
    (decision,) = evidence(finding, "pod ml/train-0")
    assert text(160) in decision
    assert evidence(finding, "pods") == ["1 Terminating"]


def test_many_stuck_pods_are_counted() -> None:
    finding = explain(LOST, *(stuck(name=f"p{i}") for i in range(25)))
    assert len(evidence(finding, "pod ml/")) == nodes.MAX_PODS
    assert "5 more are being deleted" in evidence(finding, "pods")


def test_a_rule_for_nodes_has_its_time() -> None:
    finding = explain(LOST, stuck(), recovery=Outlook(configuration(rules=[RULE])))
    (line,) = evidence(finding, "out of service")
    assert "node.kubernetes.io/out-of-service" in line
    assert text(600) in line


def test_the_pod_that_keeps_a_node_in_service_is_named() -> None:
    other = msgspec.convert(
        {
            "metadata": {"name": "db", "namespace": "prod"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        },
        Pod,
    )
    finding = explain(LOST, stuck(), other, recovery=Outlook(configuration(rules=[RULE])))
    (line,) = evidence(finding, "out of service")
    assert line.endswith("prod/db")


def test_without_a_rule_for_nodes_there_is_no_line_about_it() -> None:
    assert evidence(explain(LOST, stuck()), "out of service") == []


def test_health_names_the_last_word_of_the_kubelet() -> None:
    assert node_state.health(node(ready="True"), at(10)) == "ready, since 10s"
    assert node_state.health(node(ready="False"), at(10)).startswith(
        "not ready, but its kubelet reports"
    )
    assert node_state.health(LOST, at(10)).startswith("lost: the kubelet has stopped reporting")
    assert node_state.health(Node(), at(10)) == "has not reported yet"


@cases(
    "of code",
    {
        "ready": (node(ready="True"), Code.NODE_READY),
        "the kubelet says not ready": (node(ready="False"), Code.NODE_NOT_READY),
        "silent": (LOST, Code.NODE_SILENT),
        "never reported": (Node(), Code.NODE_UNKNOWN),
        "cordoned": (
            msgspec.structs.replace(
                node(ready="True"), spec=msgspec.convert({"unschedulable": True}, type(Node().spec))
            ),
            Code.NODE_CORDONED,
        ),
    },
)
def test_each_state_of_a_node_has_its_code(of: Node, code: Code) -> None:
    assert explain(of).code == code


def test_a_cluster_without_refloat_is_named_as_such() -> None:
    assert evidence(explain(LOST, stuck(), recovery=NONE), "failure recovery") == [NONE.text]


def test_a_living_node_ends_its_pods_itself() -> None:
    (line,) = evidence(explain(node(ready="True"), stuck()), "pod ml/train-0")
    assert line == zombie.Ignore(zombie.Reason.NODE_REACHABLE).text


def evicted(progress: str, *taints: dict[str, str]) -> Node:
    annotations = {PROGRESS: progress} if progress else {}
    body = {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"taints": [*taints]}}
    return msgspec.convert(body, Node)


REQUEST = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
EVICTING = f'{{"step": "Evicting", "started": "{text(100)}"}}'
CLEARED = '{"step": "VolumesCleared"}'


@cases(
    "of want",
    {
        "just requested": (evicted("", REQUEST), "its Ready condition must"),
        "volumes cleared": (evicted(CLEARED, REQUEST), "its volumes are cleared"),
        "evicting": (evicted(EVICTING, REQUEST), "1 are left"),
        "withdrawn": (evicted(EVICTING), "the taint that asked for it is gone"),
    },
)
def test_force_eviction_has_its_step(of: Node, want: str) -> None:
    running = msgspec.convert({"metadata": {"name": "p"}, "status": {"phase": "Running"}}, Pod)
    finding = explain(of, running, force_eviction=Outlook(configuration()))
    assert finding.code == Code.NODE_FORCE_EVICTION
    (step,) = finding.next
    assert want in step.text
    assert step.component == "force eviction"


def test_a_force_eviction_that_no_process_carries_out_names_none() -> None:
    finding = explain(evicted("", REQUEST), force_eviction=NONE)
    assert [(each.text, each.component) for each in finding.next] == [(NONE.text, "")]
    actor = Evidence("actor", "manager m1 leads")
    acting = Outlook(configuration(), points=(actor,))
    assert actor in explain(evicted("", REQUEST), force_eviction=acting).evidence
