# SPDX-License-Identifier: Apache-2.0
"""The scenarios: each is a fault at one phase, and what must hold after it.

`make test` leaves the `long` ones to `make faults`: their faults last longer than two
timeouts of a request (30 s each), or a lease has to run out first.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from refloat.client.settings import Settings as ClientSettings
from tests.faults import schedule
from tests.faults.processes import wait
from tests.faults.proxy import Action, Link, Message
from tests.faults.workload import Workload

Play = Callable[[Workload, int], None]

# An agent that counts its renewals by time has lost count after two that got no answer.
RENEWALS = 3

# How often a client tries one request that it may repeat.
ATTEMPTS = ClientSettings().attempts


@dataclass(frozen=True)
class Scenario:
    """One entry of the catalogue."""

    name: str
    play: Play
    about: str
    long: bool = False
    fast: bool = True
    """Whether the cluster has the timings of `--fast`."""
    manager: bool = False
    """Whether `refloat manager` has the Jobs."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, long: bool = False, fast: bool = True, manager: bool = False
) -> Callable[[Play], Play]:
    """Enter a function into the catalogue."""

    def enter(play: Play) -> Play:
        name: str = play.__name__
        SCENARIOS[name] = Scenario(name, play, play.__doc__ or "", long, fast, manager)
        return play

    return enter


def is_renewal(message: Message) -> bool:
    return message.method in ("PATCH", "PUT") and "/leases/" in message.path


def is_creation(message: Message) -> bool:
    return message.method == "POST" and message.path.partition("?")[0].endswith("/pods")


def _link(load: Workload, component: str) -> Link:
    link = load.cluster.components[component].link
    assert link is not None
    return link


# -- the agent and its node ------------------------------------------------------------


@scenario()
def renewals_are_late_or_get_no_answer(load: Workload, seed: int) -> None:
    """One agent's renewals break off and arrive later, the other's are applied unanswered."""
    load.submit("a")
    load.running(2)
    late, unanswered = _link(load, "n1"), _link(load, "n2")
    with (
        late.rule(Action.LATE, is_renewal) as first,
        unanswered.rule(Action.LOSE, is_renewal) as second,
    ):
        for rule in (first, second):
            wait(lambda rule=rule: len(set(rule.bodies)) >= RENEWALS, "renewals were sent")  # type: ignore[misc]


@scenario()
def an_agent_dies_while_its_containers_end(load: Workload, seed: int) -> None:
    """Containers end while no agent looks; the next agent reports each result once."""
    load.submit("a", fail="0")
    load.running(2)
    for each in load.cluster.nodes():
        each.kill()
    load.release()
    wait(lambda: not any(each.is_alive() for each in load.runs()), "the containers end")


@scenario()
def an_agent_is_stopped_while_its_containers_end(load: Workload, seed: int) -> None:
    """As above, with an agent that goes on where it was."""
    load.submit("a", fail="1")
    load.running(2)
    for each in load.cluster.nodes():
        each.freeze()
    load.release()
    wait(lambda: not any(each.is_alive() for each in load.runs()), "the containers end")


@scenario()
def a_keeper_is_stopped_while_its_containers_end(load: Workload, seed: int) -> None:
    """The process that has the containers sees late how they ended, and loses no result."""
    load.submit("a", fail="0")
    load.running(2)
    keepers = [load.cluster.keeper(each.name) for each in load.cluster.nodes()]
    for pid in keepers:
        os.kill(pid, signal.SIGSTOP)
    load.release()
    wait(lambda: not any(each.is_alive() for each in load.runs()), "the containers end")
    for pid in keepers:
        os.kill(pid, signal.SIGCONT)


@scenario()
def a_link_is_cut_and_held_for_a_moment(load: Workload, seed: int) -> None:
    """Faults that are shorter than the grace period of a node end nothing."""
    load.submit("a")
    load.running(2)
    for name in ("n1", "n2"):
        link = _link(load, name)
        for fault in (link.cut, link.hold):
            fault()
            time.sleep(0.5)
            link.mend()


@scenario(long=True)
def a_node_is_lost_before_its_pod_starts(load: Workload, seed: int) -> None:
    """The pod is evicted: it counts as failed, though no container ran, and is replaced."""
    _freeze_until_eviction(load)


@scenario(manager=True, long=True)
def a_managed_job_loses_a_node_before_its_pod_starts(load: Workload, seed: int) -> None:
    """As above, and `refloat manager` counts."""
    _freeze_until_eviction(load)


def _freeze_until_eviction(load: Workload) -> None:
    load.cluster.components["n1"].freeze()
    load.submit("a")
    observer = load.observer
    wait(lambda: len(observer.deleted_while_running) == 1, "the pod of the lost node is evicted")
    assert len(load.runs()) < len(observer.pods), "the pod has not started"


# -- the server ------------------------------------------------------------------------


@scenario()
def the_server_dies_while_pods_start(load: Workload, seed: int) -> None:
    """kill -9 of the server at a moment that the seed chooses."""
    load.every_event = False
    load.submit("a", completions=4, parallelism=4, life=5, fail="0 2")
    time.sleep(seed % 20 / 10)
    load.cluster.components["server"].kill()


@scenario()
def the_server_is_stopped_for_longer_than_the_grace_period(load: Workload, seed: int) -> None:
    """Nodes whose silence is the server's own are not lost."""
    load.submit("a")
    load.running(2)
    server = load.cluster.components["server"]
    server.freeze()
    time.sleep(6)
    server.thaw()


# -- the manager -----------------------------------------------------------------------


def _create_pods_under(load: Workload, action: Action) -> None:
    """Keep a fault of creations until the manager has given one up."""
    with _link(load, "manager").rule(action, is_creation) as rule:
        load.submit("a", completions=3, parallelism=3)
        wait(
            lambda: max(Counter(rule.bodies).values(), default=0) >= ATTEMPTS,
            "the manager has tried one creation as often as it may",
        )
    load.running(3)


@scenario(manager=True)
def the_answers_to_pod_creations_are_lost(load: Workload, seed: int) -> None:
    """The pods exist; the manager never learns that its requests made them."""
    _create_pods_under(load, Action.LOSE)


@scenario(manager=True, long=True)
def the_answers_to_pod_creations_are_errors(load: Workload, seed: int) -> None:
    """The pods exist; the manager is told of an internal error."""
    _create_pods_under(load, Action.ERROR)


@scenario(manager=True, long=True)
def the_manager_dies_while_it_creates_pods(load: Workload, seed: int) -> None:
    """kill -9 of the manager when the first pods exist; the next one goes on."""
    load.every_event = False
    load.submit("a", completions=4, parallelism=4, life=5)
    load.running(1)
    load.cluster.components["manager"].kill()


@scenario(manager=True)
def jobs_are_deleted_while_the_manager_hears_nothing(load: Workload, seed: int) -> None:
    """Nothing of a deleted Job is left when the faults are over, whoever has the Jobs."""
    load.every_event = False
    jobs = [load.submit(f"a{number}") for number in range(2)]
    load.running(2)
    _link(load, "manager").cut()
    _link(load, "n1").hold()
    for name in jobs:
        load.delete(name)


@scenario()
def jobs_are_deleted_while_links_and_server_fail(load: Workload, seed: int) -> None:
    """No pod and no process of a deleted Job is left when the faults are over."""
    load.every_event = False
    jobs = [load.submit(f"a{number}") for number in range(4)]
    load.running(4)
    _link(load, "n1").hold()
    for name in jobs[:2]:
        load.delete(name)
    _link(load, "n2").cut()
    server = load.cluster.components["server"]
    server.kill()
    server.restart(load.cluster.failures)
    for name in jobs[2:]:
        load.delete(name)


@scenario()
def a_few_random_faults(load: Workload, seed: int) -> None:
    """The first steps of a schedule, which `make test` has the time for."""
    schedule.play(load, seed, steps=4)


@scenario(long=True)
def random_faults(load: Workload, seed: int) -> None:
    """A schedule drawn from the seed; the server has the controllers."""
    schedule.play(load, seed)


@scenario(manager=True, long=True)
def random_faults_with_a_manager(load: Workload, seed: int) -> None:
    """A schedule drawn from the seed; `refloat manager` has the Jobs."""
    schedule.play(load, seed)


# -- longer than requests wait ---------------------------------------------------------


@scenario(long=True, fast=False)
def the_server_is_stopped_for_80_seconds(load: Workload, seed: int) -> None:
    """Renewals time out, and the server applies them when it goes on."""
    load.submit("a")
    load.running(2)
    server = load.cluster.components["server"]
    server.freeze()
    time.sleep(80)
    server.thaw()


@scenario(long=True, fast=False)
def a_link_is_held_for_75_seconds(load: Workload, seed: int) -> None:
    """Two renewals time out; all bytes arrive in the end."""
    load.submit("a")
    load.running(2)
    links = [_link(load, name) for name in ("n1", "n2")]
    for each in links:
        each.hold()
    time.sleep(75)
    for each in links:
        each.mend()


@scenario(long=True, fast=False)
def a_link_is_half_open(load: Workload, seed: int) -> None:
    """Renewals arrive and are applied; their answers vanish, and the connections stay."""
    load.submit("a")
    load.running(2)
    link = _link(load, "n1")
    with link.rule(Action.PASS, is_renewal) as rule:
        link.half_open()
        wait(lambda: len(set(rule.bodies)) >= RENEWALS, f"{RENEWALS} renewals were sent")
        link.mend()


@scenario(long=True, fast=False)
def a_link_delays_everything_by_35_seconds(load: Workload, seed: int) -> None:
    """Each request arrives after its client has given up."""
    load.submit("a")
    load.running(2)
    link = _link(load, "n1")
    with link.rule(Action.PASS, is_renewal) as rule:
        link.delay(35)
        wait(lambda: len(set(rule.bodies)) >= RENEWALS + 1, "renewals were sent")
        link.mend()


@scenario(long=True)
def the_server_is_stopped_for_45_seconds(load: Workload, seed: int) -> None:
    """With the timings of `--fast`: a Job's pods start once, unless a node was lost."""
    load.submit("a")
    load.running(2)
    server = load.cluster.components["server"]
    server.freeze()
    time.sleep(45)
    server.thaw()


@scenario(long=True, manager=True)
def the_answers_to_pod_creations_are_held_for_32_seconds(load: Workload, seed: int) -> None:
    """The manager gives a request up, and its answer says that the pod was created."""
    with _link(load, "manager").rule(Action.HOLD, is_creation) as rule:
        load.submit("a", completions=6, parallelism=6)
        wait(lambda: len(rule.bodies) >= 1, "the manager creates pods")
        time.sleep(32)
    load.running(6)
