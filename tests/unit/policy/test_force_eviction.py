# SPDX-License-Identifier: Apache-2.0
"""The next step with a node that somebody says is down (KEP-36)."""

import json
from typing import Any

import msgspec
import pytest

from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.policy import force_eviction
from refloat.policy.force_eviction import (
    EVICTING,
    PROGRESS,
    WISH,
    Attachment,
    Begin,
    ClearVolumes,
    Detach,
    Evict,
    Finish,
    Nothing,
    Progress,
    Refuse,
    Settings,
    Sight,
    Step,
    Wait,
    Withdraw,
)
from refloat.policy.node_evidence import LeaseSilence
from refloat.policy.switches import ALL_ON, Switches
from tests.unit.policy.made import at, text

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
AWAITED = "the Lease of its node must stay unchanged for 50s, by the clock of the Refloat that acts"

CLEARED = '{"step":"VolumesCleared"}'
BEGUN = json.dumps({"step": "Evicting", "started": text(100)})
HANDED = json.dumps({"step": "Evicting", "started": text(100), "handedOver": True})
STARTED = Progress("Evicting", text(100))

HERE, IN_KUBERNETES = Settings(), Settings(hands_over=True)


def node(
    *taints: Object, ready: str = "Unknown", progress: str | None = None, attached: int = 0
) -> Node:
    body = {
        "metadata": {"name": "n", "annotations": {} if progress is None else {PROGRESS: progress}},
        "spec": {"taints": list(taints)},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}] if ready else [],
            "volumesAttached": [{"name": f"v{i}", "devicePath": ""} for i in range(attached)],
        },
    }
    return msgspec.convert(body, Node)


def pod(name: str = "p", *, phase: str = "Running", **more: Any) -> Pod:
    """`grace`: it is deleted with that; `started`: seconds; the rest is its spec."""
    grace, started = more.pop("grace", None), more.pop("started", 0)
    meta: Object = {"name": name, "uid": name, "annotations": more.pop("annotations", None)}
    if owner := more.pop("owner", ""):
        meta["ownerReferences"] = [{"kind": owner, "name": "n", "controller": True}]
    if grace is not None:
        meta |= {"deletionTimestamp": text(1), "deletionGracePeriodSeconds": grace}
    claims = more.pop("claims", ())
    more["volumes"] = [{"persistentVolumeClaim": {"claimName": each}} for each in claims]
    status = {"phase": phase, "startTime": None if started is None else text(started)}
    return msgspec.convert({"metadata": meta, "spec": more, "status": status}, Pod)


P = pod()
GONE = pod("gone", phase="Failed", grace=0)
HELD = Attachment("a", "uid")
EXISTS = [{"operator": "Exists"}]
WAIT_FOR_PODS = Wait(5, "pods are there")
WAIT_FOR_VOLUMES = Wait(5, "volumes are attached")


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(Sight(node(OTHER), STILL), Nothing(), id="nobody wishes it"),
        pytest.param(
            Sight(node({**WISHED, "value": "false"}), STILL), Nothing(), id="another value is none"
        ),
        pytest.param(
            Sight(node({**WISHED, "effect": "NoExecute"}), STILL), Nothing(), id="another effect"
        ),
        pytest.param(Sight(node(WISHED), STILL), ClearVolumes(), id="down: volumes come first"),
        pytest.param(Sight(node(KEP), STILL), ClearVolumes(), id="the KEP's effect, any key"),
        pytest.param(Sight(node(WISHED, ready="False"), STILL), ClearVolumes(), id="not ready"),
        pytest.param(
            Sight(node(WISHED, ready=""), STILL),
            Refuse("it has no Ready condition, so nothing has judged its health yet"),
            id="it never posted",
        ),
        pytest.param(
            Sight(node(WISHED), NO_LEASE),
            Refuse(
                "it has no Lease in the namespace kube-node-lease,"
                " so nothing shows that it is silent"
            ),
            id="it has no lease",
        ),
        pytest.param(
            Sight(node(WISHED), LeaseSilence(51, 60)),
            Wait(5, AWAITED),
            id="its lease is good for longer than the grace period",
        ),
        pytest.param(
            Sight(node(WISHED, progress=CLEARED), FRESH),
            Wait(5, AWAITED),
            id="volumes are cleared, but this observer has not seen it silent for long enough",
        ),
        pytest.param(
            Sight(node(WISHED, ready="True"), STILL), Refuse("it is Ready"), id="Scenario 3"
        ),
        pytest.param(
            Sight(node(WISHED, ready="False"), FRESH, renewed=True),
            Refuse("it renews its lease"),
            id="not ready, but it renews its lease",
        ),
        pytest.param(
            Sight(node(WISHED), FRESH),
            Wait(5, AWAITED),
            id="its lease may yet move",
        ),
        pytest.param(
            Sight(node(WISHED), LeaseSilence(48, 40)),
            Wait(2, AWAITED),
            id="and is looked at when it may not",
        ),
        pytest.param(
            Sight(node(WISHED, progress=CLEARED), STILL), Begin(), id="no new heartbeat: it begins"
        ),
        pytest.param(
            Sight(node(WISHED, progress=CLEARED, ready="True"), STILL),
            Refuse("it is Ready"),
            id="it came back when volumes were cleared",
        ),
        pytest.param(
            Sight(node(WISHED, progress=CLEARED), FRESH, renewed=True),
            Refuse("it renews its lease"),
            id="its lease moved when volumes were cleared",
        ),
        pytest.param(
            Sight(node(WISHED, progress="{"), STILL),
            ClearVolumes(),
            id="what nobody can read is as nothing",
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN), STILL, [P, GONE]), Evict((P,)), id="pods are there"
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN, ready="True"), FRESH, [P], renewed=True),
            Refuse("it is Ready"),
            id="it came back after it began, and pods are there",
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN), FRESH, [P], renewed=True),
            Refuse("it renews its lease"),
            id="its lease moved after it began, and pods are there",
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN), FRESH, [P]),
            Wait(5, AWAITED),
            id="it began, but this observer has not seen it silent for long enough",
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN, ready="True"), FRESH, [GONE], renewed=True),
            Finish(),
            id="it came back when its pods were gone: it is finished",
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN), STILL, [GONE], [HELD]),
            Detach((HELD,)),
            id="no pod is left: volumes",
        ),
        pytest.param(
            Sight(node(WISHED, progress=BEGUN), STILL, [GONE]),
            Finish(),
            id="held only by finalizers counts as gone",
        ),
        pytest.param(Sight(node(OTHER, progress=BEGUN), STILL), Withdraw(), id="the wish is gone"),
    ],
)
def test_the_next_step(seen: Sight, want: Step) -> None:
    assert force_eviction.decide(seen, HERE) == want


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(Sight(node(WISHED), STILL), Begin(), id="volumes are none of ours"),
        pytest.param(
            Sight(node(WISHED, ready="True"), STILL), Refuse("it is Ready"), id="the same checks"
        ),
        pytest.param(
            Sight(node(WISHED, MINE, progress=HANDED), STILL, [P]),
            WAIT_FOR_PODS,
            id="pods are others' to delete",
        ),
        pytest.param(
            Sight(node(WISHED, MINE, progress=HANDED, attached=1), STILL, [GONE]),
            WAIT_FOR_VOLUMES,
            id="volumes are others' to detach",
        ),
        pytest.param(
            Sight(node(WISHED, MINE, progress=HANDED, attached=1), STILL, [], [], 361),
            Finish(),
            id="not waited for when others would detach them anyway",
        ),
        pytest.param(
            Sight(
                node(WISHED, MINE, progress=HANDED, attached=1),
                STILL,
                [pod(tolerations=EXISTS, claims=["c"])],
            ),
            Finish(),
            id="a pod that stays keeps its volume",
        ),
        pytest.param(
            Sight(node(WISHED, MINE, progress=HANDED), STILL),
            Finish(),
            id="all is gone",
        ),
        pytest.param(
            Sight(node(WISHED, MINE, progress=HANDED), STILL, [pod(tolerations=[TOLERATES_OUT])]),
            Finish(),
            id="what tolerates the taint of Kubernetes stays, whatever it says of the wish",
        ),
        pytest.param(
            Sight(
                node(WISHED, MINE, progress=HANDED),
                STILL,
                [pod(tolerations=[TOLERATES_OUT], grace=30)],
            ),
            WAIT_FOR_PODS,
            id="unless it is being deleted: then others remove it",
        ),
        pytest.param(
            Sight(
                node(WISHED, MINE, progress=HANDED),
                STILL,
                [pod(tolerations=[{**TOLERATES_OUT, "tolerationSeconds": 60}])],
            ),
            WAIT_FOR_PODS,
            id="or tolerates it only for a while",
        ),
        pytest.param(
            Sight(
                node(WISHED, MINE, progress=HANDED),
                STILL,
                [pod(tolerations=[{"key": WISHED["key"], "operator": "Exists"}])],
            ),
            WAIT_FOR_PODS,
            id="what tolerates only the wish is deleted by others all the same",
        ),
        pytest.param(
            Sight(node(WISHED, progress=HANDED), STILL, [P]),
            Begin(),
            id="somebody took the taint off: others are told once more",
        ),
        pytest.param(
            Sight(node(WISHED, progress=HANDED), FRESH, [P]),
            Wait(5, AWAITED),
            id="but not before this observer has seen the lease silent",
        ),
        pytest.param(
            Sight(node(WISHED, {**OUT, "effect": "NoSchedule"}, progress=HANDED), STILL, [P]),
            Begin(),
            id="or put one in its place by which nobody is evicted",
        ),
        pytest.param(
            Sight(node(WISHED, progress=HANDED, attached=1), STILL, [GONE]),
            Begin(),
            id="or took it off while volumes are attached",
        ),
        pytest.param(
            Sight(node(WISHED, progress=HANDED), STILL, [pod(tolerations=EXISTS)]),
            Finish(),
            id="took it off, but nobody is left that it would make leave",
        ),
        pytest.param(
            Sight(node(WISHED, progress=HANDED), FRESH, [P], renewed=True),
            WAIT_FOR_PODS,
            id="took it off a node that renews its lease: nothing is forced there any more",
        ),
        pytest.param(
            Sight(
                node(WISHED, progress=HANDED, ready="True"),
                FRESH,
                [pod(tolerations=EXISTS)],
                renewed=True,
            ),
            Finish(),
            id="took it off a node that is Ready, where a pod stays",
        ),
        pytest.param(
            Sight(node(WISHED, progress=HANDED, ready="True"), FRESH, [P], renewed=True),
            Finish(),
            id="took it off a node that is Ready: nobody deletes anything more",
        ),
        pytest.param(
            Sight(
                node(WISHED, progress=HANDED, ready="True"), FRESH, [pod(grace=30)], renewed=True
            ),
            WAIT_FOR_PODS,
            id="but what is being deleted there is awaited",
        ),
    ],
)
def test_the_next_step_where_kubernetes_does_the_work(seen: Sight, want: Step) -> None:
    assert force_eviction.decide(seen, IN_KUBERNETES) == want


@pytest.mark.parametrize(
    ("one", "goes"),
    [
        pytest.param(pod(), True, id="it runs"),
        pytest.param(pod(started=None), True, id="it was never started"),
        pytest.param(pod(phase="Succeeded"), True, id="it has ended"),
        pytest.param(pod(grace=30), True, id="it is deleted with grace"),
        pytest.param(pod(grace=0), True, id="deleted without, and not Failed yet"),
        pytest.param(pod(grace=0, phase="Failed"), False, id="only finalizers hold it"),
        pytest.param(pod(tolerations=EXISTS), False, id="it tolerates everything"),
        pytest.param(
            pod(tolerations=[{"key": WISHED["key"], "operator": "Exists"}]),
            False,
            id="it tolerates the wish by its key",
        ),
        pytest.param(
            pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]),
            True,
            id="it tolerates another effect",
        ),
        pytest.param(pod(annotations=MIRROR, nodeName="n", owner="Node"), False, id="a mirror pod"),
        pytest.param(
            pod(annotations=MIRROR, nodeName="n"),
            True,
            id="one that only claims to be a mirror pod",
        ),
    ],
)
def test_who_has_to_go(one: Pod, goes: bool) -> None:
    assert (list(force_eviction.evicted(node(WISHED), [one], STARTED)) == [one]) is goes


@pytest.mark.parametrize(
    ("ready", "started", "goes"),
    [
        pytest.param("True", 101, False, id="a living agent started it later"),
        pytest.param("True", 100, True, id="in the very second"),
        pytest.param("Unknown", 101, True, id="the clock of a node that is down was ahead"),
        pytest.param("False", 101, True, id="of one that is not ready, too"),
    ],
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


@pytest.mark.parametrize(
    ("one", "switches", "want"),
    [
        pytest.param(
            pod(),
            ALL_ON,
            {
                **FAILED,
                "conditions": [TARGET],
                "$setElementOrder/conditions": [{"type": "DisruptionTarget"}],
            },
            id="Failed, and why",
        ),
        pytest.param(
            pod(), Switches(pod_disruption_conditions=False), FAILED, id="no conditions: Failed"
        ),
        pytest.param(
            pod(),
            Switches(pod_disruption_conditions=False, retriable_and_non_retriable_failures=True),
            {**FAILED, "reason": "ForceEviction"},
            id="with the gate of backoffPolicy: its reason",
        ),
        pytest.param(pod(phase="Succeeded"), ALL_ON, None, id="what ended is only deleted"),
    ],
)
def test_how_a_pod_fails(one: Pod, switches: Switches, want: Object | None) -> None:
    assert force_eviction.failing(one, switches, now=at(7)) == want


def test_it_begins_with_the_taint_that_tells_others() -> None:
    done, taints = force_eviction.begun(node(WISHED), IN_KUBERNETES, now=at(100))
    assert done == Progress(EVICTING, text(100), handed_over=True)
    added = Taint(MINE["key"], MINE["value"], MINE["effect"], text(100))
    assert taints == (WISH, added)
    assert force_eviction.ended(node(WISHED, OTHER, MINE)) == node(OTHER).spec.taints


def test_a_taint_that_others_added_before_tells_them_and_is_not_taken_off() -> None:
    _, taints = force_eviction.begun(node(WISHED, OUT), IN_KUBERNETES, now=at(100))
    assert taints == node(WISHED, OUT).spec.taints
    assert force_eviction.ended(node(WISHED, OUT)) == node(OUT).spec.taints


def test_what_is_begun_again_began_when_it_first_did() -> None:
    done, taints = force_eviction.begun(node(WISHED, progress=HANDED), IN_KUBERNETES, now=at(200))
    assert done == Progress(EVICTING, text(100), handed_over=True)
    assert taints == (WISH, Taint(MINE["key"], MINE["value"], MINE["effect"], text(200)))


def test_what_follows_on_cleared_volumes_begins_now() -> None:
    done, _ = force_eviction.begun(node(WISHED, progress=CLEARED), HERE, now=at(100))
    assert done == STARTED


def test_one_by_which_nobody_is_evicted_is_not_enough() -> None:
    """behaviour C9.2"""
    theirs = {**OUT, "effect": "NoSchedule"}
    _, taints = force_eviction.begun(node(WISHED, theirs), IN_KUBERNETES, now=at(100))
    assert [each.effect for each in taints] == ["NoSchedule", "NoSchedule", "NoExecute"]
    assert force_eviction.ended(node(WISHED, theirs, MINE)) == node(theirs).spec.taints


def test_one_that_others_put_in_its_place_is_not_taken_off() -> None:
    theirs = {**OUT, "value": "nodeshutdown"}
    assert force_eviction.ended(node(WISHED, theirs)) == node(theirs).spec.taints


def test_here_no_taint_is_added() -> None:
    assert force_eviction.begun(node(KEP), HERE, now=at(100)) == (STARTED, node(KEP).spec.taints)
    assert force_eviction.ended(node(KEP, WISHED)) == ()


def test_progress_is_read_as_it_was_written() -> None:
    for done in (STARTED, Progress("VolumesCleared")):
        assert force_eviction.progress(node(progress=done.encoded())) == done


@pytest.mark.parametrize(
    ("taints", "want"),
    [
        pytest.param([{**WISHED, "value": ""}], 0, id="no value"),
        pytest.param([{**WISHED, "value": "True"}], 0, id="a value in upper case"),
        pytest.param([{**WISHED, "effect": "NoExecute"}], 0, id="another effect"),
        pytest.param([WISHED], None, id="the request itself"),
        pytest.param([{**WISHED, "effect": "NoExecute"}, WISHED], None, id="beside the request"),
        pytest.param([{**WISHED, "effect": "ForceEviction"}], None, id="the KEP's effect"),
        pytest.param([OTHER], None, id="another key"),
    ],
)
def test_a_mistyped_request_is_found(taints: list[Object], want: int | None) -> None:
    on = node(*taints)
    assert on.spec.taints is not None
    expected = None if want is None else on.spec.taints[want]
    assert force_eviction.mistyped(on) == expected


@pytest.mark.parametrize(
    ("one", "where", "may"),
    [
        pytest.param(pod(), node(ready="True"), True, id="a healthy node"),
        pytest.param(pod(), node(OTHER, ready="True"), True, id="other taints are not asked here"),
        pytest.param(pod(), node(WISHED, ready="True"), False, id="it is to be evicted"),
        pytest.param(pod(), node(KEP, ready="True"), False, id="by the KEP's effect"),
        pytest.param(
            pod(tolerations=[{"key": WISHED["key"], "operator": "Exists"}]),
            node(WISHED, ready="True"),
            True,
            id="it tolerates that",
        ),
        pytest.param(pod(), node(ready="Unknown"), False, id="its heartbeat was not sent yet"),
        pytest.param(pod(tolerations=EXISTS), node(), True, id="it tolerates any wish"),
        pytest.param(pod(), None, False, id="the node cannot be read (Scenario 2)"),
        pytest.param(pod(tolerations=EXISTS), None, True, id="but it tolerates any wish"),
        pytest.param(
            pod(tolerations=[{"key": WISHED["key"], "operator": "Exists"}]),
            None,
            False,
            id="there may be another wish than the one it tolerates",
        ),
    ],
)
def test_what_a_node_may_start(one: Pod, where: Node | None, may: bool) -> None:
    assert force_eviction.may_start(one, where) is may
