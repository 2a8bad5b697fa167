# SPDX-License-Identifier: Apache-2.0
"""The scheduler's memory: whatever happens, it decides as one that looks at everything anew."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from refloat.api.core import Taint
from refloat.base.rand import Rand
from refloat.policy import cluster as clusters
from refloat.policy import fit, ranking
from refloat.policy.cluster import Cluster
from refloat.policy.demand import Demand, Demands
from tests.unit.policy.scheduling import cluster, demand, node, pod

TAINTS = ((), (Taint("k", "v", "NoSchedule"),), (Taint("k", "v", "PreferNoSchedule"),))

DEMANDS = Demands()
WANTED = [
    DEMANDS.of(pod(cpu=cpu, priority=priority)) for cpu in ("", "1", "3") for priority in (0, 10)
]


def _fitting(made: Cluster, wanted: Demand, uid: str) -> list[str]:
    places = made.places.values()
    return [each.name for each in places if each.known and fit.objection(wanted, each, uid) is None]


def _said(made: Cluster, wanted: Demand) -> str:
    """What a scheduler that knows nothing yet would say."""
    tally: dict[str, int] = {}
    for each in made.places.values():
        against = fit.objection(wanted, each) if each.known else None
        for reason in against.reasons if against is not None else ():
            tally[reason] = tally.get(reason, 0) + 1
    return fit.message(len(made), tally) if len(made) else fit.NO_NODES


def _step(made: Cluster, step: tuple[int, int, int, int]) -> None:
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
        made.promise(uid, name, WANTED[what % len(WANTED)])
    elif kind == 5:
        made.withdraw(uid)


STEPS = some.tuples(
    some.integers(0, 5), some.integers(0, 5), some.integers(0, 3), some.integers(1, 4)
)


@given(some.lists(STEPS, max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_history_leads_to_what_looking_anew_says(
    steps: list[tuple[int, int, int, int]],
) -> None:
    made = Cluster(Rand(1))
    for step in steps:
        _step(made, step)
        for wanted in WANTED:
            fitting = _fitting(made, wanted, "")
            chosen = made.choose(wanted)
            assert (chosen in fitting) if fitting else chosen is None
            if chosen is None:
                assert made.objections(wanted) == _said(made, wanted)


def test_a_new_scheduler_and_one_that_forgot_history_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "HISTORY", 4)
    monkeypatch.setattr(clusters, "RANKINGS", 2)
    rand, made = Rand(7), Cluster(Rand(1))
    for _ in range(300):
        _step(made, (rand.below(6), rand.below(6), rand.below(4), 1 + rand.below(4)))
        wanted = rand.choice(WANTED)
        chosen = made.choose(wanted)
        fitting = _fitting(made, wanted, "")
        assert (chosen in fitting) if fitting else chosen is None
        if chosen is None:
            assert made.objections(wanted) == _said(made, wanted)


def test_the_least_taken_node_comes_first() -> None:
    made = cluster(node("a"), node("b"), node("c"))
    made.put_pod(pod("q", cpu="1"), "a")
    made.put_pod(pod("r", cpu="500m"), "b")
    assert made.choose(demand(cpu="1")) == "c"
    made.put_pod(pod("s", cpu="3"), "c")
    assert made.choose(demand(cpu="1")) == "b"


def test_a_pod_is_offered_the_node_that_it_is_nominated_for_first() -> None:
    made = cluster(node("a"), node("b"))
    wanted = demand(cpu="1")
    made.put_pod(pod("q", cpu="2"), "b")
    made.promise("uid-p", "b", wanted)
    assert made.choose(wanted, "uid-p") == "b"
    assert made.choose(wanted, "uid-r") == "a"


def test_all_nodes_are_found_in_the_end_however_small_the_sample() -> None:
    many = 10 * ranking.SAMPLE
    made = cluster(*(node(f"n{number}", pods=1) for number in range(many)))
    wanted = demand()
    for number in range(many):
        chosen = made.choose(wanted)
        assert chosen is not None
        made.put_pod(pod(f"p{number}"), chosen, wanted)
    assert made.choose(wanted) is None
    assert made.objections(wanted) == f"0/{many} nodes are available: {many} Too many pods."


def test_one_pod_does_not_look_at_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster(*(node(f"n{number}") for number in range(1000)))
    looked: list[str] = []
    real = fit.objection

    def counting(wanted: Demand, place: fit.Place, but: str = "") -> fit.Objection | None:
        looked.append(place.name)
        return real(wanted, place, but)

    monkeypatch.setattr(fit, "objection", counting)
    made.choose(demand(cpu="1"))
    assert len(looked) == ranking.SAMPLE
    looked.clear()
    wanted = DEMANDS.of(pod(cpu="1"))
    for number in range(100):
        chosen = made.choose(wanted)
        assert chosen is not None
        made.put_pod(pod(f"p{number}", cpu="1"), chosen, wanted)
    assert len(looked) < 100 * (ranking.GROWTH + 2)


def test_a_change_that_nobody_need_care_about_is_none() -> None:
    made = cluster(node("a"))
    assert made.put_node(node("a")) is None
    assert made.put_node(node("a", cpu="5")) is not None


def test_places_of_pods_and_promises_that_are_gone_are_forgotten() -> None:
    made = Cluster(Rand(1))
    made.put_pod(pod("q"), "a")
    made.promise("uid-p", "b", demand())
    assert set(made.places) == {"a", "b"}
    made.remove_pod("uid-q")
    made.withdraw("uid-p")
    assert not made.places


def test_the_same_seed_chooses_the_same() -> None:
    def run(seed: int) -> list[str | None]:
        made = cluster(*(node(f"n{number}") for number in range(50)), seed=seed)
        wanted, chosen = demand(cpu="1"), []
        for number in range(50):
            chosen.append(made.choose(wanted))
            made.put_pod(pod(f"p{number}", cpu="1"), chosen[-1] or "", wanted)
        return chosen

    assert run(3) == run(3)
    assert run(3) != run(4)
