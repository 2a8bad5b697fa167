# SPDX-License-Identifier: Apache-2.0
"""What a user is told of a pod that hangs, in the words of the decisions themselves."""

from typing import Any

import msgspec
import pytest

from refloat.api import self_fence
from refloat.api.core import Node, Pod
from refloat.api.events import Event
from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY
from refloat.config import load
from refloat.explain import pod as pods
from refloat.explain import surroundings
from refloat.explain.account import Point
from refloat.explain.actors import NONE_EVER, Outlook
from refloat.explain.surroundings import Surroundings
from refloat.policy import zombie
from tests.unit.policy.made import at, text

NONE = Outlook(text=NONE_EVER)
ON = {FAILURE_RECOVERY_POLICY: True}


def stuck(**metadata: Any) -> Pod:
    """Asked to go at second 70 with a grace of 30."""
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
    made = {"metadata": {"name": "n1"}, "spec": {"taints": list(taints)}}
    return msgspec.convert({**made, "status": {"conditions": [condition]}}, Node)


LOST = node({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": text(5)})


def configuration(gates: dict[str, bool] = ON, **policy: Any) -> load.Configuration:
    document = {
        "apiVersion": load.API_VERSION,
        "kind": load.KIND,
        "featureGates": gates,
        "failureRecoveryPolicy": policy,
    }
    return load.parse(document)


def told(of: Pod, about: str, **around: Any) -> str:
    defaults: dict[str, Any] = {"now": at(110), "node": LOST, "recovery": Outlook(configuration())}
    account = pods.explain(of, Surroundings(**(defaults | around)))
    return " | ".join(point.text for point in account.points if point.about == about)


def test_the_time_of_the_forced_end_is_told_with_who_allowed_it() -> None:
    said = told(stuck(), "recovery")
    assert "it will be made to fail at" in said
    assert text(160) in said
    assert zombie.ANNOTATIONS[0] in said
    assert told(stuck(), "but") == ""


def test_a_pod_that_is_due_waits_for_the_silence_of_its_node_in_plain_words() -> None:
    """explain does not watch leases, so it does not say that the pod is forced now."""
    outlook = Outlook(configuration(nodeGracePeriod="90s"))
    said = told(stuck(), "recovery", now=at(170), recovery=outlook)
    assert said.startswith("it will be made to fail later unless its node comes back")
    assert said.endswith(
        "awaited: the Lease of its node must stay unchanged for 1m30s,"
        " by the clock of the Refloat that acts"
    )


def test_a_taint_on_a_ready_node_is_told_not_to_be_evidence() -> None:
    alive = node(*(msgspec.to_builtins(each) for each in LOST.spec.taints or ()), ready="True")
    assert told(stuck(), "recovery", node=alive) == (
        "nothing is forced: its node does not count as down, whatever its taints say:"
        " its Ready condition is True"
    )
    assert told(stuck(), "node", node=alive).startswith("n1: ready since")


def test_the_missing_annotation_is_named() -> None:
    said = told(stuck(annotations={}), "recovery")
    assert said.startswith("nothing is forced: nobody opted in")
    assert zombie.ANNOTATIONS[0] in said


def test_the_gate_that_is_off_is_named() -> None:
    said = told(stuck(), "but", recovery=Outlook(configuration({})))
    assert said == "the gate FailureRecoveryPolicy is off, so nothing of this happens"


def test_report_mode_is_named() -> None:
    said = told(stuck(), "but", recovery=Outlook(configuration(mode="Report")))
    assert said == "the mode is Report, so it is told and nothing is touched"


def test_what_holds_a_pod_that_is_due_is_told() -> None:
    why = "the budget of 5 pods in 1m0s is used up"
    held = [Event(reason="FailureRecoveryHeld", note=why, deprecated_last_timestamp=text(165))]
    assert told(stuck(), "held", now=at(170), of_node=held).endswith(why)
    assert told(stuck(), "held", now=at(110), of_node=held) == ""


def test_without_a_refloat_that_is() -> None:
    assert told(stuck(), "recovery", recovery=NONE) == NONE.text


def test_a_pod_that_hangs_on_a_living_node_is_looked_for_there() -> None:
    """needs 13: reported, never acted on."""
    alive = node(ready="True")
    assert told(stuck(), "recovery", node=alive).startswith("nothing is forced: its node is not")
    assert told(stuck(), "hint", node=alive).startswith("its node is alive, so look there")
    assert told(stuck(), "hint", node=alive, now=at(90)) == ""


def test_finalizers_that_keep_the_object_are_named() -> None:
    said = told(stuck(finalizers=["batch.kubernetes.io/job-tracking"]), "finalizers")
    assert said == "the object stays until these are gone: batch.kubernetes.io/job-tracking"


def test_the_deletion_and_the_node_are_told_with_their_times() -> None:
    assert told(stuck(), "deletion") == (
        f"asked for at {_clock(70)} (40s ago); its grace of 30s was over at {_clock(100)} (10s ago)"
    )
    assert told(stuck(), "node") == (
        f"n1: unreachable since {_clock(0)} (1m50s ago) (NodeStatusUnknown)"
    )
    assert told(stuck(), "node", node=None) == "n1 does not exist"


def test_of_a_node_that_the_asker_may_not_read_nothing_is_claimed() -> None:
    hidden = {"node": None, "node_hidden": True}
    assert told(stuck(), "node", **hidden) == "n1 (you may not read it)"
    assert told(stuck(), "recovery", **hidden) == surroundings.NODE_HIDDEN
    assert told(stuck(), "recovery", recovery=NONE, **hidden) == NONE.text
    for about in ("but", "held", "hint"):
        assert told(stuck(), about, **hidden) == ""


def test_the_process_that_acts_is_named() -> None:
    actor = Point("actor", "manager m1 leads")
    assert told(stuck(), "actor", recovery=Outlook(configuration(), points=(actor,))) == actor.text


@pytest.mark.parametrize(
    ("tolerations", "want"),
    [
        pytest.param([], "it is deleted soon, unless its node comes back", id="none"),
        pytest.param(
            [{"operator": "Exists"}],
            "it stays: it tolerates node.kubernetes.io/unreachable for ever",
            id="for ever",
        ),
        pytest.param(
            [{"operator": "Exists", "tolerationSeconds": 300}],
            "it is deleted at about {} (in 3m15s), unless its node comes back",
            id="for five minutes",
        ),
    ],
)
def test_a_pod_on_a_lost_node_is_told_when_it_goes(tolerations: list[Object], want: str) -> None:
    """behaviour C2.3-C2.5"""
    made = {"nodeName": "n1", "tolerations": tolerations}
    running = msgspec.convert({"spec": made, "status": {"phase": "Running"}}, Pod)
    assert told(running, "next") == want.format(_clock(305))


def test_a_running_pod_on_a_living_node_has_nothing_to_await() -> None:
    running = msgspec.convert({"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}, Pod)
    account = pods.explain(running, Surroundings(now=at(0), node=node(ready="True")))
    assert [point.about for point in account.points] == ["phase", "node"]


def test_a_promise_of_its_node_is_told() -> None:
    condition = {
        "type": self_fence.CONDITION,
        "status": "True",
        "message": self_fence.write(self_fence.Promise(380, 5, "ab")),
    }
    armed = msgspec.convert(
        {"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "conditions": [condition]}}, Pod
    )
    want = "its node ends it by itself 380s after it last reached the API"
    listed = {"": self_fence.Promise(380, 5)}
    assert told(armed, "self-fence", promises=listed) == want
    assert told(armed, "self-fence", promises={}) == ""
    hidden = "; by the pod's condition, because you may not read the Lease of the node"
    assert told(armed, "self-fence", promises=None) == want + hidden


def test_a_forced_end_is_told_in_the_words_of_its_condition() -> None:
    condition = {"type": zombie.CONDITION, "status": "True", "message": "Pod forcefully terminated"}
    failed = msgspec.convert({"status": {"phase": "Failed", "conditions": [condition]}}, Pod)
    assert told(failed, "forced") == "Pod forcefully terminated"


def test_the_last_events_are_told_and_no_more() -> None:
    made = [Event(reason=f"R{i}", note="said", deprecated_last_timestamp=text(i)) for i in range(9)]
    account = pods.explain(stuck(), Surroundings(now=at(9), node=LOST, events=made[::-1]))
    said = [point.text for point in account.points if point.about == "event"]
    assert [each.split()[-2] for each in said] == ["R4:", "R5:", "R6:", "R7:", "R8:"]


def _clock(seconds: float) -> str:
    return text(seconds).partition("T")[2]
