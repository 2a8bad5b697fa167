# SPDX-License-Identifier: Apache-2.0
"""Random Jobs and what happens to them, so that every run of a plan ends alike.

Two controllers can be compared only where the outcome is theirs: pods that
end differently end seconds apart, what a user does is done while all is quiet,
and no Job has more than two failures, because each of them costs a wait of ten
seconds and more. A plan follows from the seed and the number alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from refloat.api.meta import Object
from tests.scenarios.scenario import FOREVER, ends, on_condition, policy, rule, stops

# Between ends of pods that are not alike. A busy controller may be late by two
# seconds; and the third index ends before the first one's second attempt does.
APART_SECONDS = 4.0

CODES = (1, 3, 42)

MOST_FAILURES = 2

# At most one of these: a pod that takes the place of a deleted one may have the
# name, and events of one name are counted together, the third of them late.
ENDS_A_POD = ("delete", "evict")

# How a Job goes; without an annotation, by the default of the API.
PROPAGATIONS = (None, "Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class Act:
    """What a user does while all is quiet."""

    verb: str
    value: Any = None

    def __str__(self) -> str:
        return self.verb if self.value is None else f"{self.verb} {self.value}"


@dataclass
class Plan:
    """One Job, the work of the pods, and the acts of the user."""

    number: int
    spec: Object = field(default_factory=dict)
    template: Object = field(default_factory=dict)
    simulate: Object = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    failures: int = 0

    @property
    def name(self) -> str:
        return f"case_{self.number}"

    def told(self) -> Object:
        """The whole plan, for people."""
        acts = [str(each) for each in self.acts]
        return {"spec": self.spec, **self.template, "simulate": self.simulate, "acts": acts}

    def attempt(self, index: int | None, number: int) -> Object:
        """What the nth attempt of an index, or of the Job, does."""
        life: Any = self.simulate.get(f"main/{index}", self.simulate.get("main", ends()))
        attempt: Object = life[min(number, len(life) - 1)] if isinstance(life, list) else life
        return attempt

    @property
    def is_indexed(self) -> bool:
        return "completionMode" in self.spec


def plan(seed: int, number: int) -> Plan:
    """The plan of this number."""
    random = Random(f"jobs/{seed}/{number}")
    plan = Plan(number)
    random.choices((_one_by_one, _alike, _indexed, _per_index), (3, 2, 3, 2))[0](random, plan)
    _add_policies(random, plan)
    _add_ends(random, plan)
    _add_acts(random, plan)
    _add_force(random, plan)
    _add_deletion(random, plan)
    return plan


# -- what the pods do -----------------------------------------------------------


def _life(random: Random, plan: Plan, place: int) -> list[Object]:
    """The attempts of one index: some fail, the last one succeeds or runs for ever."""
    lasts = 1.0 + APART_SECONDS * place
    attempts = []
    while plan.failures < MOST_FAILURES and random.random() < 0.4:
        plan.failures += 1
        attempts.append(ends(random.choice(CODES), lasts))
    return [*attempts, _last(random, lasts)]


def _last(random: Random, lasts: float) -> Object:
    chance = random.random()
    if chance < 0.5:
        return ends(0, lasts)
    return FOREVER if chance < 0.8 else stops(after=random.choice((1, 2)))


def _one_by_one(random: Random, plan: Plan) -> None:
    """Never more than one pod: the attempts may differ."""
    plan.spec["parallelism"] = 1
    if random.random() < 0.8:
        plan.spec["completions"] = random.choice((1, 1, 2))
    plan.spec["backoffLimit"] = random.choice((0, 1, 2, 6))
    plan.simulate["main"] = _life(random, plan, 0)
    if random.random() < 0.15:
        plan.template["restartPolicy"] = "OnFailure"


def _alike(random: Random, plan: Plan) -> None:
    """Pods without an index, which all do the same."""
    plan.spec["parallelism"] = random.choice((0, 2, 3))
    if random.random() < 0.7:
        plan.spec["completions"] = random.choice((0, 2, 3, 4))
    plan.simulate["main"] = _last(random, 1.0)


def _indexed(random: Random, plan: Plan) -> None:
    count = random.choice((1, 2, 2, 3, 3))
    plan.spec |= {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": random.choice((1, count, count)),
        "backoffLimit": random.choice((0, 1, 2, 6)),
    }
    for index in range(count):
        plan.simulate[f"main/{index}"] = _life(random, plan, index)


def _per_index(random: Random, plan: Plan) -> None:
    _indexed(random, plan)
    del plan.spec["backoffLimit"]
    plan.spec["backoffLimitPerIndex"] = random.choice((0, 0, 1))
    if random.random() < 0.4:
        most = min(2, plan.spec["completions"])
        plan.spec["maxFailedIndexes"] = random.randint(0, most)


# -- policies -------------------------------------------------------------------


def _add_policies(random: Random, plan: Plan) -> None:
    restarts = "restartPolicy" in plan.template
    if not restarts and random.random() < 0.5:
        rules = [_rule(random, plan) for _ in range(random.choice((1, 1, 2)))]
        plan.spec["podFailurePolicy"] = policy(*rules)
    elif random.random() < 0.4:
        replacement = random.choice(("Failed", "TerminatingOrFailed"))
        plan.spec["podReplacementPolicy"] = replacement
    if plan.is_indexed and random.random() < 0.3:
        plan.spec["successPolicy"] = {"rules": [_success(random, plan)]}


def _rule(random: Random, plan: Plan) -> Object:
    actions = ["FailJob", "Ignore", "Count"]
    if "backoffLimitPerIndex" in plan.spec:
        actions.append("FailIndex")
    action = random.choice(actions)
    if random.random() < 0.3:
        return on_condition(action, status=random.choice(("", "True", "False")))
    codes = sorted(random.sample((*CODES, 143), random.choice((1, 2))))
    return rule(
        action,
        *codes,
        operator=random.choice(("In", "In", "NotIn")),
        container=random.choice(("", "main")),
    )


def _success(random: Random, plan: Plan) -> Object:
    count = plan.spec["completions"]
    indexes = random.choice(("", f"0-{count - 1}" if count > 1 else "0", "0"))
    rule: Object = {"succeededIndexes": indexes} if indexes else {}
    bound = 1 if indexes == "0" else count
    if not indexes or random.random() < 0.5:
        rule["succeededCount"] = random.randint(1, bound)
    return rule


def _add_ends(random: Random, plan: Plan) -> None:
    """Deadlines, and Jobs that begin asleep."""
    if random.random() < 0.15:
        plan.spec["suspend"] = True
    quiet = plan.failures == 0 and all(_is_endless(each) for each in plan.simulate.values())
    if quiet and random.random() < 0.3:
        plan.spec["activeDeadlineSeconds"] = 4


def _is_endless(life: Any) -> bool:
    last = life[-1] if isinstance(life, list) else life
    return last["seconds"] is None


# -- what a user does -----------------------------------------------------------


Make = Callable[[Random, Plan], Act]


def _add_acts(random: Random, plan: Plan) -> None:
    if "activeDeadlineSeconds" in plan.spec:
        plan.acts = [Act("resume")] if plan.spec.get("suspend") else []
        return
    choices: list[Make] = [_suspend, _resume, _parallelism, _delete, _delete, _evict]
    if plan.is_indexed:
        choices.append(_scale)
    for _ in range(random.choice((0, 1, 1, 2))):
        act = random.choice(choices)(random, plan)
        plan.acts.append(act)
        if act.verb in ENDS_A_POD:
            choices = [each for each in choices if each not in (_delete, _evict)]
    if plan.spec.get("suspend") and random.random() < 0.8:
        plan.acts.insert(0, Act("resume"))


def _suspend(random: Random, plan: Plan) -> Act:
    return Act("suspend")


def _resume(random: Random, plan: Plan) -> Act:
    return Act("resume")


def _parallelism(random: Random, plan: Plan) -> Act:
    most = 1 if "main" in plan.simulate and plan.failures else 3
    return Act("parallelism", random.randint(0, most))


def _scale(random: Random, plan: Plan) -> Act:
    """New indexes of a Job follow the default: they succeed."""
    return Act("scale", random.choice((1, 2, 5)))


def _place(random: Random, plan: Plan) -> int:
    """Which of the pods that run: by index, or in the order of their creation."""
    return random.randrange(int(plan.spec.get("parallelism", 1)) or 1)


def _delete(random: Random, plan: Plan) -> Act:
    return Act("delete", _place(random, plan))


def _evict(random: Random, plan: Plan) -> Act:
    return Act("evict", _place(random, plan))


def _add_force(random: Random, plan: Plan) -> None:
    """Only if the Job waits for the pod's end: else the pod may be gone before the node knows."""
    spec = plan.spec
    if spec.get("podReplacementPolicy") != "Failed" and "podFailurePolicy" not in spec:
        return
    plan.acts = [
        Act("force", each.value) if each.verb == "delete" and random.random() < 0.5 else each
        for each in plan.acts
    ]


def _add_deletion(random: Random, plan: Plan) -> None:
    if random.random() < 0.15:
        plan.acts.append(Act("delete_job", random.choice(PROPAGATIONS)))
