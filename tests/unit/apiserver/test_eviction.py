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
from refloat.apiserver.routes import Target
from refloat.store.contract import Entry
from tests import builders
from tests.apiserver_fixture import BUDGETS, PODS, ServerFixture, started
from tests.cases import cases
from tests.clocks import START
from tests.refusals import refusal

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
    world: ServerFixture,
    *,
    phase: str = "Running",
    ready: bool = True,
    name: str = "p",
    **more: Any,
) -> None:
    await world.create(builders.pod(name, node="n", labels={"app": "x"}, **more))
    ready_condition = {"type": "Ready", "status": "True" if ready else "False"}
    await world.set_status(PODS, name, phase=phase, conditions=[ready_condition])


async def with_budget(
    world: ServerFixture, status: Object, *, name: str = "b", **spec: Any
) -> None:
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


def is_marked(world: ServerFixture, name: str = "p") -> bool:
    return conditions.is_true(conditions.of(world.get(PODS, name)), "DisruptionTarget")


# -- behaviour C6.7: what an eviction does ----------------------------------


async def test_evicted_pod_is_marked_and_deleted_gracefully(world: ServerFixture) -> None:
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


async def test_nobody_owns_the_mark_of_an_eviction(world: ServerFixture) -> None:
    await with_pod(world)
    owned: Object = {"manager": "m", "operation": "Apply", "apiVersion": "v1"}
    owned |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}}}

    def own(pod: Object) -> None:
        pod["metadata"]["managedFields"] = [owned]

    await world.change(PODS, "p", own)
    managers = world.get(PODS, "p")["metadata"]["managedFields"]
    await world.evict("p", manager="n")
    assert is_marked(world)
    assert world.get(PODS, "p")["metadata"]["managedFields"] == managers


async def test_eviction_passes_on_the_options_of_the_delete(world: ServerFixture) -> None:
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


async def test_eviction_says_why_only_with_the_gate(world: ServerFixture) -> None:
    """KEP-3329, first design."""
    await with_pod(world)
    await world.evict("p")
    assert "reason" not in world.get(PODS, "p")["status"]


@pytest.mark.parametrize(("reason", "want"), [("", "EvictionAPI"), ("Mine", "Mine")])
async def test_eviction_says_why_unless_it_is_told(reason: str, want: str) -> None:
    world = await started(gates={"RetriableAndNonRetriableFailures": True})
    await with_pod(world)
    await world.evict("p", Options(reason=reason))
    assert world.get(PODS, "p")["status"]["reason"] == want
    await world.dispatcher.close()


async def test_eviction_of_nothing_is_not_found(world: ServerFixture) -> None:
    with refusal(404, 'pods "p" not found'):
        await world.evict("p")


async def test_dry_eviction_writes_nothing(world: ServerFixture) -> None:
    """behaviour C6.7"""
    await with_pod(world)
    await with_budget(world, HEALTHY)
    revision = world.store.revision
    await world.evict("p", dry_run=True)
    assert world.store.revision == revision


async def test_dry_eviction_is_refused_like_a_real_one(world: ServerFixture) -> None:
    await with_pod(world)
    await with_budget(world, SPENT)
    with refusal(429, REFUSED):
        await world.evict("p", dry_run=True)


# -- behaviour C6.2: no budget is asked -------------------------------------


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
async def test_pod_goes_without_a_budget_when(world: ServerFixture, phase: str) -> None:
    await with_pod(world, phase=phase)
    await with_budget(world, SPENT)
    await world.evict("p")
    assert not world.exists(PODS, "p") or "deletionTimestamp" in world.get(PODS, "p")["metadata"]
    assert world.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == 0


async def test_terminating_pod_goes_without_a_budget(world: ServerFixture) -> None:
    await with_pod(world)
    await world.delete(PODS, "p")
    await with_budget(world, SPENT)
    await world.evict("p", Options(grace_seconds=0))
    assert not world.exists(PODS, "p")


async def test_budget_of_other_pods_is_not_asked(world: ServerFixture) -> None:
    await with_pod(world)
    await world.create(builders.budget(app="other"))
    await world.evict("p")
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]


@cases(
    "selector is_covered",
    {"an empty selector covers every pod": ({}, True), "no selector covers none": (None, False)},
)
async def test_budget_covers(
    world: ServerFixture, selector: Object | None, is_covered: bool
) -> None:
    await with_pod(world)
    await with_budget(world, HEALTHY, selector=selector)
    await world.evict("p")
    assert world.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == (0 if is_covered else 1)


# -- behaviour C6.3 ---------------------------------------------------------


async def test_two_budgets_are_too_many(world: ServerFixture) -> None:
    await with_pod(world)
    await with_budget(world, HEALTHY)
    await with_budget(world, HEALTHY, name="b2")
    message = (
        "This pod has more than one PodDisruptionBudget, "
        "which the eviction subresource does not support."
    )
    with refusal(500, message) as error:
        await world.evict("p")
    assert error.value.reason == ""
    assert not is_marked(world)


# -- behaviour C6.5: the charge ---------------------------------------------


async def test_eviction_is_charged_to_the_budget(world: ServerFixture) -> None:
    await with_pod(world)
    await with_budget(world, {**HEALTHY, "disruptionsAllowed": 2})
    await world.evict("p")
    status = world.get(BUDGETS, "b")["status"]
    assert status["disruptionsAllowed"] == 1
    assert status["disruptedPods"] == {"p": times.format_time(START)}
    assert "conditions" not in status


async def test_last_disruption_turns_the_condition(world: ServerFixture) -> None:
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


@pytest.mark.parametrize(("disrupted", "is_refused"), [(2000, False), (2001, True)])
async def test_budget_that_cannot_keep_up_is_protected(
    world: ServerFixture, disrupted: int, is_refused: bool
) -> None:
    await with_pod(world)
    stamp = times.format_time(START)
    pods = {f"other-{index}": stamp for index in range(disrupted)}
    await with_budget(world, {**HEALTHY, "disruptedPods": pods})
    if not is_refused:
        await world.evict("p")
        return
    message = (
        'poddisruptionbudget.policy "b" is forbidden: '
        "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    )
    with refusal(403, message):
        await world.evict("p")


# -- behaviour C6.6: the message to the user ----------------------------------


@cases(
    "status cause retry_after",
    {
        "generation lags": ({**HEALTHY, "observedGeneration": 0}, PROCESSED, 10),
        "sync failed": (
            {**SPENT, "conditions": denied("SyncFailed", "boom")},
            (
                "The disruption budget b does not allow evicting pods currently because it failed "
                "sync: boom"
            ),
            None,
        ),
        "sync failed comes before too few": (
            {**SPENT, "currentHealthy": 2, "conditions": denied("SyncFailed", "boom")},
            (
                "The disruption budget b does not allow evicting pods currently because it failed "
                "sync: boom"
            ),
            None,
        ),
        "too few are healthy": (
            {**SPENT, "currentHealthy": 2},
            "The disruption budget b needs 2 healthy pods and has 2 currently",
            None,
        ),
        "the condition says why": (
            {**SPENT, "conditions": denied("InsufficientPods", "few")},
            (
                "The disruption budget b does not allow evicting pods currently "
                "(InsufficientPods): few"
            ),
            None,
        ),
        "a condition without a message says nothing": (
            {**SPENT, "conditions": denied("InsufficientPods", "")},
            "The disruption budget b does not allow evicting pods currently",
            None,
        ),
        "a condition that allows says nothing": (
            {**SPENT, "conditions": denied("SufficientPods", "many", "True")},
            "The disruption budget b does not allow evicting pods currently",
            None,
        ),
    },
)
async def test_refusal_names_the_cause_when(
    world: ServerFixture, status: Object, cause: str, retry_after: int | None
) -> None:
    await with_pod(world)
    await with_budget(world, status)
    with refusal(429, REFUSED) as error:
        await world.evict("p")
    assert error.value.reason == "TooManyRequests"
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    assert error.value.details == details
    assert not is_marked(world)


# -- behaviour C6.4: pods that are not ready --------------------------------


@cases(
    "status policy goes",
    {
        "enough others are healthy": (SPENT, None, True),
        "too few others are": ({**SPENT, "currentHealthy": 1}, None, False),
        "none is desired": ({**SPENT, "desiredHealthy": 0}, None, False),
        "the default by name": (SPENT, "IfHealthyBudget", True),
        "always allowed by the budget": ({**SPENT, "currentHealthy": 1}, "AlwaysAllow", True),
    },
)
async def test_unready_pod_goes_uncharged_when(
    world: ServerFixture, status: Object, policy: str | None, goes: bool
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


async def test_ready_pod_is_charged_although_unready_ones_always_go(world: ServerFixture) -> None:
    await with_pod(world)
    await with_budget(world, SPENT, unhealthyPodEvictionPolicy="AlwaysAllow")
    with refusal(429, REFUSED):
        await world.evict("p")


async def test_unready_pod_that_changed_meanwhile_is_asked_for_again(world: ServerFixture) -> None:
    """1. an unready pod is judged; 2. the pod changes; 3. the delete must stop."""
    await with_pod(world, ready=False)
    await with_budget(world, SPENT)
    outrun(world, PODS, {"message": "changed"})
    with refusal(429, REFUSED) as error:
        await world.evict("p")
    assert error.value.details == {
        "causes": [{"reason": "DisruptionBudget", "message": PROCESSED}],
        "retryAfterSeconds": 10,
    }


async def test_unready_pod_goes_as_it_was_seen_whatever_version_is_asked(
    world: ServerFixture,
) -> None:
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
    world: ServerFixture, phase: str, options: Options
) -> None:
    await with_pod(world, phase=phase)
    before = world.get(PODS, "p")
    with pytest.raises(StatusError) as error:
        await world.evict("p", options)
    assert (error.value.code, error.value.reason) == (409, "Conflict")
    assert world.get(PODS, "p") == before
    assert world.clock.sleeps == []


async def test_pod_that_is_meant_is_marked_and_deleted(world: ServerFixture) -> None:
    await with_pod(world)
    metadata = world.get(PODS, "p")["metadata"]
    options = Options(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    await world.evict("p", options)
    assert is_marked(world)
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]


# -- conflicts --------------------------------------------------------------


async def test_pending_pod_that_changed_meanwhile_is_looked_at_again(
    jumping: ServerFixture,
) -> None:
    """behaviour C6.2"""
    await with_pod(jumping, phase="Pending")
    outrun(jumping, PODS, {"message": "1"}, {"message": "2"})
    await jumping.evict("p")
    assert "deletionTimestamp" in jumping.get(PODS, "p")["metadata"]
    assert jumping.clock.sleeps == [0.5, 0.5]


async def test_pending_pod_that_starts_meanwhile_is_guarded_by_its_budget(
    jumping: ServerFixture,
) -> None:
    await with_pod(jumping, phase="Pending")
    await with_budget(jumping, SPENT)
    outrun(jumping, PODS, {"phase": "Running"})
    with refusal(429, REFUSED):
        await jumping.evict("p")


async def test_pending_pod_that_always_changes_is_given_up(jumping: ServerFixture) -> None:
    await with_pod(jumping, phase="Pending")
    outrun(jumping, PODS, *({"message": str(index)} for index in range(99)))
    with pytest.raises(StatusError) as error:
        await jumping.evict("p")
    assert error.value.reason == "Conflict"
    assert len(jumping.clock.sleeps) == eviction.MAX_TRIES - 1


async def test_budget_that_changed_meanwhile_is_judged_again(jumping: ServerFixture) -> None:
    """behaviour C6.5"""
    await with_pod(jumping)
    await with_budget(jumping, {**HEALTHY, "disruptionsAllowed": 3})
    outrun(jumping, BUDGETS, {"disruptionsAllowed": 2}, {"disruptionsAllowed": 1})
    await jumping.evict("p")
    assert jumping.clock.sleeps == [0.5, 0.5]
    assert jumping.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == 0


async def test_budget_that_is_spent_meanwhile_refuses(jumping: ServerFixture) -> None:
    await with_pod(jumping)
    await with_budget(jumping, HEALTHY)
    outrun(jumping, BUDGETS, {"disruptionsAllowed": 0})
    with refusal(429, REFUSED):
        await jumping.evict("p")
    assert not is_marked(jumping)


async def test_budget_is_charged_once_although_the_delete_conflicts(jumping: ServerFixture) -> None:
    """behaviour C6.8"""
    await with_pod(jumping)
    await with_budget(jumping, {**HEALTHY, "disruptionsAllowed": 3})
    with pytest.raises(StatusError):
        await jumping.evict("p", Options(uid="other"))
    assert jumping.get(BUDGETS, "b")["status"]["disruptionsAllowed"] == 2
    assert jumping.clock.sleeps == []


def outrun(world: ServerFixture, resource: kinds.Resource, *states: Object) -> None:
    """Let another writer of a status be first, once for each state."""
    registry: Any = world.registry
    modify, waiting = registry.modify, list(states)

    async def late(call: Call, target: Target, *rest: Any, **more: Any) -> Entry:
        if waiting and target.resource is resource:
            state = waiting.pop(0)
            registry.modify = modify
            await world.set_status(resource, target.name, **state)
            registry.modify = late
        entry: Entry = await modify(call, target, *rest, **more)
        return entry

    registry.modify = late
