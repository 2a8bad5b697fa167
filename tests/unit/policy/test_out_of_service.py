# SPDX-License-Identifier: Apache-2.0
"""When a lost node is declared out of service, and when no longer (KEP-6757, behaviour C9)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from refloat.api import selectors
from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.policy import out_of_service
from refloat.policy.failure_recovery import FailureRecoveryPolicy, TaintNodeOutOfService
from refloat.policy.out_of_service import Ignore, Lift, Reason, Set, Wait
from tests.unit.policy.made import at, text

UNREACHABLE: Object = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
DOWN: Object = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
OURS: Object = {**DOWN, "value": out_of_service.OURS}


def node(*taints: Object, ready: str = "Unknown", since: float | None = 100, **labels: str) -> Node:
    condition = {"type": "Ready", "status": ready}
    if since is not None:
        condition["lastTransitionTime"] = text(since)
    made = {
        "metadata": {"name": "n", "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [condition]},
    }
    return msgspec.convert(made, Node)


def pod(phase: str = "Running", *, name: str = "p", deleted: bool = False, owner: str = "") -> Pod:
    metadata: Object = {"name": name, "namespace": "default"}
    if deleted:
        metadata["deletionTimestamp"] = text(0)
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "uid": "u", "controller": True}]
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, Pod)


def policy(**how: Any) -> FailureRecoveryPolicy:
    nodes = selectors.parse_labels(how.pop("nodes", ""))
    rule = TaintNodeOutOfService("rules[0]", timedelta(minutes=10), nodes, **how)
    return FailureRecoveryPolicy(taint=(rule,))


def opted_in(pod: Pod) -> bool:
    return pod.metadata.name != "other"


def decide(
    on: Node, *pods: Pod, seconds: float = 1e6, terms: FailureRecoveryPolicy | None = None
) -> out_of_service.Decision:
    return out_of_service.decide(on, pods, terms or policy(), opted_in, now=at(seconds))


LOST = node(UNREACHABLE)


def test_a_lost_node_is_tainted_after_the_timeout() -> None:
    made = decide(LOST, pod(), seconds=699)
    assert isinstance(made, Wait)
    assert made.until == at(700)
    assert "unless it comes back" in made.text
    assert isinstance(decide(LOST, pod(), seconds=700), Set)


@pytest.mark.parametrize(
    ("on", "pods", "want"),
    [
        pytest.param(node(), (pod(),), Ignore(Reason.REACHABLE), id="it is reachable"),
        pytest.param(
            node({**UNREACHABLE, "key": "node.kubernetes.io/not-ready"}, ready="False"),
            (pod(),),
            Ignore(Reason.REACHABLE),
            id="it says itself that it is not ready",
        ),
        pytest.param(
            node(UNREACHABLE, DOWN), (pod(),), Ignore(Reason.TAINTED), id="somebody did it"
        ),
        pytest.param(node(UNREACHABLE, OURS), (pod(),), Ignore(Reason.TAINTED), id="Refloat did"),
        pytest.param(
            node(UNREACHABLE, since=None),
            (pod(),),
            Ignore(Reason.UNKNOWN_SINCE),
            id="nobody says since when",
        ),
        pytest.param(LOST, (), Ignore(Reason.NOTHING_TO_FREE), id="it has no pods"),
        pytest.param(
            LOST,
            (pod("Succeeded"), pod(owner="DaemonSet")),
            Ignore(Reason.NOTHING_TO_FREE),
            id="none that hangs",
        ),
        pytest.param(
            LOST,
            (pod(), pod(name="other")),
            Ignore(Reason.NOT_OPTED_IN, "default/other"),
            id="one pod did not opt in",
        ),
    ],
)
def test_it_is_left_alone(on: Node, pods: tuple[Pod, ...], want: Ignore) -> None:
    assert decide(on, *pods) == want
    assert want.text


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param((pod(), pod(name="other", owner="DaemonSet")), id="of a DaemonSet"),
        pytest.param((pod(), pod("Failed", name="other")), id="one that is over"),
        pytest.param((pod("Failed", deleted=True),), id="over, but it hangs"),
    ],
)
def test_whose_opt_in_is_not_needed(pods: tuple[Pod, ...]) -> None:
    assert isinstance(decide(LOST, *pods), Set)


def test_a_rule_may_be_for_all_pods_of_some_nodes() -> None:
    terms = policy(nodes="pool=spot", all_pods=True)
    here = node(UNREACHABLE, pool="spot")
    assert isinstance(decide(here, pod(name="other"), terms=terms), Set)
    assert decide(LOST, pod(), terms=terms) == Ignore(Reason.NO_RULE)


def test_without_a_condition_the_taint_says_since_when() -> None:
    on = node({**UNREACHABLE, "timeAdded": text(50)}, since=None)
    assert isinstance(decide(on, pod(), seconds=649), Wait)
    assert isinstance(decide(on, pod(), seconds=650), Set)


def test_the_taint_goes_when_the_node_is_ready_again() -> None:
    assert decide(node(OURS, ready="True"), pod()) == Lift()


def test_it_stays_while_the_node_is_not_ready() -> None:
    assert decide(node(OURS, ready="False")) == Ignore(Reason.REACHABLE)


def test_the_taint_of_somebody_else_stays() -> None:
    assert decide(node(DOWN, ready="True")) == Ignore(Reason.REACHABLE)


def test_only_its_own_taint_is_added_and_removed() -> None:
    other = Taint(key="dedicated", value="x", effect="NoSchedule")
    made = out_of_service.tainted((other,), now=text(7))
    key = "node.kubernetes.io/out-of-service"
    assert made[1] == Taint(key, out_of_service.OURS, "NoExecute", text(7))
    assert out_of_service.tainted(made, now=text(8)) == made
    assert out_of_service.lifted(made) == (other,)
    theirs = Taint(key=key, value="nodeshutdown", effect="NoExecute")
    assert out_of_service.tainted((theirs,), now=text(7)) == (theirs,)
    assert out_of_service.lifted((theirs,)) == (theirs,)
