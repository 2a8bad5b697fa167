# SPDX-License-Identifier: Apache-2.0
"""Which pods make room for one of higher priority (behaviour C7), and the message if none can."""

from typing import Any

from refloat.api import selectors
from refloat.api.core import Pod
from refloat.base.rand import Rand
from refloat.policy.scheduling import preemption
from refloat.policy.scheduling.demand import Demands
from refloat.policy.scheduling.fit import Objection
from refloat.policy.scheduling.preemption import DisruptionAllowance, NoVictims, Victims
from tests.cases import cases
from tests.unit.policy.scheduling.objects import cluster, container, demand, node, place, pod

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
PORT = [{"containerPort": 1, "hostPort": 80, "protocol": "TCP"}]


def budget(allowed: int, *, disrupted: tuple[str, ...] = (), app: str = "a") -> DisruptionAllowance:
    selector = selectors.parse_labels(f"app={app}" if app else "")
    return DisruptionAllowance("default", selector, allowed, frozenset(disrupted))


def guarded(name: str, **more: Any) -> Pod:
    return pod(name, labels={"app": "a"}, **more)


def names(found: object) -> list[str]:
    assert isinstance(found, Victims)
    return [each.metadata.name for each in found.pods]


@cases(
    "pods wanted want",
    {
        "no more than it takes": ([pod("a", cpu="2"), pod("b", cpu="2")], {"cpu": "2"}, ["b"]),
        "the one that helps": ([pod("a", cpu="1"), pod("b", cpu="3")], {"cpu": "3"}, ["b"]),
        "the lower one": (
            [pod("a", cpu="2", priority=3), pod("b", cpu="2", priority=2)],
            {"cpu": "2"},
            ["b"],
        ),
        "of equals the one that has run for less": (
            [pod("a", cpu="2", started=LATE), pod("b", cpu="2", started=EARLY)],
            {"cpu": "2"},
            ["a"],
        ),
        "one that has not started before one that has": (
            [pod("a", cpu="2"), pod("b", cpu="2", started=EARLY)],
            {"cpu": "2"},
            ["a"],
        ),
        "the more important victim is named first": (
            [pod("a", cpu="1", priority=3), pod("b", cpu="1", priority=1), pod("c", cpu="2")],
            {"cpu": "3"},
            ["b", "c"],
        ),
        "never one of equal priority": (
            [pod("a", cpu="2", priority=10), pod("b", cpu="2")],
            {"cpu": "2"},
            ["b"],
        ),
        "who holds the port": (
            [pod("a", containers=[container(ports=PORT)]), pod("b")],
            {"containers": [container(ports=PORT)]},
            ["a"],
        ),
    },
)
def test_on_a_node_goes(pods: list[Pod], wanted: dict[str, Any], want: list[str]) -> None:
    answer = preemption.on_node(demand(priority=10, **wanted), place(*pods), ())
    assert names(answer) == want


@cases(
    "pods cpu want",
    {
        "empty": ([], "5", "No preemption victims found for incoming pod"),
        "only equals": (
            [pod("a", cpu="4", priority=10)],
            "1",
            "No preemption victims found for incoming pod",
        ),
        "not enough even without them": (
            [pod("a", cpu="3", priority=10), pod("b", cpu="1")],
            "2",
            "Insufficient cpu",
        ),
    },
)
def test_on_a_node_nobody_goes(pods: list[Pod], cpu: str, want: str) -> None:
    answer = preemption.on_node(demand(priority=10, cpu=cpu), place(*pods), ())
    assert isinstance(answer, Objection)
    assert answer.reasons == (want,)


@cases(
    "budgets want violations",
    {
        "without a budget": ([], ["a"], 0),
        "a budget is respected where possible": ([budget(0)], ["b"], 0),
        "a budget that allows it": ([budget(1)], ["a"], 0),
        "one that has counted it": ([budget(0, disrupted=("a",))], ["a"], 0),
        "one that selects nothing": ([budget(0, app="")], ["a"], 0),
        "the strictest counts": ([budget(1), budget(0)], ["b"], 0),
    },
)
def test_budgets(budgets: list[DisruptionAllowance], want: list[str], violations: int) -> None:
    """Pod a is the less important one, and protected."""
    node_info = place(guarded("a", cpu="2"), pod("b", cpu="2", priority=5))
    answer = preemption.on_node(demand(priority=10, cpu="2"), node_info, budgets)
    assert names(answer) == want
    assert isinstance(answer, Victims)
    assert answer.violations == violations


def test_a_budget_is_broken_if_it_must_be() -> None:
    node_info = place(guarded("a", cpu="2"), guarded("b", cpu="2", priority=5))
    answer = preemption.on_node(demand(priority=10, cpu="4"), node_info, [budget(1)])
    assert names(answer) == ["b", "a"]
    assert isinstance(answer, Victims)
    assert answer.violations == 1


def test_a_victim_counts_against_all_its_budgets_also_after_one_is_broken() -> None:
    both = pod("both", cpu="2", priority=5, labels={"app": "a", "tier": "t"})
    node_info = place(both, pod("other", cpu="2", labels={"tier": "t"}))
    tier = DisruptionAllowance("default", selectors.parse_labels("tier=t"), 1)
    answer = preemption.on_node(demand(priority=10, cpu="4"), node_info, [budget(0), tier])
    assert names(answer) == ["both", "other"]
    assert isinstance(answer, Victims)
    assert answer.violations == 2


def victims(name: str, *pods: Pod, violations: int = 0) -> Victims:
    return Victims(name, pods, violations)


@cases(
    "worse better",
    {
        "fewer broken budgets": (
            victims("x", pod(), violations=1),
            victims("y", pod(priority=9), pod(priority=9)),
        ),
        "then the lowest highest priority": (
            victims("x", pod(priority=9)),
            victims("y", pod(priority=8), pod(priority=8)),
        ),
        "then the lowest sum": (
            victims("x", pod(priority=9), pod(priority=3)),
            victims("y", pod(priority=9), pod(priority=2)),
        ),
        "fewer pods, also of negative priority": (
            victims("x", pod(priority=-5), pod(priority=-5)),
            victims("y", pod(priority=-5)),
        ),
        "then who has run for less": (
            victims("x", pod(started=EARLY)),
            victims("y", pod(started=LATE)),
        ),
        "where only the most important victims count": (
            victims("x", pod(priority=2, started=EARLY), pod(started=LATE)),
            victims("y", pod(priority=2, started=LATE), pod(started=EARLY)),
        ),
    },
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


@cases(
    "spec nominated_node leaving want",
    {
        "it may not": (
            {"preemptionPolicy": "Never"},
            "",
            _there,
            NoVictims(
                f"{PREFIX} not eligible due to preemptionPolicy=Never.", keeps_nomination=True
            ),
        ),
        "somebody is leaving for it already": (
            {},
            "a",
            _gone,
            NoVictims(
                f"{PREFIX} not eligible due to a terminating pod on the nominated node.",
                keeps_nomination=True,
            ),
        ),
        "the nodes are too small": (
            {"cpu": "5"},
            "",
            _there,
            NoVictims(
                f"{PREFIX} 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
                is_of_all_nodes=True,
            ),
        ),
        "nobody is less important": (
            {"priority": 0},
            "",
            _there,
            NoVictims(
                f"{PREFIX} 0/2 nodes are available: "
                "1 No preemption victims found for incoming pod, "
                "1 Preemption is not helpful for scheduling.",
                is_of_all_nodes=True,
            ),
        ),
    },
)
def test_nobody_is_preempted(
    spec: dict[str, Any], nominated_node: str, leaving: preemption.Leaving, want: NoVictims
) -> None:
    scheduler_cache = cluster(node("a"), node("b", unschedulable=True))
    scheduler_cache.put_pod(pod("q", cpu="4"), "a")
    affinity = Demands().of(pod(**{"priority": 10, "cpu": "2", **spec}))
    if nominated_node:
        scheduler_cache.nominate("uid-p", nominated_node, affinity)
    assert scheduler_cache.choose(affinity, "uid-p") is None
    answer = preemption.plan(
        scheduler_cache, affinity, "uid-p", budgets=(), rand=Rand(1), leaving=leaving
    )
    assert answer == want


def test_who_is_promised_another_node_may_preempt_there_again() -> None:
    """The nominated node has become unfit: the leaving of its pods does not help."""
    scheduler_cache = cluster(node("a", unschedulable=True), node("b"))
    for name in ("a", "b"):
        scheduler_cache.put_pod(pod(f"on-{name}", cpu="4"), name)
    affinity = demand(cpu="2", priority=10)
    scheduler_cache.nominate("uid-p", "a", affinity)
    assert scheduler_cache.choose(affinity, "uid-p") is None
    answer = preemption.plan(
        scheduler_cache, affinity, "uid-p", budgets=(), rand=Rand(1), leaving=_gone
    )
    assert names(answer) == ["on-b"]


def test_two_preemptors_do_not_count_on_the_same_room() -> None:
    scheduler_cache = cluster(node("a"), node("b"))
    for name in ("a", "b"):
        scheduler_cache.put_pod(pod(f"on-{name}", cpu="4"), name)
    affinity = demand(cpu="3", priority=10)
    nodes = []
    for uid in ("one", "two"):
        assert scheduler_cache.choose(affinity, uid) is None
        plan = preemption.plan(
            scheduler_cache, affinity, uid, budgets=(), rand=Rand(1), leaving=_there
        )
        assert isinstance(plan, Victims)
        scheduler_cache.nominate(uid, plan.node, affinity)
        nodes.append(plan.node)
    assert sorted(nodes) == ["a", "b"]
    assert scheduler_cache.choose(affinity, "three") is None
    plan = preemption.plan(
        scheduler_cache, affinity, "three", budgets=(), rand=Rand(1), leaving=_there
    )
    text = f"{PREFIX} 0/2 nodes are available: 2 Insufficient cpu."
    assert plan == NoVictims(text, is_of_all_nodes=True)


MARK = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@cases(
    "spec by_condition want",
    {
        "preempted": ({"deleted": EARLY, "conditions": [MARK]}, True, True),
        "marked, not yet deleted": ({"conditions": [MARK]}, True, False),
        "deleted by somebody else": ({"deleted": EARLY}, True, False),
        "evicted": (
            {"deleted": EARLY, "conditions": [{**MARK, "reason": "EvictionByEvictionAPI"}]},
            True,
            False,
        ),
        "deleted, and nobody writes conditions": ({"deleted": EARLY}, False, True),
    },
)
def test_a_pod_is_leaving(spec: dict[str, Any], by_condition: bool, want: bool) -> None:
    assert preemption.is_leaving(pod(**spec), by_condition=by_condition) is want
