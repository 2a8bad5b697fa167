# SPDX-License-Identifier: Apache-2.0
"""What becomes of pods that hang on lost nodes (KEP-6757; behaviour E1, E3, C8)."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.api import selectors, self_fence
from refloat.api.coordination import Lease
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    FailureRecoveryPolicy,
    TerminatePod,
)
from refloat.policy.recovery.node_evidence import LeaseSilence
from refloat.policy.recovery.zombie import (
    Awaited,
    Delete,
    Ignore,
    Reason,
    Terminate,
    TerminateLater,
)
from tests.cases import cases
from tests.unit.policy import builders
from tests.unit.policy.builders import at, condition, text

TERMINATE, DELETE, REFLOAT = zombie.ANNOTATIONS
KEP_MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `node-a` "
    "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
)
SILENT = LeaseSilence(1000.0)
PROMISE = self_fence.Promise(380, 20, "b0-07")  # dead for sure after 404 s


pod = partial(
    builders.pod,
    "a",
    namespace="default",
    tracked=False,
    deleted=100,
    grace=30,
    node="node-a",
    annotations={TERMINATE: "true"},
)
"""A pod that opted in by the KEP's annotation; its grace period is over at second 100."""


def node(*keys: str, effect: str = "NoExecute", ready: str = "Unknown") -> Node:
    taints = ({"key": f"node.kubernetes.io/{key}", "effect": effect} for key in keys)
    return builders.node(*taints, ready=ready, name="node-a")


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
    return condition(zombie.CONDITION, since=since, reason=reason)


def rule(number: int = 0, seconds: float = 300, **how: Any) -> TerminatePod:
    selected = selectors.parse_labels(how.pop("labels", "safe=true"))
    path = f"failureRecoveryPolicy.rules[{number}].terminatePod"
    return TerminatePod(path, selected, timedelta(seconds=seconds), **how)


def rules(*given: TerminatePod, **annotated: Any) -> FailureRecoveryPolicy:
    return FailureRecoveryPolicy(terminate=given, annotated=AnnotationRule(**annotated))


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
    decision = decide(pod(), 160)
    assert isinstance(decision, Terminate)
    assert decision.message == KEP_MESSAGE
    assert decision.stuck == timedelta(seconds=60)


def test_before_that_it_is_waited_for_exactly_that_time() -> None:
    """behaviour E1.6: the deletionTimestamp includes the grace period."""
    decision = decide(pod(), 159.999)
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited, decision.then) == (
        at(160),
        Awaited.GRACE,
        "terminate",
    )


def test_a_pod_that_is_pending_is_one_too() -> None:
    assert isinstance(decide(pod("Pending"), 160), Terminate)


@cases(
    "stuck on reason",
    {
        "it is not terminating": (pod(deleted=None), LOST, Reason.NOT_TERMINATING),
        "it has failed": (pod("Failed"), LOST, Reason.ENDED),
        "it has succeeded": (pod("Succeeded"), LOST, Reason.ENDED),
        "its phase is none of the four": (pod("Unknown"), LOST, Reason.PHASE),
        "it has no annotation": (pod(annotations={}), LOST, Reason.NOT_OPTED_IN),
        "not exactly true": (pod(annotations={TERMINATE: "True"}), LOST, Reason.NOT_OPTED_IN),
        "an annotation of another name": (
            pod(annotations={"safe-to-forcefully-terminate": "true"}),
            LOST,
            Reason.NOT_OPTED_IN,
        ),
        "its node has no taint": (pod(), node(), Reason.NODE_REACHABLE),
        "its node says it is not ready": (pod(), node("not-ready"), Reason.NODE_REACHABLE),
        "out of service only": (pod(), node("out-of-service"), Reason.NODE_REACHABLE),
        "its node is gone": (pod(), None, Reason.NODE_GONE),
        "it is on no node": (pod(node=""), None, Reason.NO_NODE),
    },
)
def test_it_is_left_alone_however_late_it_is(stuck: Pod, on: Node | None, reason: Reason) -> None:
    decision = decide(stuck, 1e6, on)
    assert decision == Ignore(reason)
    assert decision.text


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_either_effect_of_the_taint_will_do(effect: str) -> None:
    """behaviour E4.7"""
    assert isinstance(decide(pod(), 160, node("unreachable", effect=effect)), Terminate)


@pytest.mark.parametrize("annotation", zombie.ANNOTATIONS)
def test_each_of_the_annotations_opts_in_and_is_named(annotation: str) -> None:
    decision = decide(pod(annotations={annotation: "true"}), 160)
    assert isinstance(decision, Terminate)
    assert decision.message.endswith(f"(triggered by `{annotation} annotation`)")


@pytest.mark.parametrize(
    ("grace", "period", "want"),
    [(30, 60, "90s"), (0, 60, "60s"), (3600, 60, "3660s"), (30, 6, "36s"), (30, 0.5, "30s")],
)
def test_the_message_has_whole_seconds(grace: int, period: float, want: str) -> None:
    """KEP-6757, not the `1m0.00000003s` of behaviour E4.1."""
    policy = rules(period=timedelta(seconds=period))
    decision = decide(pod(grace=grace), 1e5, policy=policy)
    assert isinstance(decision, Terminate)
    assert f" after {want} grace period " in decision.message


def test_the_default_period_is_shorter_where_all_waits_are() -> None:
    policy = FailureRecoveryPolicy(default_period=timedelta(seconds=6))
    assert isinstance(decide(pod(), 105, policy=policy), TerminateLater)
    assert isinstance(decide(pod(), 106, policy=policy), Terminate)


# -- rules


def test_a_rule_selects_by_label_and_has_its_own_period() -> None:
    zombie_pod = pod(annotations={}, labels={"safe": "true"})
    decision = decide(zombie_pod, 399, policy=rules(rule()))
    assert isinstance(decision, TerminateLater)
    assert decision.until == at(400)
    decision = decide(zombie_pod, 400, policy=rules(rule()))
    assert isinstance(decision, Terminate)
    assert decision.message == (
        "Pod forcefully terminated after 330s grace period due to unreachable node `node-a` "
        "(triggered by `failureRecoveryPolicy.rules[0].terminatePod rule`)"
    )


def test_a_rule_does_not_take_pods_that_it_does_not_select() -> None:
    zombie_pod = pod(annotations={}, labels={"safe": "false"})
    assert decide(zombie_pod, 1e6, policy=rules(rule())) == Ignore(Reason.NOT_OPTED_IN)


def test_the_first_rule_that_matches_wins() -> None:
    zombie_pod = pod(annotations={}, labels={"safe": "true", "app": "x"})
    both = (rule(0, 500, labels="app=y"), rule(1, 300), rule(2, 100, labels="app=x"))
    decision = decide(zombie_pod, 399, policy=rules(*both))
    assert isinstance(decision, TerminateLater)
    assert decision.trigger.name == "failureRecoveryPolicy.rules[1].terminatePod rule"


def test_a_rule_comes_before_the_annotation() -> None:
    """So that an annotation cannot get round what a rule asks for."""
    zombie_pod = pod(labels={"safe": "true"})
    assert isinstance(decide(zombie_pod, 200, policy=rules(rule())), TerminateLater)
    fenced = rules(rule(require_self_fence=True))
    assert decide(zombie_pod, 1e6, policy=fenced) == Ignore(Reason.NOT_ARMED)


def test_the_annotation_is_heeded_only_where_the_namespace_is_selected() -> None:
    policy = rules(namespaces=selectors.parse_labels("team=batch"))
    assert decide(pod(), 160, policy=policy) == Ignore(Reason.NAMESPACE)
    assert isinstance(decide(pod(), 160, policy=policy, namespace={"team": "batch"}), Terminate)


def test_rules_hold_in_every_namespace() -> None:
    policy = rules(rule(), namespaces=selectors.NOTHING)
    assert isinstance(decide(pod(labels={"safe": "true"}), 1000, policy=policy), Terminate)


# -- pods that have ended


AFTER_10M = rules(delete_after=timedelta(minutes=10))


@cases(
    "stuck want",
    {
        "since Refloat made it fail": (pod("Failed", conditions=(forced(),)), 760),
        "Kueue did, which notes no time (E1.10): since the deletion": (
            pod("Failed", conditions=(forced(reason="KueueForcefullyDeleted", since=None),)),
            700,
        ),
        "it ended by itself: since the deletion": (pod("Succeeded"), 700),
    },
)
def test_it_is_deleted_by_force_after_a_while(stuck: Pod, want: float) -> None:
    decision = decide(stuck, want - 1, policy=AFTER_10M)
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited, decision.then) == (
        at(want),
        Awaited.DELETE_AFTER,
        "delete",
    )
    assert isinstance(decide(stuck, want, policy=AFTER_10M), Delete)


@cases(
    "stuck on reason",
    {
        "finalizers hold it": (pod("Failed", grace=0), LOST, Reason.HELD),
        "its node is back": (pod("Failed"), node(), Reason.NODE_REACHABLE),
        "its node is gone": (pod("Failed"), None, Reason.NODE_GONE),
        "no opt-in": (pod("Failed", annotations={}), LOST, Reason.NOT_OPTED_IN),
    },
)
def test_it_is_not_deleted(stuck: Pod, on: Node | None, reason: Reason) -> None:
    assert decide(stuck, 1e6, on, AFTER_10M) == Ignore(reason)


def test_without_delete_after_it_is_marked_only() -> None:
    """The KEP's behaviour; a condition of Kueue is taken as done."""
    for reason in (zombie.REASON, "KueueForcefullyDeleted"):
        zombie_pod = pod("Failed", conditions=(forced(reason=reason),))
        assert decide(zombie_pod, 1e6) == Ignore(Reason.ENDED)


def test_a_condition_without_the_phase_is_half_of_the_work() -> None:
    assert isinstance(decide(pod(conditions=(forced(),)), 1e6), Terminate)


# -- the node's lease


def test_a_lease_that_changed_is_waited_for_until_it_is_silent_for_the_grace_period() -> None:
    decision = decide(pod(), 500, silence=LeaseSilence(10.0))
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited) == (at(540), Awaited.LEASE)
    assert "the Lease of the node must stay unchanged for 50s" in decision.text
    assert isinstance(decide(pod(), 540, silence=LeaseSilence(50.0)), Terminate)


@cases(
    "grace lasts want",
    {"the configured grace period": (5, 4, 5), "a lease that is good for longer": (50, 120, 120)},
)
def test_the_longer_of_grace_period_and_lease_duration_counts(
    grace: int, lasts: int, want: int
) -> None:
    policy = FailureRecoveryPolicy(node_grace=timedelta(seconds=grace))
    almost, enough = LeaseSilence(want - 0.1, lasts), LeaseSilence(want, lasts)
    assert isinstance(decide(pod(), 500, policy=policy, silence=almost), TerminateLater)
    assert isinstance(decide(pod(), 500, policy=policy, silence=enough), Terminate)


@cases(
    "ready silence reason",
    {
        "it is Ready": ("True", SILENT, Reason.NODE_READY),
        "it has no Ready condition": ("", SILENT, Reason.NO_CONDITION),
        "it has no lease": ("Unknown", LeaseSilence(1000.0, exists=False), Reason.NO_LEASE),
    },
)
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_taint_alone_is_no_evidence(
    phase: str, ready: str, silence: LeaseSilence, reason: Reason
) -> None:
    on = node("unreachable", ready=ready)
    decision = decide(pod(phase), 1e6, on, AFTER_10M, silence=silence)
    assert decision == Ignore(reason)
    assert "the node does not count as down, whatever its taints" in decision.text


def test_a_node_that_is_not_ready_and_silent_is_down() -> None:
    assert isinstance(decide(pod(), 160, node("unreachable", ready="False")), Terminate)


def test_where_leases_are_not_watched_what_is_due_waits_for_the_process_that_watches() -> None:
    decision = decide(pod(), 159, silence=zombie.UNWATCHED)
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited) == (at(160), Awaited.GRACE)
    decision = decide(pod(), 160, silence=zombie.UNWATCHED)
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited) == (None, Awaited.LEASE)


def test_what_is_awaited_longest_counts() -> None:
    decision = decide(pod(), 101, silence=LeaseSilence(10.0))
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited) == (at(160), Awaited.GRACE)


FENCED = rules(rule(seconds=60, require_self_fence=True))


def fenced(phase: str = "Running", *conditions: Object) -> Pod:
    return pod(phase, labels={"safe": "true"}, conditions=conditions)


@cases(
    "listing want",
    {
        "there is none": (None, None),
        "it is empty": ("", None),
        "it lists another pod": ('{"other": [380, 20]}', None),
        "it cannot be read": ("Ends when it likes", None),
        "it is cut off": ('{"uid": [380]}', None),
        "it is negative": ('{"uid": [-1, 20]}', None),
        "it is too large": ('{"uid": [1e300, 20]}', None),
        "it lists the pod": ('{"uid": [380, 20]}', self_fence.Promise(380, 20)),
    },
)
def test_a_promise_is_what_the_lease_of_the_node_lists(
    listing: str | None, want: self_fence.Promise | None
) -> None:
    """Whatever the pod's own condition is: other users than the node can write the condition."""
    zombie_pod = fenced("Running", ARMED)
    zombie_pod = msgspec.structs.replace(
        zombie_pod, metadata=msgspec.structs.replace(zombie_pod.metadata, uid="uid")
    )
    assert zombie.promise_of(zombie_pod, lease(listing)) == want
    assert zombie.promise_of(zombie_pod, None) is None


@pytest.mark.parametrize("conditions", [(), (ARMED,)], ids=["no condition", "a condition"])
def test_without_a_promise_a_rule_that_asks_for_it_does_nothing(
    conditions: tuple[Object, ...],
) -> None:
    assert decide(fenced("Running", *conditions), 1e6, policy=FENCED) == Ignore(Reason.NOT_ARMED)


def test_the_fence_counts_from_the_last_change_that_was_seen_of_the_lease() -> None:
    decision = decide(fenced(), 500, policy=FENCED, promise=PROMISE, silence=LeaseSilence(4.0))
    assert isinstance(decision, TerminateLater)
    assert (decision.until, decision.awaited) == (at(900), Awaited.SELF_FENCE)
    decision = decide(fenced(), 500, policy=FENCED, promise=PROMISE, silence=LeaseSilence(404.0))
    assert isinstance(decision, Terminate)


def test_whoever_does_not_watch_the_lease_cannot_say_until_when() -> None:
    decision = decide(fenced(), 500, policy=FENCED, promise=PROMISE, silence=zombie.UNWATCHED)
    assert isinstance(decision, TerminateLater)
    assert decision.until is None
    assert "later" in decision.text


def test_without_a_rule_that_asks_for_it_a_promise_changes_nothing() -> None:
    decision = decide(pod(), 160, silence=LeaseSilence(50.0), promise=PROMISE)
    assert isinstance(decision, Terminate)


@cases(
    "stuck promise want",
    {
        "marked Failed: needs proof": (fenced("Failed", forced()), PROMISE, TerminateLater),
        "marked Failed, no promise": (fenced("Failed", forced()), None, Ignore),
        "its own node said so: that is the proof": (fenced("Failed"), None, Delete),
    },
)
def test_deleting_needs_the_fence_where_the_end_is_not_proved(
    stuck: Pod, promise: self_fence.Promise | None, want: type
) -> None:
    policy = rules(rule(seconds=60, require_self_fence=True, delete_after=timedelta(seconds=1)))
    decision = decide(stuck, 1e5, policy=policy, silence=LeaseSilence(50.0), promise=promise)
    assert isinstance(decision, want)


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


@cases(
    "conditions says_why want",
    {
        "the gate is off": ((), False, None),
        "nobody has said why": ((), True, "NodeLost"),
        "a taint ended it": (
            ({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},),
            True,
            None,
        ),
    },
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
        (decide(pod(), 100), "mark the pod Failed at 2026-01-01T00:02:40Z unless the node returns"),
        (decide(pod(), 160), "marks the pod Failed now"),
        (
            decide(pod("Failed"), 110, policy=AFTER_10M),
            "delete the pod by force at 2026-01-01T00:11:40Z",
        ),
        (decide(pod("Failed"), 1e4, policy=AFTER_10M), "deletes the pod by force now"),
        (decide(pod(annotations={}), 160), f'lacks the annotation {TERMINATE}: "true"'),
    ],
)
def test_each_decision_says_in_plain_words_what_comes(made: zombie.Decision, words: str) -> None:
    assert words in made.text


DOCUMENT = Path(__file__).parents[4] / "docs" / "zombie-recovery.md"


@pytest.mark.parametrize("word", [*Reason, *Awaited])
def test_each_reason_is_explained_to_those_who_see_it(word: str) -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{word}`" in row.split(" | ")[0] for row in rows)
