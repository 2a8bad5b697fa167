# SPDX-License-Identifier: Apache-2.0
"""Who makes room for a pod of higher priority (behaviour C7), and what is said if nobody can."""

from typing import Any

import pytest

from refloat.api import selectors
from refloat.api.core import Pod
from refloat.base.rand import Rand
from refloat.policy import preemption
from refloat.policy.demand import Demands
from refloat.policy.fit import Objection
from refloat.policy.preemption import Budget, Nobody, Victims
from tests.unit.policy.scheduling import cluster, container, demand, node, place, pod

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
PORT = [{"containerPort": 1, "hostPort": 80, "protocol": "TCP"}]


def budget(allowed: int, *, disrupted: tuple[str, ...] = (), app: str = "a") -> Budget:
    selector = selectors.parse_labels(f"app={app}" if app else "")
    return Budget("default", selector, allowed, frozenset(disrupted))


def guarded(name: str, **more: Any) -> Pod:
    return pod(name, labels={"app": "a"}, **more)


def names(found: object) -> list[str]:
    assert isinstance(found, Victims)
    return [each.metadata.name for each in found.pods]


@pytest.mark.parametrize(
    ("pods", "wanted", "want"),
    [
        pytest.param(
            [pod("a", cpu="2"), pod("b", cpu="2")], {"cpu": "2"}, ["b"], id="no more than it takes"
        ),
        pytest.param(
            [pod("a", cpu="1"), pod("b", cpu="3")], {"cpu": "3"}, ["b"], id="the one that helps"
        ),
        pytest.param(
            [pod("a", cpu="2", priority=3), pod("b", cpu="2", priority=2)],
            {"cpu": "2"},
            ["b"],
            id="the lower one",
        ),
        pytest.param(
            [pod("a", cpu="2", started=LATE), pod("b", cpu="2", started=EARLY)],
            {"cpu": "2"},
            ["a"],
            id="of equals the one that has run for less",
        ),
        pytest.param(
            [pod("a", cpu="2"), pod("b", cpu="2", started=EARLY)],
            {"cpu": "2"},
            ["a"],
            id="one that has not started before one that has",
        ),
        pytest.param(
            [pod("a", cpu="1", priority=3), pod("b", cpu="1", priority=1), pod("c", cpu="2")],
            {"cpu": "3"},
            ["b", "c"],
            id="the more important victim is named first",
        ),
        pytest.param(
            [pod("a", cpu="2", priority=10), pod("b", cpu="2")],
            {"cpu": "2"},
            ["b"],
            id="never one of equal priority",
        ),
        pytest.param(
            [pod("a", containers=[container(ports=PORT)]), pod("b")],
            {"containers": [container(ports=PORT)]},
            ["a"],
            id="who holds the port",
        ),
    ],
)
def test_on_a_node_goes(pods: list[Pod], wanted: dict[str, Any], want: list[str]) -> None:
    found = preemption.on_node(demand(priority=10, **wanted), place(*pods), ())
    assert names(found) == want


@pytest.mark.parametrize(
    ("pods", "cpu", "want"),
    [
        pytest.param([], "5", "No preemption victims found for incoming pod", id="empty"),
        pytest.param(
            [pod("a", cpu="4", priority=10)],
            "1",
            "No preemption victims found for incoming pod",
            id="only equals",
        ),
        pytest.param(
            [pod("a", cpu="3", priority=10), pod("b", cpu="1")],
            "2",
            "Insufficient cpu",
            id="not enough even without them",
        ),
    ],
)
def test_on_a_node_nobody_goes(pods: list[Pod], cpu: str, want: str) -> None:
    found = preemption.on_node(demand(priority=10, cpu=cpu), place(*pods), ())
    assert isinstance(found, Objection)
    assert found.reasons == (want,)


@pytest.mark.parametrize(
    ("budgets", "want", "violations"),
    [
        pytest.param([], ["a"], 0, id="without a budget"),
        pytest.param([budget(0)], ["b"], 0, id="a budget is respected where possible"),
        pytest.param([budget(1)], ["a"], 0, id="a budget that allows it"),
        pytest.param([budget(0, disrupted=("a",))], ["a"], 0, id="one that has counted it"),
        pytest.param([budget(0, app="")], ["a"], 0, id="one that selects nothing"),
        pytest.param([budget(1), budget(0)], ["b"], 0, id="the strictest counts"),
    ],
)
def test_budgets(budgets: list[Budget], want: list[str], violations: int) -> None:
    """Pod a is the less important one, and protected."""
    made = place(guarded("a", cpu="2"), pod("b", cpu="2", priority=5))
    found = preemption.on_node(demand(priority=10, cpu="2"), made, budgets)
    assert names(found) == want
    assert isinstance(found, Victims)
    assert found.violations == violations


def test_a_budget_is_broken_if_it_must_be() -> None:
    made = place(guarded("a", cpu="2"), guarded("b", cpu="2", priority=5))
    found = preemption.on_node(demand(priority=10, cpu="4"), made, [budget(1)])
    assert names(found) == ["b", "a"]
    assert isinstance(found, Victims)
    assert found.violations == 1


def victims(name: str, *pods: Pod, violations: int = 0) -> Victims:
    return Victims(name, pods, violations)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        pytest.param(
            victims("x", pod(), violations=1),
            victims("y", pod(priority=9), pod(priority=9)),
            id="fewer broken budgets",
        ),
        pytest.param(
            victims("x", pod(priority=9)),
            victims("y", pod(priority=8), pod(priority=8)),
            id="then the lowest highest priority",
        ),
        pytest.param(
            victims("x", pod(priority=9), pod(priority=3)),
            victims("y", pod(priority=9), pod(priority=2)),
            id="then the lowest sum",
        ),
        pytest.param(
            victims("x", pod(priority=-5), pod(priority=-5)),
            victims("y", pod(priority=-5)),
            id="fewer pods, also of negative priority",
        ),
        pytest.param(
            victims("x", pod(started=EARLY)),
            victims("y", pod(started=LATE)),
            id="then who has run for less",
        ),
        pytest.param(
            victims("x", pod(priority=2, started=EARLY), pod(started=LATE)),
            victims("y", pod(priority=2, started=LATE), pod(started=EARLY)),
            id="where only the most important victims count",
        ),
    ],
)
def test_of_two_nodes(worse: Victims, better: Victims) -> None:
    for seed in range(5):
        assert preemption.pick([worse, better], Rand(seed)) is better
        assert preemption.pick([better, worse], Rand(seed)) is better


def test_chance_decides_among_equal_nodes() -> None:
    equal = [victims("x", pod()), victims("y", pod()), victims("z", pod())]
    picked = {preemption.pick(equal, Rand(seed)).node for seed in range(30)}
    assert picked == {"x", "y", "z"}


def _gone(_: Pod) -> bool:
    return True


def _there(_: Pod) -> bool:
    return False


PREFIX = "no new claims to deallocate, preemption:"


@pytest.mark.parametrize(
    ("spec", "promised", "leaving", "want"),
    [
        pytest.param(
            {"preemptionPolicy": "Never"},
            "",
            _there,
            Nobody(f"{PREFIX} not eligible due to preemptionPolicy=Never.", keeps_promise=True),
            id="it may not",
        ),
        pytest.param(
            {},
            "a",
            _gone,
            Nobody(
                f"{PREFIX} not eligible due to a terminating pod on the nominated node.",
                keeps_promise=True,
            ),
            id="somebody is leaving for it already",
        ),
        pytest.param(
            {"cpu": "5"},
            "",
            _there,
            Nobody(
                f"{PREFIX} 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
            ),
            id="the nodes are too small",
        ),
        pytest.param(
            {"priority": 0},
            "",
            _there,
            Nobody(
                f"{PREFIX} 0/2 nodes are available: "
                "1 No preemption victims found for incoming pod, "
                "1 Preemption is not helpful for scheduling."
            ),
            id="nobody is less important",
        ),
    ],
)
def test_nobody_is_preempted(
    spec: dict[str, Any], promised: str, leaving: preemption.Leaving, want: Nobody
) -> None:
    made = cluster(node("a"), node("b", unschedulable=True))
    made.put_pod(pod("q", cpu="4"), "a")
    wanted = Demands().of(pod(**{"priority": 10, "cpu": "2", **spec}))
    if promised:
        made.promise("uid-p", promised, wanted)
    assert made.choose(wanted, "uid-p") is None
    answer = preemption.plan(made, wanted, "uid-p", budgets=(), rand=Rand(1), leaving=leaving)
    assert answer == want
    again = preemption.plan(made, wanted, "uid-p", budgets=(), rand=Rand(1), leaving=leaving)
    assert again == want


def test_who_is_promised_another_node_may_preempt_there_again() -> None:
    """The node that it was promised has become unfit: nobody's leaving helps it."""
    made = cluster(node("a", unschedulable=True), node("b"))
    for name in ("a", "b"):
        made.put_pod(pod(f"on-{name}", cpu="4"), name)
    wanted = demand(cpu="2", priority=10)
    made.promise("uid-p", "a", wanted)
    assert made.choose(wanted, "uid-p") is None
    answer = preemption.plan(made, wanted, "uid-p", budgets=(), rand=Rand(1), leaving=_gone)
    assert names(answer) == ["on-b"]


def test_two_preemptors_do_not_count_on_the_same_room() -> None:
    made = cluster(node("a"), node("b"))
    for name in ("a", "b"):
        made.put_pod(pod(f"on-{name}", cpu="4"), name)
    wanted = demand(cpu="3", priority=10)
    nodes = []
    for uid in ("one", "two"):
        assert made.choose(wanted, uid) is None
        plan = preemption.plan(made, wanted, uid, budgets=(), rand=Rand(1), leaving=_there)
        assert isinstance(plan, Victims)
        made.promise(uid, plan.node, wanted)
        nodes.append(plan.node)
    assert sorted(nodes) == ["a", "b"]
    assert made.choose(wanted, "three") is None
    plan = preemption.plan(made, wanted, "three", budgets=(), rand=Rand(1), leaving=_there)
    assert plan == Nobody(f"{PREFIX} 0/2 nodes are available: 2 Insufficient cpu.")


MARK = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("spec", "by_condition", "want"),
    [
        pytest.param({"deleted": EARLY, "conditions": [MARK]}, True, True, id="preempted"),
        pytest.param({"conditions": [MARK]}, True, False, id="marked, not yet deleted"),
        pytest.param({"deleted": EARLY}, True, False, id="deleted by somebody else"),
        pytest.param(
            {"deleted": EARLY, "conditions": [{**MARK, "reason": "EvictionByEvictionAPI"}]},
            True,
            False,
            id="evicted",
        ),
        pytest.param({"deleted": EARLY}, False, True, id="deleted, and nobody writes conditions"),
    ],
)
def test_a_pod_is_leaving(spec: dict[str, Any], by_condition: bool, want: bool) -> None:
    assert preemption.is_leaving(pod(**spec), by_condition=by_condition) is want
