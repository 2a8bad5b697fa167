# SPDX-License-Identifier: Apache-2.0
"""The scheduler's memory: after any events, decisions equal those of a new scheduler."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from refloat.api.core import Taint
from refloat.base.rand import Rand
from refloat.controllers.scheduler import node_ranking, scheduler_cache
from refloat.controllers.scheduler.scheduler_cache import SchedulerCache
from refloat.policy.scheduling import fit
from refloat.policy.scheduling.demand import Demand, Demands
from tests.unit.policy.scheduling.objects import cluster, demand, node, pod

TAINTS = ((), (Taint("k", "v", "NoSchedule"),), (Taint("k", "v", "PreferNoSchedule"),))

DEMANDS = Demands()
WANTED = [
    DEMANDS.of(pod(cpu=cpu, priority=priority)) for cpu in ("", "1", "3") for priority in (0, 10)
]


def _fitting(made: SchedulerCache, wanted: Demand, uid: str) -> list[str]:
    places = made.places.values()
    return [each.name for each in places if each.known and fit.objection(wanted, each, uid) is None]


def _said(made: SchedulerCache, wanted: Demand) -> str:
    """The message of a new scheduler."""
    tally: dict[str, int] = {}
    for each in made.places.values():
        against = fit.objection(wanted, each) if each.known else None
        for reason in against.reasons if against is not None else ():
            tally[reason] = tally.get(reason, 0) + 1
    return fit.message(len(made), tally) if len(made) else fit.NO_NODES


def _step(made: SchedulerCache, step: tuple[int, int, int, int]) -> None:
    kind, number, where, what = step
    name, uid = f"n{where}", f"uid-p{number}"
    if kind == 0:
        made.put_node(node(name, cpu=str(what), taints=TAINTS[number % 3], pods=2 + what))
    elif kind == 1 and (place := made.places.get(name)) is not None and place.known:
        made.remove_node(name)
    elif kind == 2:
        made.put_pod(pod(f"p{number}", cpu=str(what), priority=what % 3), name)
    elif kind == 3:
        made.remove_pod(uid)
    elif kind == 4 and made.node_of(uid) is None:
        made.nominate(uid, name, WANTED[what % len(WANTED)])
    elif kind == 5:
        made.withdraw_nomination(uid)


STEPS = some.tuples(
    some.integers(0, 5), some.integers(0, 5), some.integers(0, 3), some.integers(1, 4)
)


@given(some.lists(STEPS, max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_history_leads_to_what_looking_anew_says(
    steps: list[tuple[int, int, int, int]],
) -> None:
    scheduler_cache = SchedulerCache(Rand(1))
    for step in steps:
        _step(scheduler_cache, step)
        for request in WANTED:
            fitting = _fitting(scheduler_cache, request, "")
            node_name = scheduler_cache.choose(request)
            assert (node_name in fitting) if fitting else node_name is None
            if node_name is None:
                assert scheduler_cache.objections(request) == _said(scheduler_cache, request)


def test_a_new_scheduler_and_one_that_forgot_history_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_cache, "HISTORY", 4)
    monkeypatch.setattr(scheduler_cache, "RANKINGS", 2)
    rand, memory = Rand(7), SchedulerCache(Rand(1))
    for _ in range(300):
        _step(memory, (rand.below(6), rand.below(6), rand.below(4), 1 + rand.below(4)))
        request = rand.choice(WANTED)
        node_name = memory.choose(request)
        fitting = _fitting(memory, request, "")
        assert (node_name in fitting) if fitting else node_name is None
        if node_name is None:
            assert memory.objections(request) == _said(memory, request)


def test_the_least_taken_node_comes_first() -> None:
    scheduler_cache = cluster(node("a"), node("b"), node("c"))
    scheduler_cache.put_pod(pod("q", cpu="1"), "a")
    scheduler_cache.put_pod(pod("r", cpu="500m"), "b")
    assert scheduler_cache.choose(demand(cpu="1")) == "c"
    scheduler_cache.put_pod(pod("s", cpu="3"), "c")
    assert scheduler_cache.choose(demand(cpu="1")) == "b"


def test_a_pod_is_offered_the_node_that_it_is_nominated_for_first() -> None:
    scheduler_cache = cluster(node("a"), node("b"))
    affinity = demand(cpu="1")
    scheduler_cache.put_pod(pod("q", cpu="2"), "b")
    scheduler_cache.nominate("uid-p", "b", affinity)
    assert scheduler_cache.choose(affinity, "uid-p") == "b"
    assert scheduler_cache.choose(affinity, "uid-r") == "a"


def test_all_nodes_are_found_in_the_end_however_small_the_sample() -> None:
    many = 10 * node_ranking.SAMPLE
    scheduler_cache = cluster(*(node(f"n{number}", pods=1) for number in range(many)))
    request = demand()
    for number in range(many):
        node_name = scheduler_cache.choose(request)
        assert node_name is not None
        scheduler_cache.put_pod(pod(f"p{number}"), node_name, request)
    assert scheduler_cache.choose(request) is None
    assert (
        scheduler_cache.objections(request)
        == f"0/{many} nodes are available: {many} Too many pods."
    )


def test_one_pod_does_not_look_at_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler_cache = cluster(*(node(f"n{number}") for number in range(1000)))
    names: list[str] = []
    real = fit.objection

    def counting(affinity: Demand, place: fit.NodeView, but: str = "") -> fit.Objection | None:
        names.append(place.name)
        return real(affinity, place, but)

    monkeypatch.setattr(fit, "objection", counting)
    scheduler_cache.choose(demand(cpu="1"))
    assert len(names) == node_ranking.SAMPLE
    names.clear()
    affinity = DEMANDS.of(pod(cpu="1"))
    for number in range(100):
        node_name = scheduler_cache.choose(affinity)
        assert node_name is not None
        scheduler_cache.put_pod(pod(f"p{number}", cpu="1"), node_name, affinity)
    assert len(names) < 100 * (node_ranking.GROWTH + 2)


def test_a_change_that_nobody_need_care_about_is_none() -> None:
    scheduler_cache = cluster(node("a"))
    assert scheduler_cache.put_node(node("a")) is None
    assert scheduler_cache.put_node(node("a", cpu="5")) is not None


def test_places_of_pods_and_promises_that_are_gone_are_forgotten() -> None:
    scheduler_cache = SchedulerCache(Rand(1))
    scheduler_cache.put_pod(pod("q"), "a")
    scheduler_cache.nominate("uid-p", "b", demand())
    assert set(scheduler_cache.places) == {"a", "b"}
    scheduler_cache.remove_pod("uid-q")
    scheduler_cache.withdraw_nomination("uid-p")
    assert not scheduler_cache.places


def test_remembers_that_preemption_is_hopeless_until_a_node_gains_room() -> None:
    scheduler_cache, affinity = cluster(node("a")), demand(cpu="2", priority=10)
    scheduler_cache.put_pod(pod("q", cpu="4", priority=10), "a")
    assert scheduler_cache.hopeless(affinity) is None
    scheduler_cache.note_hopeless(affinity, "no victims")
    assert scheduler_cache.hopeless(affinity) == "no victims"
    scheduler_cache.remove_pod("uid-q")
    assert scheduler_cache.hopeless(affinity) is None


def test_the_same_seed_chooses_the_same() -> None:
    def run(seed: int) -> list[str | None]:
        scheduler_cache = cluster(*(node(f"n{number}") for number in range(50)), seed=seed)
        affinity, node_name = demand(cpu="1"), []
        for number in range(50):
            node_name.append(scheduler_cache.choose(affinity))
            scheduler_cache.put_pod(pod(f"p{number}", cpu="1"), node_name[-1] or "", affinity)
        return node_name

    assert run(3) == run(3)
    assert run(3) != run(4)
