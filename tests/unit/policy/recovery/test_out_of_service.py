# SPDX-License-Identifier: Apache-2.0
"""When a lost node is declared out of service, and when no longer (KEP-6757, behaviour C9)."""

from datetime import timedelta
from functools import partial
from typing import Any

from refloat.api import selectors
from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.policy.recovery import out_of_service
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy, TaintNodeOutOfService
from refloat.policy.recovery.node_evidence import UNWATCHED, LeaseSilence
from refloat.policy.recovery.out_of_service import (
    AddTaint,
    Awaited,
    Ignore,
    Reason,
    RemoveTaint,
    TaintLater,
)
from tests.cases import cases
from tests.unit.policy import builders
from tests.unit.policy.builders import at, text

MIRROR = {"kubernetes.io/config.mirror": "hash"}
UNREACHABLE: Object = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
DOWN: Object = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
SILENT = LeaseSilence(1000.0)
OURS: Object = {**DOWN, "value": out_of_service.OURS}


node = partial(builders.node, since=100)
pod = partial(builders.pod, "u", name="p", namespace="default")
STATIC = pod(name="other", owner="Node", annotations=MIRROR)


def policy(**how: Any) -> FailureRecoveryPolicy:
    nodes = selectors.parse_labels(how.pop("nodes", ""))
    rule = TaintNodeOutOfService("rules[0]", timedelta(minutes=10), nodes, **how)
    return FailureRecoveryPolicy(taint=(rule,))


def opted_in(pod: Pod) -> bool:
    return pod.metadata.name != "other"


def decide(
    on: Node,
    *pods: Pod,
    seconds: float = 1e6,
    terms: FailureRecoveryPolicy | None = None,
    silence: LeaseSilence = SILENT,
) -> out_of_service.Decision:
    terms = terms or policy()
    return out_of_service.decide(on, pods, terms, opted_in, silence=silence, now=at(seconds))


LOST = node(UNREACHABLE)


def test_a_lost_node_is_tainted_after_the_timeout() -> None:
    decision = decide(LOST, pod(), seconds=699)
    assert isinstance(decision, TaintLater)
    assert decision.until == at(700)
    assert "unless it comes back" in decision.text
    assert isinstance(decide(LOST, pod(), seconds=700), AddTaint)


@cases(
    "on pods want",
    {
        "it is reachable": (node(), (pod(),), Ignore(Reason.REACHABLE)),
        "it says itself that it is not ready": (
            node({**UNREACHABLE, "key": "node.kubernetes.io/not-ready"}, ready="False"),
            (pod(),),
            Ignore(Reason.REACHABLE),
        ),
        "somebody did it": (node(UNREACHABLE, DOWN), (pod(),), Ignore(Reason.TAINTED)),
        "Refloat did": (node(UNREACHABLE, OURS), (pod(),), Ignore(Reason.TAINTED)),
        "nobody says since when": (
            node(UNREACHABLE, since=None),
            (pod(),),
            Ignore(Reason.UNKNOWN_SINCE),
        ),
        "it has no pods": (LOST, (), Ignore(Reason.NOTHING_TO_FREE)),
        "none that hangs": (
            LOST,
            (pod("Succeeded"), pod(owner="DaemonSet"), STATIC),
            Ignore(Reason.NOTHING_TO_FREE),
        ),
        "one pod did not opt in": (
            LOST,
            (pod(), pod(name="other")),
            Ignore(Reason.NOT_OPTED_IN, "default/other"),
        ),
    },
)
def test_it_is_left_alone(on: Node, pods: tuple[Pod, ...], want: Ignore) -> None:
    assert decide(on, *pods) == want
    assert want.text


@cases(
    "pods",
    {
        "of a DaemonSet": (pod(), pod(name="other", owner="DaemonSet")),
        "a mirror pod, which shows a static pod of the node": (pod(), STATIC),
        "one that is over": (pod(), pod("Failed", name="other")),
        "over, but it hangs": (pod("Failed", deleted=0),),
    },
)
def test_whose_opt_in_is_not_needed(pods: tuple[Pod, ...]) -> None:
    assert isinstance(decide(LOST, *pods), AddTaint)


@cases(
    "claimed",
    {
        "the annotation without the owner": pod(name="other", annotations=MIRROR),
        "the owner without the annotation": pod(name="other", owner="Node"),
        "another owner": pod(name="other", owner="Job", annotations=MIRROR),
    },
)
def test_a_pod_that_only_claims_to_be_a_mirror_pod_must_have_opted_in(claimed: Pod) -> None:
    assert decide(LOST, pod(), claimed) == Ignore(Reason.NOT_OPTED_IN, "default/other")


def test_a_forged_mirror_pod_neither_frees_nor_blocks_pods_of_others() -> None:
    """A tenant can write annotation and owner, and gains nothing by this."""
    stranger = pod(name="other")
    assert decide(LOST, STATIC) == Ignore(Reason.NOTHING_TO_FREE)
    assert decide(LOST, STATIC, stranger) == Ignore(Reason.NOT_OPTED_IN, "default/other")


@cases(
    "on silence reason",
    {
        "it is Ready": (node(UNREACHABLE, ready="True"), SILENT, Reason.READY),
        "it has no lease": (LOST, LeaseSilence(1000.0, exists=False), Reason.NO_LEASE),
    },
)
def test_a_taint_alone_is_no_evidence(on: Node, silence: LeaseSilence, reason: Reason) -> None:
    terms = policy(nodes="", all_pods=False)
    assert decide(on, pod(), terms=terms, silence=silence) == Ignore(reason)


def test_its_lease_must_be_silent_for_the_grace_period() -> None:
    decision = decide(LOST, pod(), seconds=1000, silence=LeaseSilence(10.0))
    assert isinstance(decision, TaintLater)
    assert (decision.until, decision.awaited) == (at(1040), Awaited.LEASE)
    assert "the Lease of the node must stay unchanged for 50s" in decision.text
    decision = decide(LOST, pod(), seconds=650, silence=LeaseSilence(10.0))
    assert isinstance(decision, TaintLater)
    assert (decision.until, decision.awaited) == (at(700), Awaited.TIMEOUT)
    assert isinstance(decide(LOST, pod(), seconds=1000, silence=LeaseSilence(50.0)), AddTaint)


def test_where_leases_are_not_watched_what_is_due_waits() -> None:
    decision = decide(LOST, pod(), seconds=1000, silence=UNWATCHED)
    assert isinstance(decision, TaintLater)
    assert (decision.until, decision.awaited) == (None, Awaited.LEASE)
    decision = decide(LOST, pod(), seconds=699, silence=UNWATCHED)
    assert isinstance(decision, TaintLater)
    assert (decision.until, decision.awaited) == (at(700), Awaited.TIMEOUT)


def test_a_rule_may_be_for_all_pods_of_some_nodes() -> None:
    terms = policy(nodes="pool=spot", all_pods=True)
    here = node(UNREACHABLE, labels={"pool": "spot"})
    assert isinstance(decide(here, pod(name="other"), terms=terms), AddTaint)
    assert decide(LOST, pod(), terms=terms) == Ignore(Reason.NO_RULE)


def test_without_the_time_of_a_condition_the_taint_says_since_when() -> None:
    on = node({**UNREACHABLE, "timeAdded": text(50)}, since=None)
    assert isinstance(decide(on, pod(), seconds=649), TaintLater)
    assert isinstance(decide(on, pod(), seconds=650), AddTaint)


def test_the_taint_goes_when_the_node_is_ready_again() -> None:
    assert decide(node(OURS, ready="True"), pod()) == RemoveTaint()


def test_it_stays_while_the_node_is_not_ready() -> None:
    assert decide(node(OURS, ready="False")) == Ignore(Reason.REACHABLE)


def test_the_taint_of_somebody_else_stays() -> None:
    assert decide(node(DOWN, ready="True")) == Ignore(Reason.REACHABLE)


def test_only_its_own_taint_is_added_and_removed() -> None:
    other = Taint(key="dedicated", value="x", effect="NoSchedule")
    body = out_of_service.add_own_taint((other,), now=text(7))
    key = "node.kubernetes.io/out-of-service"
    assert body[1] == Taint(key, out_of_service.OURS, "NoExecute", text(7))
    assert out_of_service.add_own_taint(body, now=text(8)) == body
    assert out_of_service.remove_own_taint(body) == (other,)
    theirs = Taint(key=key, value="nodeshutdown", effect="NoExecute")
    assert out_of_service.add_own_taint((theirs,), now=text(7)) == (theirs,)
    assert out_of_service.remove_own_taint((theirs,)) == (theirs,)
