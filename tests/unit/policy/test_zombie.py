# SPDX-License-Identifier: Apache-2.0
"""What becomes of pods that hang on lost nodes (KEP-6757; behaviour E1, E3, C8)."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.api import selectors, self_fence
from refloat.api.coordination import Lease
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.policy import zombie
from refloat.policy.failure_recovery import Annotated, FailureRecoveryPolicy, TerminatePod
from refloat.policy.node_evidence import LeaseSilence
from refloat.policy.zombie import Awaited, Delete, Ignore, Reason, Terminate, Wait
from tests.unit.policy.made import at, text

TERMINATE, DELETE, REFLOAT = zombie.ANNOTATIONS
KEP_MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `node-a` "
    "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
)
SILENT = LeaseSilence(1000.0)
PROMISE = self_fence.Promise(380, 20, "b0-07")  # dead for sure after 404 s


def pod(
    phase: str = "Running",
    *,
    deleted: float | None = 100,
    grace: int = 30,
    node: str = "node-a",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    conditions: tuple[Object, ...] = (),
) -> Pod:
    """One that opted in by the KEP's annotation; its grace period is over at second 100."""
    metadata: Object = {
        "name": "pod-a",
        "namespace": "default",
        "annotations": {TERMINATE: "true"} if annotations is None else annotations,
        "labels": labels or {},
    }
    if deleted is not None:
        metadata |= {"deletionTimestamp": text(deleted), "deletionGracePeriodSeconds": grace}
    status = {"phase": phase, "conditions": list(conditions)}
    made = {"metadata": metadata, "spec": {"nodeName": node}, "status": status}
    return msgspec.convert(made, Pod)


def node(*keys: str, effect: str = "NoExecute", ready: str = "Unknown") -> Node:
    """`ready` is the status of its Ready condition; it has none if that is empty."""
    taints = [{"key": f"node.kubernetes.io/{key}", "effect": effect} for key in keys]
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    made = {
        "metadata": {"name": "node-a"},
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(made, Node)


LOST = node("unreachable")


ARMED: Object = {
    "type": self_fence.CONDITION,
    "status": "True",
    "message": self_fence.write(PROMISE),
}


def lease(listing: str | None) -> Lease:
    annotations = None if listing is None else {self_fence.LISTED: listing}
    return msgspec.convert({"metadata": {"name": "node-a", "annotations": annotations}}, Lease)


def forced(since: float | None = 160, reason: str = zombie.REASON) -> Object:
    made = {"type": zombie.CONDITION, "status": "True", "reason": reason}
    return made if since is None else {**made, "lastTransitionTime": text(since)}


def rule(number: int = 0, seconds: float = 300, **how: Any) -> TerminatePod:
    selected = selectors.parse_labels(how.pop("labels", "safe=true"))
    path = f"failureRecoveryPolicy.rules[{number}].terminatePod"
    return TerminatePod(path, selected, timedelta(seconds=seconds), **how)


def rules(*given: TerminatePod, **annotated: Any) -> FailureRecoveryPolicy:
    return FailureRecoveryPolicy(terminate=given, annotated=Annotated(**annotated))


def decide(
    stuck: Pod,
    seconds: float,
    on: Node | None = LOST,
    policy: FailureRecoveryPolicy | None = None,
    silence: LeaseSilence = SILENT,
    namespace: Mapping[str, str] | None = None,
    promise: self_fence.Promise | None = None,
) -> zombie.Decision:
    return zombie.decide(
        stuck,
        on,
        policy or FailureRecoveryPolicy(),
        namespace=namespace or {},
        silence=silence,
        now=at(seconds),
        promise=promise,
    )


# -- the KEP's flow


def test_a_zombie_is_terminated_a_minute_after_its_grace_period() -> None:
    made = decide(pod(), 160)
    assert isinstance(made, Terminate)
    assert made.message == KEP_MESSAGE
    assert made.stuck == timedelta(seconds=60)


def test_before_that_it_is_waited_for_exactly_that_time() -> None:
    """behaviour E1.6: the deletionTimestamp has the grace period in it."""
    made = decide(pod(), 159.999)
    assert isinstance(made, Wait)
    assert (made.until, made.awaited, made.then) == (at(160), Awaited.GRACE, "terminate")


def test_a_pod_that_is_pending_is_one_too() -> None:
    assert isinstance(decide(pod("Pending"), 160), Terminate)


@pytest.mark.parametrize(
    ("stuck", "on", "reason"),
    [
        pytest.param(pod(deleted=None), LOST, Reason.NOT_TERMINATING, id="it is not terminating"),
        pytest.param(pod("Failed"), LOST, Reason.ENDED, id="it has failed"),
        pytest.param(pod("Succeeded"), LOST, Reason.ENDED, id="it has succeeded"),
        pytest.param(pod("Unknown"), LOST, Reason.PHASE, id="its phase is none of the four"),
        pytest.param(pod(annotations={}), LOST, Reason.NOT_OPTED_IN, id="it has no annotation"),
        pytest.param(
            pod(annotations={TERMINATE: "True"}), LOST, Reason.NOT_OPTED_IN, id="not exactly true"
        ),
        pytest.param(
            pod(annotations={"safe-to-forcefully-terminate": "true"}),
            LOST,
            Reason.NOT_OPTED_IN,
            id="an annotation of another name",
        ),
        pytest.param(pod(), node(), Reason.NODE_REACHABLE, id="its node has no taint"),
        pytest.param(
            pod(), node("not-ready"), Reason.NODE_REACHABLE, id="its node says it is not ready"
        ),
        pytest.param(
            pod(), node("out-of-service"), Reason.NODE_REACHABLE, id="out of service only"
        ),
        pytest.param(pod(), None, Reason.NODE_GONE, id="its node is gone"),
        pytest.param(pod(node=""), None, Reason.NO_NODE, id="it is on no node"),
    ],
)
def test_it_is_left_alone_however_late_it_is(stuck: Pod, on: Node | None, reason: Reason) -> None:
    made = decide(stuck, 1e6, on)
    assert made == Ignore(reason)
    assert made.text


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_either_effect_of_the_taint_will_do(effect: str) -> None:
    """behaviour E4.7"""
    assert isinstance(decide(pod(), 160, node("unreachable", effect=effect)), Terminate)


@pytest.mark.parametrize("annotation", zombie.ANNOTATIONS)
def test_each_of_the_annotations_opts_in_and_is_named(annotation: str) -> None:
    made = decide(pod(annotations={annotation: "true"}), 160)
    assert isinstance(made, Terminate)
    assert made.message.endswith(f"(triggered by `{annotation} annotation`)")


@pytest.mark.parametrize(
    ("grace", "period", "want"),
    [(30, 60, "90s"), (0, 60, "60s"), (3600, 60, "3660s"), (30, 6, "36s"), (30, 0.5, "30s")],
)
def test_the_message_has_whole_seconds(grace: int, period: float, want: str) -> None:
    """KEP-6757, not the `1m0.00000003s` of behaviour E4.1."""
    policy = rules(period=timedelta(seconds=period))
    made = decide(pod(grace=grace), 1e5, policy=policy)
    assert isinstance(made, Terminate)
    assert f" after {want} grace period " in made.message


def test_the_default_period_is_shorter_where_all_waits_are() -> None:
    policy = FailureRecoveryPolicy(default_period=timedelta(seconds=6))
    assert isinstance(decide(pod(), 105, policy=policy), Wait)
    assert isinstance(decide(pod(), 106, policy=policy), Terminate)


# -- rules


def test_a_rule_selects_by_label_and_has_its_own_period() -> None:
    stuck = pod(annotations={}, labels={"safe": "true"})
    made = decide(stuck, 399, policy=rules(rule()))
    assert isinstance(made, Wait)
    assert made.until == at(400)
    made = decide(stuck, 400, policy=rules(rule()))
    assert isinstance(made, Terminate)
    assert made.message == (
        "Pod forcefully terminated after 330s grace period due to unreachable node `node-a` "
        "(triggered by `failureRecoveryPolicy.rules[0].terminatePod rule`)"
    )


def test_a_rule_does_not_take_pods_that_it_does_not_select() -> None:
    stuck = pod(annotations={}, labels={"safe": "false"})
    assert decide(stuck, 1e6, policy=rules(rule())) == Ignore(Reason.NOT_OPTED_IN)


def test_the_first_rule_that_matches_wins() -> None:
    stuck = pod(annotations={}, labels={"safe": "true", "app": "x"})
    both = (rule(0, 500, labels="app=y"), rule(1, 300), rule(2, 100, labels="app=x"))
    made = decide(stuck, 399, policy=rules(*both))
    assert isinstance(made, Wait)
    assert made.trigger.name == "failureRecoveryPolicy.rules[1].terminatePod rule"


def test_a_rule_comes_before_the_annotation() -> None:
    """So that an annotation cannot get round what a rule asks for."""
    stuck = pod(labels={"safe": "true"})
    assert isinstance(decide(stuck, 200, policy=rules(rule())), Wait)
    fenced = rules(rule(require_self_fence=True))
    assert decide(stuck, 1e6, policy=fenced) == Ignore(Reason.NOT_ARMED)


def test_the_annotation_is_heeded_only_where_the_namespace_is_selected() -> None:
    policy = rules(namespaces=selectors.parse_labels("team=batch"))
    assert decide(pod(), 160, policy=policy) == Ignore(Reason.NAMESPACE)
    assert isinstance(decide(pod(), 160, policy=policy, namespace={"team": "batch"}), Terminate)


def test_rules_hold_in_every_namespace() -> None:
    policy = rules(rule(), namespaces=selectors.NOTHING)
    assert isinstance(decide(pod(labels={"safe": "true"}), 1000, policy=policy), Terminate)


# -- pods that have ended


AFTER_10M = rules(delete_after=timedelta(minutes=10))


@pytest.mark.parametrize(
    ("stuck", "want"),
    [
        pytest.param(pod("Failed", conditions=(forced(),)), 760, id="since Refloat made it fail"),
        pytest.param(
            pod("Failed", conditions=(forced(reason="KueueForcefullyDeleted", since=None),)),
            700,
            id="Kueue did, which notes no time (E1.10): since the deletion",
        ),
        pytest.param(pod("Succeeded"), 700, id="it ended by itself: since the deletion"),
    ],
)
def test_it_is_deleted_by_force_after_a_while(stuck: Pod, want: float) -> None:
    made = decide(stuck, want - 1, policy=AFTER_10M)
    assert isinstance(made, Wait)
    assert (made.until, made.awaited, made.then) == (at(want), Awaited.DELETE_AFTER, "delete")
    assert isinstance(decide(stuck, want, policy=AFTER_10M), Delete)


@pytest.mark.parametrize(
    ("stuck", "on", "reason"),
    [
        pytest.param(pod("Failed", grace=0), LOST, Reason.HELD, id="finalizers hold it"),
        pytest.param(pod("Failed"), node(), Reason.NODE_REACHABLE, id="its node is back"),
        pytest.param(pod("Failed"), None, Reason.NODE_GONE, id="its node is gone"),
        pytest.param(
            pod("Failed", annotations={}), LOST, Reason.NOT_OPTED_IN, id="nobody opted in"
        ),
    ],
)
def test_it_is_not_deleted(stuck: Pod, on: Node | None, reason: Reason) -> None:
    assert decide(stuck, 1e6, on, AFTER_10M) == Ignore(reason)


def test_without_delete_after_it_is_marked_only() -> None:
    """The KEP's behaviour; a condition of Kueue is taken as done."""
    for reason in (zombie.REASON, "KueueForcefullyDeleted"):
        stuck = pod("Failed", conditions=(forced(reason=reason),))
        assert decide(stuck, 1e6) == Ignore(Reason.ENDED)


def test_a_condition_without_the_phase_is_half_of_the_work() -> None:
    assert isinstance(decide(pod(conditions=(forced(),)), 1e6), Terminate)


# -- the node's lease


def test_a_lease_that_changed_is_waited_for_until_it_is_silent_for_the_grace_period() -> None:
    made = decide(pod(), 500, silence=LeaseSilence(10.0))
    assert isinstance(made, Wait)
    assert (made.until, made.awaited) == (at(540), Awaited.LEASE)
    assert "the Lease of its node must stay unchanged for 50s" in made.text
    assert isinstance(decide(pod(), 540, silence=LeaseSilence(50.0)), Terminate)


@pytest.mark.parametrize(
    ("grace", "lasts", "want"),
    [
        pytest.param(5, 4, 5, id="the configured grace period"),
        pytest.param(50, 120, 120, id="a lease that is good for longer"),
    ],
)
def test_the_longer_of_grace_period_and_lease_duration_counts(
    grace: int, lasts: int, want: int
) -> None:
    policy = FailureRecoveryPolicy(node_grace=timedelta(seconds=grace))
    almost, enough = LeaseSilence(want - 0.1, lasts), LeaseSilence(want, lasts)
    assert isinstance(decide(pod(), 500, policy=policy, silence=almost), Wait)
    assert isinstance(decide(pod(), 500, policy=policy, silence=enough), Terminate)


@pytest.mark.parametrize(
    ("ready", "silence", "reason"),
    [
        pytest.param("True", SILENT, Reason.NODE_READY, id="it is Ready"),
        pytest.param("", SILENT, Reason.NO_CONDITION, id="it has no Ready condition"),
        pytest.param(
            "Unknown", LeaseSilence(1000.0, exists=False), Reason.NO_LEASE, id="it has no lease"
        ),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_taint_alone_is_no_evidence(
    phase: str, ready: str, silence: LeaseSilence, reason: Reason
) -> None:
    on = node("unreachable", ready=ready)
    made = decide(pod(phase), 1e6, on, AFTER_10M, silence=silence)
    assert made == Ignore(reason)
    assert "its node does not count as down, whatever its taints say" in made.text


def test_a_node_that_is_not_ready_and_silent_is_down() -> None:
    assert isinstance(decide(pod(), 160, node("unreachable", ready="False")), Terminate)


def test_where_leases_are_not_watched_what_is_due_waits_for_the_process_that_watches() -> None:
    made = decide(pod(), 159, silence=zombie.UNWATCHED)
    assert isinstance(made, Wait)
    assert (made.until, made.awaited) == (at(160), Awaited.GRACE)
    made = decide(pod(), 160, silence=zombie.UNWATCHED)
    assert isinstance(made, Wait)
    assert (made.until, made.awaited) == (None, Awaited.LEASE)


def test_what_is_awaited_longest_counts() -> None:
    made = decide(pod(), 101, silence=LeaseSilence(10.0))
    assert isinstance(made, Wait)
    assert (made.until, made.awaited) == (at(160), Awaited.GRACE)


FENCED = rules(rule(seconds=60, require_self_fence=True))


def fenced(phase: str = "Running", *conditions: Object) -> Pod:
    return pod(phase, labels={"safe": "true"}, conditions=conditions)


@pytest.mark.parametrize(
    ("listing", "want"),
    [
        pytest.param(None, None, id="there is none"),
        pytest.param("", None, id="it is empty"),
        pytest.param('{"other": [380, 20]}', None, id="it lists another pod"),
        pytest.param("Ends when it likes", None, id="it cannot be read"),
        pytest.param('{"uid": [380]}', None, id="it is cut off"),
        pytest.param('{"uid": [-1, 20]}', None, id="it is negative"),
        pytest.param('{"uid": [1e300, 20]}', None, id="it is too large"),
        pytest.param('{"uid": [380, 20]}', self_fence.Promise(380, 20), id="it lists the pod"),
    ],
)
def test_a_promise_is_what_the_lease_of_the_node_lists(
    listing: str | None, want: self_fence.Promise | None
) -> None:
    """Whatever the pod's own condition says: others than the node can write that."""
    stuck = fenced("Running", ARMED)
    stuck = msgspec.structs.replace(
        stuck, metadata=msgspec.structs.replace(stuck.metadata, uid="uid")
    )
    assert zombie.promise_of(stuck, lease(listing)) == want
    assert zombie.promise_of(stuck, None) is None


@pytest.mark.parametrize("conditions", [(), (ARMED,)], ids=["no condition", "a condition"])
def test_without_a_promise_a_rule_that_asks_for_it_does_nothing(
    conditions: tuple[Object, ...],
) -> None:
    assert decide(fenced("Running", *conditions), 1e6, policy=FENCED) == Ignore(Reason.NOT_ARMED)


def test_the_fence_counts_from_the_last_change_that_was_seen_of_the_lease() -> None:
    made = decide(fenced(), 500, policy=FENCED, promise=PROMISE, silence=LeaseSilence(4.0))
    assert isinstance(made, Wait)
    assert (made.until, made.awaited) == (at(900), Awaited.SELF_FENCE)
    made = decide(fenced(), 500, policy=FENCED, promise=PROMISE, silence=LeaseSilence(404.0))
    assert isinstance(made, Terminate)


def test_whoever_does_not_watch_the_lease_cannot_say_until_when() -> None:
    made = decide(fenced(), 500, policy=FENCED, promise=PROMISE, silence=zombie.UNWATCHED)
    assert isinstance(made, Wait)
    assert made.until is None
    assert "later" in made.text


def test_without_a_rule_that_asks_for_it_a_promise_changes_nothing() -> None:
    made = decide(pod(), 160, silence=LeaseSilence(50.0), promise=PROMISE)
    assert isinstance(made, Terminate)


@pytest.mark.parametrize(
    ("stuck", "promise", "want"),
    [
        pytest.param(fenced("Failed", forced()), PROMISE, Wait, id="made to fail: needs proof"),
        pytest.param(fenced("Failed", forced()), None, Ignore, id="made to fail, no promise"),
        pytest.param(fenced("Failed"), None, Delete, id="its own node said so: that is the proof"),
    ],
)
def test_deleting_needs_the_fence_where_the_end_is_not_proved(
    stuck: Pod, promise: self_fence.Promise | None, want: type
) -> None:
    policy = rules(
        rule(seconds=60, require_self_fence=True, delete_after=timedelta(seconds=1)),
    )
    made = decide(stuck, 1e5, policy=policy, silence=LeaseSilence(50.0), promise=promise)
    assert isinstance(made, want)


# -- what is written


def test_failing_upserts_one_condition_and_touches_nothing_else() -> None:
    ready = {"type": "Ready", "status": "False"}
    status = zombie.failing(pod(conditions=(ready,)), "told", now=at(160))
    assert status == {
        "phase": "Failed",
        "conditions": [
            {
                "type": "KueueFailureRecovery",
                "status": "True",
                "reason": "KueueForcefullyTerminated",
                "message": "told",
                "lastTransitionTime": text(160),
            }
        ],
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "KueueFailureRecovery"}],
    }


@pytest.mark.parametrize(
    ("conditions", "says_why", "want"),
    [
        pytest.param((), False, None, id="the gate is off"),
        pytest.param((), True, "NodeLost", id="nobody has said why"),
        pytest.param(
            ({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},),
            True,
            None,
            id="a taint ended it",
        ),
    ],
)
def test_failing_says_why_if_nobody_has(
    conditions: tuple[Object, ...], says_why: bool, want: str | None
) -> None:
    """KEP-3329, first design: behind its gate."""
    status = zombie.failing(pod(conditions=conditions), "told", now=at(160), says_why=says_why)
    assert status.get("reason") == want


def test_a_condition_that_is_true_already_keeps_its_time() -> None:
    """behaviour 0.5"""
    status = zombie.failing(pod(conditions=(forced(),)), "told", now=at(500))
    assert "lastTransitionTime" not in status["conditions"][0]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (decide(pod(), 100), "made to fail at 2026-01-01T00:02:40Z unless its node comes back"),
        (decide(pod(), 160), "made to fail now"),
        (decide(pod("Failed"), 110, policy=AFTER_10M), "deleted by force at 2026-01-01T00:11:40Z"),
        (decide(pod("Failed"), 1e4, policy=AFTER_10M), "deleted by force now"),
        (decide(pod(annotations={}), 160), f'no annotation {TERMINATE}: "true"'),
    ],
)
def test_each_decision_says_in_plain_words_what_comes(made: zombie.Decision, words: str) -> None:
    assert words in made.text


DOCUMENT = Path(__file__).parents[3] / "docs" / "zombie-recovery.md"


@pytest.mark.parametrize("word", [*Reason, *Awaited])
def test_each_reason_is_explained_to_those_who_see_it(word: str) -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{word}`" in row.split(" | ")[0] for row in rows)
