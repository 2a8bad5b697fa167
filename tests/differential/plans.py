# SPDX-License-Identifier: Apache-2.0
"""Random Jobs and what happens to them, so that every run of a plan ends alike.

Two controllers can be compared only where the outcome is theirs: pods that
end differently end seconds apart, what a user does is done while all is quiet,
and no Job has more than two failures, because each of them costs a wait of ten
seconds and more. A plan follows from the seed and its number alone.
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

# At most one of these: a pod that takes the place of a deleted one may have its
# name, and events of one name are counted together, the third of them late.
ENDS_A_POD = ("delete", "evict")

# How a Job goes; without a word, as the API has it for Jobs.
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
    """One Job, what its pods do, and what happens to it."""

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
        """All of it, for people."""
        acts = [str(each) for each in self.acts]
        return {"spec": self.spec, **self.template, "simulate": self.simulate, "acts": acts}

    def attempt(self, index: int | None, number: int) -> Object:
        """What the nth attempt of an index, or of the Job, does."""
        life: Any = self.simulate.get(f"main/{index}", self.simulate.get("main", ends()))
        found: Object = life[min(number, len(life) - 1)] if isinstance(life, list) else life
        return found

    @property
    def is_indexed(self) -> bool:
        return "completionMode" in self.spec


def plan(seed: int, number: int) -> Plan:
    """The plan of this number."""
    random = Random(f"jobs/{seed}/{number}")
    made = Plan(number)
    random.choices((_one_by_one, _alike, _indexed, _per_index), (3, 2, 3, 2))[0](random, made)
    _add_policies(random, made)
    _add_ends(random, made)
    _add_acts(random, made)
    _add_force(random, made)
    _add_deletion(random, made)
    return made


# -- what the pods do -----------------------------------------------------------


def _life(random: Random, made: Plan, place: int) -> list[Object]:
    """What the attempts of one index do: it may fail, then goes well or on for ever."""
    lasts = 1.0 + APART_SECONDS * place
    attempts = []
    while made.failures < MOST_FAILURES and random.random() < 0.4:
        made.failures += 1
        attempts.append(ends(random.choice(CODES), lasts))
    return [*attempts, _last(random, lasts)]


def _last(random: Random, lasts: float) -> Object:
    chance = random.random()
    if chance < 0.5:
        return ends(0, lasts)
    return FOREVER if chance < 0.8 else stops(after=random.choice((1, 2)))


def _one_by_one(random: Random, made: Plan) -> None:
    """Never more than one pod: its attempts may differ."""
    made.spec["parallelism"] = 1
    if random.random() < 0.8:
        made.spec["completions"] = random.choice((1, 1, 2))
    made.spec["backoffLimit"] = random.choice((0, 1, 2, 6))
    made.simulate["main"] = _life(random, made, 0)
    if random.random() < 0.15:
        made.template["restartPolicy"] = "OnFailure"


def _alike(random: Random, made: Plan) -> None:
    """Pods that cannot be told apart, and do all the same."""
    made.spec["parallelism"] = random.choice((0, 2, 3))
    if random.random() < 0.7:
        made.spec["completions"] = random.choice((0, 2, 3, 4))
    made.simulate["main"] = _last(random, 1.0)


def _indexed(random: Random, made: Plan) -> None:
    count = random.choice((1, 2, 2, 3, 3))
    made.spec |= {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": random.choice((1, count, count)),
        "backoffLimit": random.choice((0, 1, 2, 6)),
    }
    for index in range(count):
        made.simulate[f"main/{index}"] = _life(random, made, index)


def _per_index(random: Random, made: Plan) -> None:
    _indexed(random, made)
    del made.spec["backoffLimit"]
    made.spec["backoffLimitPerIndex"] = random.choice((0, 0, 1))
    if random.random() < 0.4:
        most = min(2, made.spec["completions"])
        made.spec["maxFailedIndexes"] = random.randint(0, most)


# -- policies -------------------------------------------------------------------


def _add_policies(random: Random, made: Plan) -> None:
    restarts = "restartPolicy" in made.template
    if not restarts and random.random() < 0.5:
        rules = [_rule(random, made) for _ in range(random.choice((1, 1, 2)))]
        made.spec["podFailurePolicy"] = policy(*rules)
    elif random.random() < 0.4:
        wanted = random.choice(("Failed", "TerminatingOrFailed"))
        made.spec["podReplacementPolicy"] = wanted
    if made.is_indexed and random.random() < 0.3:
        made.spec["successPolicy"] = {"rules": [_success(random, made)]}


def _rule(random: Random, made: Plan) -> Object:
    actions = ["FailJob", "Ignore", "Count"]
    if "backoffLimitPerIndex" in made.spec:
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


def _success(random: Random, made: Plan) -> Object:
    count = made.spec["completions"]
    indexes = random.choice(("", f"0-{count - 1}" if count > 1 else "0", "0"))
    found: Object = {"succeededIndexes": indexes} if indexes else {}
    known = 1 if indexes == "0" else count
    if not indexes or random.random() < 0.5:
        found["succeededCount"] = random.randint(1, known)
    return found


def _add_ends(random: Random, made: Plan) -> None:
    """Deadlines, and Jobs that begin asleep."""
    if random.random() < 0.15:
        made.spec["suspend"] = True
    quiet = made.failures == 0 and all(_is_endless(each) for each in made.simulate.values())
    if quiet and random.random() < 0.3:
        made.spec["activeDeadlineSeconds"] = 4


def _is_endless(life: Any) -> bool:
    last = life[-1] if isinstance(life, list) else life
    return last["seconds"] is None


# -- what a user does -----------------------------------------------------------


Make = Callable[[Random, Plan], Act]


def _add_acts(random: Random, made: Plan) -> None:
    if "activeDeadlineSeconds" in made.spec:
        made.acts = [Act("resume")] if made.spec.get("suspend") else []
        return
    choices: list[Make] = [_suspend, _resume, _parallelism, _delete, _delete, _evict]
    if made.is_indexed:
        choices.append(_scale)
    for _ in range(random.choice((0, 1, 1, 2))):
        act = random.choice(choices)(random, made)
        made.acts.append(act)
        if act.verb in ENDS_A_POD:
            choices = [each for each in choices if each not in (_delete, _evict)]
    if made.spec.get("suspend") and random.random() < 0.8:
        made.acts.insert(0, Act("resume"))


def _suspend(random: Random, made: Plan) -> Act:
    return Act("suspend")


def _resume(random: Random, made: Plan) -> Act:
    return Act("resume")


def _parallelism(random: Random, made: Plan) -> Act:
    most = 1 if "main" in made.simulate and made.failures else 3
    return Act("parallelism", random.randint(0, most))


def _scale(random: Random, made: Plan) -> Act:
    """Indexes that a Job did not have before do as the default says: they go well."""
    return Act("scale", random.choice((1, 2, 5)))


def _place(random: Random, made: Plan) -> int:
    """Which of the pods that run: by index, or in the order of their creation."""
    return random.randrange(int(made.spec.get("parallelism", 1)) or 1)


def _delete(random: Random, made: Plan) -> Act:
    return Act("delete", _place(random, made))


def _evict(random: Random, made: Plan) -> Act:
    return Act("evict", _place(random, made))


def _add_force(random: Random, made: Plan) -> None:
    """Only where the Job waits for a pod's end: else it may be gone before its node knows."""
    spec = made.spec
    if spec.get("podReplacementPolicy") != "Failed" and "podFailurePolicy" not in spec:
        return
    made.acts = [
        Act("force", each.value) if each.verb == "delete" and random.random() < 0.5 else each
        for each in made.acts
    ]


def _add_deletion(random: Random, made: Plan) -> None:
    if random.random() < 0.15:
        made.acts.append(Act("delete_job", random.choice(PROPAGATIONS)))
