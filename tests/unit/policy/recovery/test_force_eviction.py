# SPDX-License-Identifier: Apache-2.0
"""The next step with a node that a taint declares down (KEP-36)."""

import json
from typing import Any

from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.force_eviction import (
    EVICTING,
    PROGRESS,
    REQUEST_TAINT,
    AttachmentRef,
    Begin,
    ClearVolumes,
    Detach,
    Evict,
    EvictLater,
    Finish,
    ForceEvictionSettings,
    Nothing,
    Observation,
    Progress,
    Refuse,
    Step,
    Withdraw,
)
from refloat.policy.recovery.node_evidence import LeaseSilence
from tests.cases import cases
from tests.unit.policy import builders
from tests.unit.policy.builders import at, text

WISHED: Object = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
KEP: Object = {"key": "nodeShutdown", "value": "true", "effect": "ForceEviction"}
OTHER: Object = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
OUT: Object = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
MINE: Object = {**OUT, "value": "refloat-force-eviction"}
MIRROR = {"kubernetes.io/config.mirror": "x"}
TOLERATES_OUT: Object = {"key": OUT["key"], "operator": "Exists"}

STILL = LeaseSilence(51, 40)
FRESH = LeaseSilence(3, 40)
NO_LEASE = LeaseSilence(51, exists=False)
AWAITED = "the Lease of the node must stay unchanged for 50s, by the clock of the process that acts"

CLEARED = '{"step":"VolumesCleared"}'
BEGUN = json.dumps({"step": "Evicting", "started": text(100)})
HANDED = json.dumps({"step": "Evicting", "started": text(100), "handedOver": True})
STARTED = Progress("Evicting", text(100))

HERE, IN_KUBERNETES = ForceEvictionSettings(), ForceEvictionSettings(hands_over=True)


def node(*taints: Object, progress: str | None = None, attached: int = 0, **more: Any) -> Node:
    annotations = {} if progress is None else {PROGRESS: progress}
    volumes = [{"name": f"v{i}", "devicePath": ""} for i in range(attached)]
    status = {"volumesAttached": volumes}
    return builders.node(*taints, annotations=annotations, status=status, **more)


def pod(
    name: str = "p", *, grace: int | None = None, claims: tuple[str, ...] = (), **more: Any
) -> Pod:
    """`grace`: it is deleted with that."""
    more = {"started": 0, "tracked": False, "node": "", **more}
    more["volumes"] = [{"persistentVolumeClaim": {"claimName": each}} for each in claims]
    deleted = None if grace is None else 1
    return builders.pod(name, name=name, deleted=deleted, grace=grace, **more)


ATTACHED = node(WISHED, MINE, progress=HANDED, attached=1)
TAINTED = node(WISHED, MINE, progress=HANDED)
EMPTYING = node(WISHED, progress=BEGUN)
CLEAN = node(WISHED, progress=CLEARED)
DOWN = node(WISHED)
GIVEN = node(WISHED, progress=HANDED)
"""Kubernetes does the rest, and the node has no taint of Refloat's."""
P = pod()
EXISTS = [{"operator": "Exists"}]
TOLERANT = pod(tolerations=EXISTS)
STAYS = pod(tolerations=[TOLERATES_OUT])
TOLERATES_WISH = [{"key": WISHED["key"], "operator": "Exists"}]
GONE = pod("gone", phase="Failed", grace=0)
HELD = AttachmentRef("a", "uid")
WAIT_FOR_PODS = EvictLater(5, "pods are there")
WAIT_FOR_VOLUMES = EvictLater(5, "volumes are attached")


@cases(
    "seen want",
    {
        "nobody wishes it": (Observation(node(OTHER), STILL), Nothing()),
        "another value is none": (
            Observation(node({**WISHED, "value": "false"}), STILL),
            Nothing(),
        ),
        "another effect": (Observation(node({**WISHED, "effect": "NoExecute"}), STILL), Nothing()),
        "down: volumes come first": (Observation(DOWN, STILL), ClearVolumes()),
        "the KEP's effect, any key": (Observation(node(KEP), STILL), ClearVolumes()),
        "not ready": (Observation(node(WISHED, ready="False"), STILL), ClearVolumes()),
        "it never posted": (
            Observation(node(WISHED, ready=""), STILL),
            Refuse("it has no Ready condition, so nothing has judged its health yet"),
        ),
        "it has no lease": (
            Observation(DOWN, NO_LEASE),
            Refuse(
                "it has no Lease in the namespace kube-node-lease,"
                " so nothing shows that it is silent"
            ),
        ),
        "its lease is good for longer than the grace period": (
            Observation(DOWN, LeaseSilence(51, 60)),
            EvictLater(5, AWAITED),
        ),
        "volumes are cleared, but this observer has not seen it silent for long enough": (
            Observation(CLEAN, FRESH),
            EvictLater(5, AWAITED),
        ),
        "Scenario 3": (Observation(node(WISHED, ready="True"), STILL), Refuse("it is Ready")),
        "not ready, but it renews its lease": (
            Observation(node(WISHED, ready="False"), FRESH, renewed=True),
            Refuse("it renews its lease"),
        ),
        "its lease may yet move": (Observation(DOWN, FRESH), EvictLater(5, AWAITED)),
        "and is looked at when it may not": (
            Observation(DOWN, LeaseSilence(48, 40)),
            EvictLater(2, AWAITED),
        ),
        "no new heartbeat: it begins": (Observation(CLEAN, STILL), Begin()),
        "it came back when volumes were cleared": (
            Observation(node(WISHED, progress=CLEARED, ready="True"), STILL),
            Refuse("it is Ready"),
        ),
        "its lease moved when volumes were cleared": (
            Observation(CLEAN, FRESH, renewed=True),
            Refuse("it renews its lease"),
        ),
        "what nobody can read is as nothing": (
            Observation(node(WISHED, progress="{"), STILL),
            ClearVolumes(),
        ),
        "pods are there": (Observation(EMPTYING, STILL, [P, GONE]), Evict((P,))),
        "it came back after it began, and pods are there": (
            Observation(node(WISHED, progress=BEGUN, ready="True"), FRESH, [P], renewed=True),
            Refuse("it is Ready"),
        ),
        "its lease moved after it began, and pods are there": (
            Observation(EMPTYING, FRESH, [P], renewed=True),
            Refuse("it renews its lease"),
        ),
        "it began, but this observer has not seen it silent for long enough": (
            Observation(EMPTYING, FRESH, [P]),
            EvictLater(5, AWAITED),
        ),
        "it came back when its pods were gone: it is finished": (
            Observation(node(WISHED, progress=BEGUN, ready="True"), FRESH, [GONE], renewed=True),
            Finish(),
        ),
        "no pod is left: volumes": (Observation(EMPTYING, STILL, [GONE], [HELD]), Detach((HELD,))),
        "held only by finalizers counts as gone": (Observation(EMPTYING, STILL, [GONE]), Finish()),
        "the wish is gone": (Observation(node(OTHER, progress=BEGUN), STILL), Withdraw()),
    },
)
def test_the_next_step(seen: Observation, want: Step) -> None:
    assert force_eviction.decide(seen, HERE) == want


@cases(
    "seen want",
    {
        "volumes are none of ours": (Observation(DOWN, STILL), Begin()),
        "the same checks": (Observation(node(WISHED, ready="True"), STILL), Refuse("it is Ready")),
        "pods are others' to delete": (Observation(TAINTED, STILL, [P]), WAIT_FOR_PODS),
        "volumes are others' to detach": (Observation(ATTACHED, STILL, [GONE]), WAIT_FOR_VOLUMES),
        "not waited for when others would detach them anyway": (
            Observation(ATTACHED, STILL, [], [], 361),
            Finish(),
        ),
        "a pod that stays keeps its volume": (
            Observation(ATTACHED, STILL, [pod(tolerations=EXISTS, claims=("c",))]),
            Finish(),
        ),
        "all is gone": (Observation(TAINTED, STILL), Finish()),
        "what tolerates the taint of Kubernetes stays, whatever it says of the wish": (
            Observation(TAINTED, STILL, [STAYS]),
            Finish(),
        ),
        "unless it is being deleted: then others remove it": (
            Observation(TAINTED, STILL, [pod(tolerations=[TOLERATES_OUT], grace=30)]),
            WAIT_FOR_PODS,
        ),
        "or tolerates it only for a while": (
            Observation(
                TAINTED, STILL, [pod(tolerations=[{**TOLERATES_OUT, "tolerationSeconds": 60}])]
            ),
            WAIT_FOR_PODS,
        ),
        "what tolerates only the wish is deleted by others all the same": (
            Observation(TAINTED, STILL, [pod(tolerations=TOLERATES_WISH)]),
            WAIT_FOR_PODS,
        ),
        "somebody took the taint off: others are told once more": (
            Observation(GIVEN, STILL, [P]),
            Begin(),
        ),
        "but not before this observer has seen the lease silent": (
            Observation(GIVEN, FRESH, [P]),
            EvictLater(5, AWAITED),
        ),
        "or put one in its place by which nobody is evicted": (
            Observation(node(WISHED, {**OUT, "effect": "NoSchedule"}, progress=HANDED), STILL, [P]),
            Begin(),
        ),
        "or took it off while volumes are attached": (
            Observation(node(WISHED, progress=HANDED, attached=1), STILL, [GONE]),
            Begin(),
        ),
        "took it off, but nobody is left that it would make leave": (
            Observation(GIVEN, STILL, [TOLERANT]),
            Finish(),
        ),
        "took it off a node that renews its lease: nothing is forced there any more": (
            Observation(GIVEN, FRESH, [P], renewed=True),
            WAIT_FOR_PODS,
        ),
        "took it off a node that is Ready, where a pod stays": (
            Observation(
                node(WISHED, progress=HANDED, ready="True"), FRESH, [TOLERANT], renewed=True
            ),
            Finish(),
        ),
        "took it off a node that is Ready: nobody deletes anything more": (
            Observation(node(WISHED, progress=HANDED, ready="True"), FRESH, [P], renewed=True),
            Finish(),
        ),
        "but what is being deleted there is awaited": (
            Observation(
                node(WISHED, progress=HANDED, ready="True"), FRESH, [pod(grace=30)], renewed=True
            ),
            WAIT_FOR_PODS,
        ),
    },
)
def test_the_next_step_where_kubernetes_does_the_work(seen: Observation, want: Step) -> None:
    assert force_eviction.decide(seen, IN_KUBERNETES) == want


@cases(
    "one goes",
    {
        "it runs": (pod(), True),
        "it was never started": (pod(started=None), True),
        "it has ended": (pod(phase="Succeeded"), True),
        "it is deleted with grace": (pod(grace=30), True),
        "deleted without, and not Failed yet": (pod(grace=0), True),
        "only finalizers hold it": (pod(grace=0, phase="Failed"), False),
        "it tolerates everything": (pod(tolerations=EXISTS), False),
        "it tolerates the wish by its key": (pod(tolerations=TOLERATES_WISH), False),
        "it tolerates another effect": (
            pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]),
            True,
        ),
        "a mirror pod": (pod(annotations=MIRROR, node="n", owner="Node"), False),
        "one that only claims to be a mirror pod": (pod(annotations=MIRROR, node="n"), True),
    },
)
def test_who_has_to_go(one: Pod, goes: bool) -> None:
    assert (list(force_eviction.evicted(DOWN, [one], STARTED)) == [one]) is goes


@cases(
    "ready started goes",
    {
        "a living agent started it later": ("True", 101, False),
        "in the very second": ("True", 100, True),
        "the clock of a node that is down was ahead": ("Unknown", 101, True),
        "of one that is not ready, too": ("False", 101, True),
    },
)
def test_only_a_ready_node_started_a_pod_later(ready: str, started: int, goes: bool) -> None:
    one = pod(started=started)
    where = node(WISHED, ready=ready)
    assert (list(force_eviction.evicted(where, [one], STARTED)) == [one]) is goes


def test_all_wishes_have_to_be_tolerated() -> None:
    one = pod(tolerations=[{"key": "nodeShutdown", "operator": "Exists"}])
    assert not list(force_eviction.evicted(node(KEP), [one], STARTED))
    assert list(force_eviction.evicted(node(KEP, WISHED), [one], STARTED)) == [one]


TARGET: Object = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByForceEviction",
    "message": "Force eviction: deleting a pod of a node that is down",
    "observedGeneration": 0,
    "lastTransitionTime": text(7),
}
FAILED: Object = {"phase": "Failed", "observedGeneration": 0}


@cases(
    "one job_gates want",
    {
        "Failed, and why": (
            pod(),
            ALL_ON,
            {
                **FAILED,
                "conditions": [TARGET],
                "$setElementOrder/conditions": [{"type": "DisruptionTarget"}],
            },
        ),
        "no conditions: Failed": (pod(), JobGates(pod_disruption_conditions=False), FAILED),
        "with the gate of backoffPolicy: its reason": (
            pod(),
            JobGates(pod_disruption_conditions=False, retriable_and_non_retriable_failures=True),
            {**FAILED, "reason": "ForceEviction"},
        ),
        "what ended is only deleted": (pod(phase="Succeeded"), ALL_ON, None),
    },
)
def test_how_a_pod_fails(one: Pod, job_gates: JobGates, want: Object | None) -> None:
    assert force_eviction.failing(one, job_gates, now=at(7)) == want


def test_it_begins_with_the_taint_that_tells_others() -> None:
    done, taints = force_eviction.plan_begin(DOWN, IN_KUBERNETES, now=at(100))
    assert done == Progress(EVICTING, text(100), handed_over=True)
    added = Taint(MINE["key"], MINE["value"], MINE["effect"], text(100))
    assert taints == (REQUEST_TAINT, added)
    assert force_eviction.plan_end(node(WISHED, OTHER, MINE)) == node(OTHER).spec.taints


def test_a_taint_that_others_added_before_tells_them_and_is_not_taken_off() -> None:
    _, taints = force_eviction.plan_begin(node(WISHED, OUT), IN_KUBERNETES, now=at(100))
    assert taints == node(WISHED, OUT).spec.taints
    assert force_eviction.plan_end(node(WISHED, OUT)) == node(OUT).spec.taints


def test_what_is_begun_again_began_when_it_first_did() -> None:
    done, taints = force_eviction.plan_begin(GIVEN, IN_KUBERNETES, now=at(200))
    assert done == Progress(EVICTING, text(100), handed_over=True)
    assert taints == (REQUEST_TAINT, Taint(MINE["key"], MINE["value"], MINE["effect"], text(200)))


def test_what_follows_on_cleared_volumes_begins_now() -> None:
    done, _ = force_eviction.plan_begin(CLEAN, HERE, now=at(100))
    assert done == STARTED


def test_one_by_which_nobody_is_evicted_is_not_enough() -> None:
    """behaviour C9.2"""
    theirs = {**OUT, "effect": "NoSchedule"}
    _, taints = force_eviction.plan_begin(node(WISHED, theirs), IN_KUBERNETES, now=at(100))
    assert [each.effect for each in taints] == ["NoSchedule", "NoSchedule", "NoExecute"]
    assert force_eviction.plan_end(node(WISHED, theirs, MINE)) == node(theirs).spec.taints


def test_one_that_others_put_in_its_place_is_not_taken_off() -> None:
    theirs = {**OUT, "value": "nodeshutdown"}
    assert force_eviction.plan_end(node(WISHED, theirs)) == node(theirs).spec.taints


def test_here_no_taint_is_added() -> None:
    assert force_eviction.plan_begin(node(KEP), HERE, now=at(100)) == (
        STARTED,
        node(KEP).spec.taints,
    )
    assert force_eviction.plan_end(node(KEP, WISHED)) == ()


def test_progress_is_read_as_it_was_written() -> None:
    for done in (STARTED, Progress("VolumesCleared")):
        assert force_eviction.progress(node(progress=done.encoded())) == done


@cases(
    "taints want",
    {
        "no value": ([{**WISHED, "value": ""}], 0),
        "a value in upper case": ([{**WISHED, "value": "True"}], 0),
        "another effect": ([{**WISHED, "effect": "NoExecute"}], 0),
        "the request itself": ([WISHED], None),
        "beside the request": ([{**WISHED, "effect": "NoExecute"}, WISHED], None),
        "the KEP's effect": ([{**WISHED, "effect": "ForceEviction"}], None),
        "another key": ([OTHER], None),
    },
)
def test_a_mistyped_request_is_found(taints: list[Object], want: int | None) -> None:
    on = node(*taints)
    assert on.spec.taints is not None
    expected = None if want is None else on.spec.taints[want]
    assert force_eviction.mistyped(on) == expected


@cases(
    "one where may",
    {
        "a healthy node": (pod(), node(ready="True"), True),
        "other taints are not asked here": (pod(), node(OTHER, ready="True"), True),
        "it is to be evicted": (pod(), node(WISHED, ready="True"), False),
        "by the KEP's effect": (pod(), node(KEP, ready="True"), False),
        "it tolerates that": (pod(tolerations=TOLERATES_WISH), node(WISHED, ready="True"), True),
        "its heartbeat was not sent yet": (pod(), node(ready="Unknown"), False),
        "it tolerates any wish": (pod(tolerations=EXISTS), node(), True),
        "the node cannot be read (Scenario 2)": (pod(), None, False),
        "but it tolerates any wish": (pod(tolerations=EXISTS), None, True),
        "there may be another wish than the one it tolerates": (
            pod(tolerations=TOLERATES_WISH),
            None,
            False,
        ),
    },
)
def test_what_a_node_may_start(one: Pod, where: Node | None, may: bool) -> None:
    assert force_eviction.may_start(one, where) is may
