# SPDX-License-Identifier: Apache-2.0
"""Random faults from a seed: which component, which fault, for how long, in which order.

The schedule is drawn before anything runs, so that one seed is one schedule, however
fast the machine is. Faults overlap. After the last step all faults end, and the checks
of `workload` follow.
"""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.faults.processes import Component, FaultCluster, Keeper
from tests.faults.proxy import Action, Message, ProxyLink
from tests.faults.workload import Workload

Kind = Literal[
    "kill", "freeze", "hold", "cut", "half-open", "delay", "lose", "error", "submit", "delete"
]

STEPS = 10
LONGEST_PAUSE, LONGEST_FAULT = 1.5, 6.0

_OF_PROCESS: tuple[Kind, ...] = ("kill", "freeze")
_OF_LINK: tuple[Kind, ...] = ("hold", "cut", "half-open", "delay", "lose", "error")


@dataclass(frozen=True)
class ScheduledFault:
    """One fault, or one act of a user."""

    at: float
    """Seconds after the begin of the schedule."""
    until: float
    kind: Kind
    component: str = ""

    def __str__(self) -> str:
        return f"{self.at:5.1f} s to {self.until:5.1f} s: {self.kind} {self.component}"


def draw(seed: int, cluster: FaultCluster, steps: int = STEPS) -> list[ScheduledFault]:
    """The schedule of a seed, for all processes of a cluster; some have no link."""
    targets = list(cluster.targets().values())
    chance = random.Random(seed)
    plan = []
    now = 0.0
    for _ in range(steps):
        now += chance.uniform(0.1, LONGEST_PAUSE)
        target = chance.choice(targets)
        faults = _OF_PROCESS if target.link is None else (*_OF_PROCESS, *_OF_LINK)
        kind: Kind = chance.choice((*faults, *faults, "submit", "delete"))
        plan.append(
            ScheduledFault(now, now + chance.uniform(0.2, LONGEST_FAULT), kind, target.name)
        )
    return plan


def is_write(message: Message) -> bool:
    """A write that is no renewal: those have scenarios of their own."""
    return message.method != "GET" and "/leases" not in message.path


def play(load: Workload, seed: int, steps: int = STEPS) -> None:
    """Disturb a cluster; all faults end with the last step."""
    run = _Run(load, random.Random(seed))
    for _ in range(2):
        run.submit()
    plan = draw(seed, load.cluster, steps)
    moments = [(each.at, True, each) for each in plan]
    moments += [(each.until, False, each) for each in plan]
    began = time.monotonic()
    with contextlib.ExitStack() as rules:
        for at, begins, step in sorted(moments, key=lambda each: (each[0], each[1])):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if begins:
                run.begin(step, rules)
            else:
                run.end(step)


class _Run:
    def __init__(self, load: Workload, chance: random.Random) -> None:
        self._load, self._chance = load, chance
        self._cluster: FaultCluster = load.cluster
        self._count = 0
        load.every_event = False  # processes die with events that they had still to write

    def submit(self) -> None:
        self._count += 1
        fail = self._chance.choice(("", "0"))
        life = self._chance.randrange(1, 30)
        submit = self._chance.choice((self._load.submit, self._load.submit_safe))
        child = self._chance.choice((False, True))
        submit(f"j{self._count}", life=life, fail=fail, child=child)

    def begin(self, step: ScheduledFault, rules: contextlib.ExitStack) -> None:
        if step.kind == "submit":
            self._away(self.submit)
        elif step.kind == "delete" and self._load.names:
            name = self._chance.choice(self._load.names)
            self._away(lambda: self._load.delete(name))
        else:
            self._disturb(self._cluster.targets()[step.component], step.kind, rules)

    def _away(self, act: Callable[[], None]) -> None:
        """An act of a user, who has to wait while the server is stopped: so this act runs first."""
        server = self._cluster.components["server"]
        server.thaw()
        if not server.is_alive():
            server.restart(self._cluster.failures)
        act()

    def _disturb(self, target: Component | Keeper, kind: Kind, rules: contextlib.ExitStack) -> None:
        if kind == "kill" and target.is_alive():
            target.kill()
        elif kind == "freeze" and target.is_alive():
            target.freeze()
        elif target.link is not None:
            self._disturb_link(target.link, kind, rules)

    def _disturb_link(self, link: ProxyLink, kind: Kind, rules: contextlib.ExitStack) -> None:
        if kind == "hold":
            link.hold()
        elif kind == "cut":
            link.cut()
        elif kind == "half-open":
            link.half_open()
        elif kind == "delay":
            link.delay(self._chance.uniform(0.1, 2.0))
        elif kind in ("lose", "error"):
            action = Action.LOSE if kind == "lose" else Action.ERROR
            rules.enter_context(link.rule(action, is_write, self._chance.randrange(1, 4)))

    def end(self, step: ScheduledFault) -> None:
        target = self._cluster.targets().get(step.component)
        if target is None or step.kind in ("submit", "delete", "lose", "error"):
            return
        target.thaw()
        if isinstance(target, Keeper):
            return
        if target.link is not None:
            target.link.mend()
        if not target.is_alive() and self._cluster.components["server"].is_alive():
            target.restart(self._cluster.failures)
