# SPDX-License-Identifier: Apache-2.0
"""Evictions and the budgets that they ask, as Kubernetes answers them (behaviour C6)."""

from typing import Any

import pytest

from refloat.api import conditions, kinds, times
from refloat.api.errors import StatusError
from refloat.api.meta import Object
from refloat.apiserver import eviction
from refloat.apiserver.deletion import Options
from refloat.apiserver.identity import Call
from refloat.store.contract import Entry
from tests import builders
from tests.clocks import START
from tests.refusals import refusal
from tests.worlds import BUDGETS, PODS, World, started

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
HEALTHY = {
    "observedGeneration": 1,
    "disruptionsAllowed": 1,
    "currentHealthy": 3,
    "desiredHealthy": 2,
    "expectedPods": 3,
}
SPENT = {**HEALTHY, "disruptionsAllowed": 0}
PROCESSED = "The disruption budget b is still being processed by the server."


async def with_pod(
    world: World, *, phase: str = "Running", ready: bool = True, name: str = "p", **more: Any
) -> None:
    await world.create(builders.pod(name, node="n", labels={"app": "x"}, **more))
    ready_condition = {"type": "Ready", "status": "True" if ready else "False"}
    await world.set_status(PODS, name, phase=phase, conditions=[ready_condition])


async def with_budget(world: World, status: Object, *, name: str = "b", **spec: Any) -> None:
    await world.create(builders.budget(name, spec=spec))
    await world.set_status(BUDGETS, name, **status)


def denied(reason: str, message: str, status: str = "False") -> list[Object]:
    return [
        {
            "type": "DisruptionAllowed",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": times.format_time(START),
        }
    ]


def is_marked(world: World, name: str = "p") -> bool:
    return conditions.is_true(conditions.of(world.get(PODS, name)), "DisruptionTarget")


# -- behaviour C6.7: what an eviction does ----------------------------------


async def test_evicted_pod_is_marked_and_deleted_gracefully(world: World) -> None:
    await with_pod(world)
    await world.evict("p")
    pod = world.get(PODS, "p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert conditions.find(conditions.of(pod), "DisruptionTarget") == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": times.format_time(START),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


async def test_nobody_owns_the_mark_of_an_eviction(world: World) -> None:
    await with_pod(world)
    owned: Object = {"manager": "m", "operation": "Apply", "apiVersion": "v1"}
    owned |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}}}

    def own(pod: Object) -> None:
        pod["metadata"]["managedFields"] = [owned]

    await world.change(PODS, "p", own)
    told = world.get(PODS, "p")["metadata"]["managedFields"]
    await world.evict("p", manager="n")
    assert is_marked(world)
    assert world.get(PODS, "p")["metadata"]["managedFields"] == told


async def test_eviction_passes_on_the_options_of_the_delete(world: World) -> None:
    await with_pod(world)
    await world.evict("p", Options(grace_seconds=7))
    assert world.get(PODS, "p")["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_eviction_does_not_mark_without_the_gate() -> None:
    world = await started(gates={"PodDisruptionConditions": False})
    await with_pod(world)
    await world.evict("p")
    assert not is_marked(world)
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]
    await world.dispatcher.close()


async def test_eviction_says_why_only_with_the_gate(world: World) -> None:
    """KEP-3329, first design."""
    await with_pod(world)
    await world.evict("p")
    assert "reason" not in world.get(PODS, "p")["status"]


@pytest.mark.parametrize(("given", "want"), [("", "EvictionAPI"), ("Mine", "Mine")])
async def test_eviction_says_why_unless_it_is_told(given: str, want: str) -> None:
    world = await started(gates={"RetriableAndNonRetriableFailures": True})
    await with_pod(world)
    await world.evict("p", Options(reason=given))
    assert world.get(PODS, "p")["status"]["reason"] == want
    await world.dispatcher.close()


async def test_eviction_of_nothing_is_not_found(world: World) -> None:
    with refusal(404, 'pods "p" not found'):
        await world.evict("p")


async def test_dry_eviction_writes_nothing(world: World) -> None:
    """behaviour C6.7"""
    await with_pod(world)
    await with_budget(world, HEALTHY)
    revision = world.store.revision
    await world.evict("p", dry_run=True)
    assert world.store.revision == revision


async def test_dry_eviction_is_refused_like_a_real_one(world: World) -> None:
    await with_pod(world)
    await with_budget(world, SPENT)
    with refusal(429, REFUSED):
        await world.evict("p", dry_run=True)


# -- behaviour C6.2: no budget is asked -------------------------------------


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
async def test_pod_goes_without_a_budget_when(world: World, phase: str) -> None:
    await with_pod(world, phase=phase)
    await with_budget(world, SPENT)
    await world.evict("p")
    assert not world.exists(PODS, "p") or "deletionTimestamp" in world.get(PODS, "p")["metadata"]
    assert world.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == 0


async def test_terminating_pod_goes_without_a_budget(world: World) -> None:
    await with_pod(world)
    await world.delete(PODS, "p")
    await with_budget(world, SPENT)
    await world.evict("p", Options(grace_seconds=0))
    assert not world.exists(PODS, "p")


async def test_budget_of_other_pods_is_not_asked(world: World) -> None:
    await with_pod(world)
    await world.create(builders.budget(app="other"))
    await world.evict("p")
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        pytest.param({}, True, id="an empty selector covers every pod"),
        pytest.param(None, False, id="no selector covers none"),
    ],
)
async def test_budget_covers(world: World, selector: Object | None, asked: bool) -> None:
    await with_pod(world)
    await with_budget(world, HEALTHY, selector=selector)
    await world.evict("p")
    assert world.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == (0 if asked else 1)


# -- behaviour C6.3 ---------------------------------------------------------


async def test_two_budgets_are_too_many(world: World) -> None:
    await with_pod(world)
    await with_budget(world, HEALTHY)
    await with_budget(world, HEALTHY, name="b2")
    message = (
        "This pod has more than one PodDisruptionBudget, "
        "which the eviction subresource does not support."
    )
    with refusal(500, message) as refused:
        await world.evict("p")
    assert refused.value.reason == ""
    assert not is_marked(world)


# -- behaviour C6.5: the charge ---------------------------------------------


async def test_eviction_is_charged_to_the_budget(world: World) -> None:
    await with_pod(world)
    await with_budget(world, {**HEALTHY, "disruptionsAllowed": 2})
    await world.evict("p")
    status = world.get(BUDGETS, "b")["status"]
    assert status["disruptionsAllowed"] == 1
    assert status["disruptedPods"] == {"p": times.format_time(START)}
    assert "conditions" not in status


async def test_last_disruption_turns_the_condition(world: World) -> None:
    await with_pod(world)
    await with_budget(world, HEALTHY)
    await world.evict("p")
    assert conditions.of(world.get(BUDGETS, "b")) == [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": 1,
            "lastTransitionTime": times.format_time(START),
            "reason": "InsufficientPods",
            "message": "",
        }
    ]


def test_negative_budget_is_forbidden() -> None:
    budget = {
        "metadata": {"name": "b", "generation": 1},
        "status": {**HEALTHY, "disruptionsAllowed": -1},
    }
    message = 'poddisruptionbudget.policy "b" is forbidden: pdb disruptions allowed is negative'
    with refusal(403, message):
        eviction.check_budget(budget)


@pytest.mark.parametrize(("disrupted", "refused"), [(2000, False), (2001, True)])
async def test_budget_that_cannot_keep_up_is_protected(
    world: World, disrupted: int, refused: bool
) -> None:
    await with_pod(world)
    stamp = times.format_time(START)
    pods = {f"other-{index}": stamp for index in range(disrupted)}
    await with_budget(world, {**HEALTHY, "disruptedPods": pods})
    if not refused:
        await world.evict("p")
        return
    message = (
        'poddisruptionbudget.policy "b" is forbidden: '
        "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    )
    with refusal(403, message):
        await world.evict("p")


# -- behaviour C6.6: what the user is told ----------------------------------


@pytest.mark.parametrize(
    ("status", "cause", "retry_after"),
    [
        pytest.param({**HEALTHY, "observedGeneration": 0}, PROCESSED, 10, id="generation lags"),
        pytest.param(
            {**SPENT, "conditions": denied("SyncFailed", "boom")},
            "The disruption budget b does not allow evicting pods currently because it failed "
            "sync: boom",
            None,
            id="sync failed",
        ),
        pytest.param(
            {**SPENT, "currentHealthy": 2, "conditions": denied("SyncFailed", "boom")},
            "The disruption budget b does not allow evicting pods currently because it failed "
            "sync: boom",
            None,
            id="sync failed comes before too few",
        ),
        pytest.param(
            {**SPENT, "currentHealthy": 2},
            "The disruption budget b needs 2 healthy pods and has 2 currently",
            None,
            id="too few are healthy",
        ),
        pytest.param(
            {**SPENT, "conditions": denied("InsufficientPods", "few")},
            "The disruption budget b does not allow evicting pods currently "
            "(InsufficientPods): few",
            None,
            id="the condition says why",
        ),
        pytest.param(
            {**SPENT, "conditions": denied("InsufficientPods", "")},
            "The disruption budget b does not allow evicting pods currently",
            None,
            id="a condition without a message says nothing",
        ),
        pytest.param(
            {**SPENT, "conditions": denied("SufficientPods", "many", "True")},
            "The disruption budget b does not allow evicting pods currently",
            None,
            id="a condition that allows says nothing",
        ),
    ],
)
async def test_refusal_names_the_cause_when(
    world: World, status: Object, cause: str, retry_after: int | None
) -> None:
    await with_pod(world)
    await with_budget(world, status)
    with refusal(429, REFUSED) as refused:
        await world.evict("p")
    assert refused.value.reason == "TooManyRequests"
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    assert refused.value.details == details
    assert not is_marked(world)


# -- behaviour C6.4: pods that are not ready --------------------------------


@pytest.mark.parametrize(
    ("status", "policy", "goes"),
    [
        pytest.param(SPENT, None, True, id="enough others are healthy"),
        pytest.param({**SPENT, "currentHealthy": 1}, None, False, id="too few others are"),
        pytest.param({**SPENT, "desiredHealthy": 0}, None, False, id="none is desired"),
        pytest.param(SPENT, "IfHealthyBudget", True, id="the default by name"),
        pytest.param(
            {**SPENT, "currentHealthy": 1}, "AlwaysAllow", True, id="always allowed by the budget"
        ),
    ],
)
async def test_unready_pod_goes_uncharged_when(
    world: World, status: Object, policy: str | None, goes: bool
) -> None:
    await with_pod(world, ready=False)
    spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    await with_budget(world, status, **spec)
    before = world.get(BUDGETS, "b")
    if goes:
        await world.evict("p")
    else:
        with refusal(429, REFUSED):
            await world.evict("p")
    assert ("deletionTimestamp" in world.get(PODS, "p")["metadata"]) == goes
    assert world.get(BUDGETS, "b") == before


async def test_ready_pod_is_charged_although_unready_ones_always_go(world: World) -> None:
    await with_pod(world)
    await with_budget(world, SPENT, unhealthyPodEvictionPolicy="AlwaysAllow")
    with refusal(429, REFUSED):
        await world.evict("p")


async def test_unready_pod_that_changed_meanwhile_is_asked_for_again(world: World) -> None:
    """1. an unready pod is judged; 2. it changes, maybe to ready; 3. its delete must not go on."""
    await with_pod(world, ready=False)
    await with_budget(world, SPENT)
    outrun(world, PODS, {"message": "changed"})
    with refusal(429, REFUSED) as refused:
        await world.evict("p")
    assert refused.value.details == {
        "causes": [{"reason": "DisruptionBudget", "message": PROCESSED}],
        "retryAfterSeconds": 10,
    }


async def test_unready_pod_goes_as_it_was_seen_whatever_version_is_asked(world: World) -> None:
    await with_pod(world, ready=False)
    await with_budget(world, SPENT)
    await world.evict("p", Options(resource_version="1"))
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]


# -- preconditions ----------------------------------------------------------


@pytest.mark.parametrize(
    "options", [Options(uid="other"), Options(resource_version="1")], ids=["uid", "version"]
)
@pytest.mark.parametrize("phase", ["Running", "Pending"])
async def test_another_pod_than_meant_is_not_marked(
    world: World, phase: str, options: Options
) -> None:
    await with_pod(world, phase=phase)
    before = world.get(PODS, "p")
    with pytest.raises(StatusError) as refused:
        await world.evict("p", options)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert world.get(PODS, "p") == before
    assert world.clock.sleeps == []


async def test_pod_that_is_meant_is_marked_and_deleted(world: World) -> None:
    await with_pod(world)
    metadata = world.get(PODS, "p")["metadata"]
    meant = Options(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    await world.evict("p", meant)
    assert is_marked(world)
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]


# -- conflicts --------------------------------------------------------------


async def test_pending_pod_that_changed_meanwhile_is_looked_at_again(jumping: World) -> None:
    """behaviour C6.2"""
    await with_pod(jumping, phase="Pending")
    outrun(jumping, PODS, {"message": "1"}, {"message": "2"})
    await jumping.evict("p")
    assert "deletionTimestamp" in jumping.get(PODS, "p")["metadata"]
    assert jumping.clock.sleeps == [0.5, 0.5]


async def test_pending_pod_that_starts_meanwhile_is_guarded_by_its_budget(jumping: World) -> None:
    await with_pod(jumping, phase="Pending")
    await with_budget(jumping, SPENT)
    outrun(jumping, PODS, {"phase": "Running"})
    with refusal(429, REFUSED):
        await jumping.evict("p")


async def test_pending_pod_that_always_changes_is_given_up(jumping: World) -> None:
    await with_pod(jumping, phase="Pending")
    outrun(jumping, PODS, *({"message": str(index)} for index in range(99)))
    with pytest.raises(StatusError) as refused:
        await jumping.evict("p")
    assert refused.value.reason == "Conflict"
    assert len(jumping.clock.sleeps) == eviction.MAX_TRIES - 1


async def test_budget_that_changed_meanwhile_is_judged_again(jumping: World) -> None:
    """behaviour C6.5"""
    await with_pod(jumping)
    await with_budget(jumping, {**HEALTHY, "disruptionsAllowed": 3})
    outrun(jumping, BUDGETS, {"disruptionsAllowed": 2}, {"disruptionsAllowed": 1})
    await jumping.evict("p")
    assert jumping.clock.sleeps == [0.5, 0.5]
    assert jumping.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == 0


async def test_budget_that_is_spent_meanwhile_refuses(jumping: World) -> None:
    await with_pod(jumping)
    await with_budget(jumping, HEALTHY)
    outrun(jumping, BUDGETS, {"disruptionsAllowed": 0})
    with refusal(429, REFUSED):
        await jumping.evict("p")
    assert not is_marked(jumping)


async def test_budget_is_charged_once_although_the_delete_conflicts(jumping: World) -> None:
    """behaviour C6.8"""
    await with_pod(jumping)
    await with_budget(jumping, {**HEALTHY, "disruptionsAllowed": 3})
    with pytest.raises(StatusError):
        await jumping.evict("p", Options(uid="other"))
    assert jumping.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == 2
    assert jumping.clock.sleeps == []


def outrun(world: World, resource: kinds.Resource, *states: Object) -> None:
    """Let another writer of a status be first, once for each state."""
    registry: Any = world.registry
    modify, waiting = registry.modify, list(states)

    async def late(call: Call, of: kinds.Resource, *where: Any, **more: Any) -> Entry:
        if waiting and of is resource:
            state = waiting.pop(0)
            registry.modify = modify
            await world.set_status(resource, where[1], **state)
            registry.modify = late
        entry: Entry = await modify(call, of, *where, **more)
        return entry

    registry.modify = late
