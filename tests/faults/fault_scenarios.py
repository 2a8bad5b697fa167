# SPDX-License-Identifier: Apache-2.0
"""The scenarios: each is a fault at one phase, and what must hold afterwards.

`make test` leaves the `long` ones to `make faults`: their faults last longer than two
timeouts of a request (30 s each), a lease has to run out first, or starts that failed
are tried again after 10 s.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refloat.client.settings import ClientSettings
from tests.e2e.cluster import Object
from tests.e2e.node_cluster import is_ready
from tests.faults import audit, schedule
from tests.faults.observed import PODS
from tests.faults.processes import wait
from tests.faults.proxy import Action, Message, ProxyLink
from tests.faults.workload import Workload

Play = Callable[[Workload, int], None]

# An agent that counts its renewals by time loses count after two that got no answer.
RENEWALS = 3

N1 = "/api/v1/nodes/n1"
FORCE_EVICTION = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}

# How often a client tries one request that may be repeated.
ATTEMPTS = ClientSettings().attempts


@dataclass(frozen=True)
class FaultScenario:
    """One scenario."""

    name: str
    play: Play
    about: str
    long: bool = False
    fast: bool = True
    """Whether the cluster has the timings of `--fast`."""
    manager: bool = False
    """Whether `refloat manager` has the Jobs."""


SCENARIOS: dict[str, FaultScenario] = {}


def scenario(
    *, long: bool = False, fast: bool = True, manager: bool = False
) -> Callable[[Play], Play]:
    """Make a function a scenario of this module."""

    def enter(play: Play) -> Play:
        name: str = play.__name__
        SCENARIOS[name] = FaultScenario(name, play, play.__doc__ or "", long, fast, manager)
        return play

    return enter


def is_renewal(message: Message) -> bool:
    return message.method in ("PATCH", "PUT") and "/leases/" in message.path


def is_creation(message: Message) -> bool:
    return message.method == "POST" and message.path.partition("?")[0].endswith("/pods")


def is_force(message: Message) -> bool:
    return message.method == "PATCH" and audit.CONDITION.encode() in message.body


def is_forced_deletion(message: Message) -> bool:
    return message.method == "DELETE" and b'"gracePeriodSeconds":0' in message.body


def _link(load: Workload, component: str) -> ProxyLink:
    link = load.cluster.components[component].link
    assert link is not None
    return link


def _start(load: Workload, completions: int = 2, **how: Any) -> None:
    """A Job whose pods all run."""
    load.submit("a", completions=completions, parallelism=completions, **how)
    load.running(completions)


def _stop_server(load: Workload, seconds: float) -> None:
    """SIGSTOP of the server for some time, while a Job's pods run."""
    _start(load)
    server = load.cluster.components["server"]
    server.freeze()
    time.sleep(seconds)
    server.thaw()


def _await_renewals(load: Workload, fault: Callable[[], None], count: int) -> None:
    """A fault of the link of `n1`, until the agent has sent so many renewals."""
    link = _link(load, "n1")
    with link.rule(Action.PASS, is_renewal) as rule:
        fault()
        wait(lambda: len(set(rule.bodies)) >= count, f"{count} renewals were sent")
        link.mend()


# -- the agent and the node ------------------------------------------------------------


@scenario()
def renewals_are_late_or_get_no_answer(load: Workload, seed: int) -> None:
    """One agent's renewals break off and arrive later, the other's are applied unanswered."""
    _start(load)
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
    _start(load, fail="0")
    for each in load.cluster.nodes():
        each.kill()
    load.end_containers()


@scenario()
def an_agent_is_stopped_while_its_containers_end(load: Workload, seed: int) -> None:
    """As above, with an agent that resumes the old containers."""
    _start(load, fail="1")
    for each in load.cluster.nodes():
        each.freeze()
    load.end_containers()


@scenario()
def a_keeper_is_stopped_while_its_containers_end(load: Workload, seed: int) -> None:
    """The process that has the containers sees late how they ended, and loses no result."""
    _start(load, fail="0")
    for each in load.cluster.keepers.values():
        each.freeze()
    load.end_containers()


@scenario()
def keepers_die_while_their_containers_run(load: Workload, seed: int) -> None:
    """All processes end, pods fail once, and each replacement waits for the last process.

    One agent looks on, the other one is dead as well.
    """
    _start(load, child=True)
    load.cluster.components["n2"].kill()
    for each in load.cluster.keepers.values():
        each.kill()
    load.cluster.revive()
    wait(lambda: len(load.runs()) >= 4, "all pods are replaced")


@scenario()
def keepers_die_while_their_containers_start(load: Workload, seed: int) -> None:
    """Three kills, at moments that the seed chooses; the first one while the first pod starts."""
    chance = random.Random(seed)
    load.submit("a", completions=4, parallelism=4, life=5, child=True)
    load.cluster.until(PODS, lambda pods: pods["items"], "a pod exists")
    for _ in range(3):
        time.sleep(chance.uniform(0.0, 0.8))
        load.cluster.keepers[chance.choice(("n1", "n2"))].kill()


@scenario(long=True)
def keepers_die_while_their_containers_end(load: Workload, seed: int) -> None:
    """A result is reported correctly or as lost; no pod is reported twice."""
    _start(load, 4, fail="0", child=True)
    load.release()
    time.sleep(seed % 20 / 50)
    for each in load.cluster.keepers.values():
        each.kill()


@scenario()
def a_link_is_cut_and_held_for_a_moment(load: Workload, seed: int) -> None:
    """Faults that are shorter than the grace period of a node end nothing."""
    _start(load)
    for name in ("n1", "n2"):
        link = _link(load, name)
        for fault in (link.cut, link.hold):
            fault()
            time.sleep(0.5)
            link.mend()


@scenario(long=True)
def a_node_is_lost_before_its_pod_starts(load: Workload, seed: int) -> None:
    """The pod is evicted: the pod counts as failed, though no container ran, and is replaced."""
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
    _stop_server(load, 6)


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
    """The pods exist; the manager never learns that the requests succeeded."""
    _create_pods_under(load, Action.LOSE)


@scenario(manager=True, long=True)
def the_answers_to_pod_creations_are_errors(load: Workload, seed: int) -> None:
    """The pods exist; the manager gets an internal error."""
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
    """Nothing of a deleted Job is left when the faults are over, with either Job controller."""
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


# -- pods that are ended by force ------------------------------------------------------


def _lose_node(load: Workload, **how: Any) -> None:
    """Two pods or more hang on a node whose agent is stopped; their containers run on."""
    load.submit_safe("a", completions=4, parallelism=4, **how)
    load.running(4)
    load.cluster.components["n1"].freeze()


def _force_under(load: Workload, action: Action) -> None:
    """A fault of all forced writes, until each pod of the lost node shows one."""
    with _link(load, "manager").rule(action, is_force):
        _lose_node(load)
        wait(lambda: len(load.forced()) >= 2, "pods are ended by force")


@scenario(manager=True)
def the_answers_to_forced_ends_are_lost(load: Workload, seed: int) -> None:
    """The pods show the author of the write; each end is recorded once, within the budget."""
    _force_under(load, Action.LOSE)


@scenario(manager=True, long=True)
def the_answers_to_forced_ends_are_errors(load: Workload, seed: int) -> None:
    """As above; the manager gets an internal error."""
    _force_under(load, Action.ERROR)


@scenario(manager=True, long=True)
def forced_ends_arrive_late(load: Workload, seed: int) -> None:
    """The connections break, and the requests arrive when the manager has sent others since."""
    with _link(load, "manager").rule(Action.LATE, is_force) as rule:
        _lose_node(load)
        wait(lambda: len(set(rule.bodies)) >= 4, "the manager tries again and again")
    wait(lambda: len(load.forced()) >= 2, "pods are ended by force")


@scenario(manager=True, long=True)
def the_leader_dies_between_a_forced_end_and_its_record(load: Workload, seed: int) -> None:
    """The next leader goes on with the others, and neither ends nor records the first again."""
    load.every_event = False
    with _link(load, "manager").rule(Action.HOLD, is_force, count=1):
        _lose_node(load)
        wait(load.forced, "a pod is ended by force")
        load.cluster.components["manager"].kill()
    load.cluster.components["manager"].restart(load.cluster.failures)
    wait(lambda: len(load.forced()) >= 2, "the next leader ends the other one")


@scenario(manager=True, long=True)
def the_answers_to_forced_deletions_are_lost(load: Workload, seed: int) -> None:
    """A deletion leaves no trace of the author: none is recorded falsely."""
    with _link(load, "manager").rule(Action.LOSE, is_forced_deletion) as rule:
        _lose_node(load, is_deleted=True)
        wait(lambda: len(set(rule.bodies)) >= 2, "pods are deleted by force")


@scenario(long=True)
def the_server_dies_when_it_has_ended_a_pod_by_force(load: Workload, seed: int) -> None:
    """kill -9 of the process that forces pods; the next one goes on with the others."""
    load.every_event = False
    _lose_node(load)
    wait(load.forced, "a pod is ended by force")
    server = load.cluster.components["server"]
    server.kill()
    server.restart(load.cluster.failures)
    wait(lambda: len(load.forced()) >= 2, "the next process ends the other one")


@scenario(long=True)
def the_server_dies_while_it_evicts_a_node_by_force(load: Workload, seed: int) -> None:
    """kill -9 of the process that evicts; each pod is evicted and recorded at most once."""
    load.every_event = False
    _start(load, 4)
    node, server = load.cluster.components["n1"], load.cluster.components["server"]
    node.kill()
    load.cluster.keepers["n1"].kill()
    unready = load.cluster.until(N1, lambda node: not is_ready(node), "n1 is lost")
    taints = [*(unready["spec"].get("taints") or ()), FORCE_EVICTION]
    load.cluster.api.patch(N1, {"spec": {"taints": taints}})
    wait(load.evicted, "a pod is evicted by force")
    server.kill()
    server.restart(load.cluster.failures)
    load.cluster.until(N1, _is_unasked, "the eviction is over")


def _is_unasked(node: Object) -> bool:
    return FORCE_EVICTION["key"] not in [each["key"] for each in node["spec"].get("taints") or ()]


# -- longer than requests wait ---------------------------------------------------------


@scenario(long=True, fast=False)
def the_server_is_stopped_for_80_seconds(load: Workload, seed: int) -> None:
    """Renewals time out, and the server applies them later."""
    _stop_server(load, 80)


@scenario(long=True, fast=False)
def a_link_is_held_for_75_seconds(load: Workload, seed: int) -> None:
    """Two renewals time out; all bytes arrive in the end."""
    _start(load)
    links = [_link(load, name) for name in ("n1", "n2")]
    for each in links:
        each.hold()
    time.sleep(75)
    for each in links:
        each.mend()


@scenario(long=True, fast=False)
def a_link_is_half_open(load: Workload, seed: int) -> None:
    """Renewals arrive and are applied; their answers vanish, and the connections stay."""
    _start(load)
    _await_renewals(load, _link(load, "n1").half_open, RENEWALS)


@scenario(long=True, fast=False)
def a_link_delays_everything_by_35_seconds(load: Workload, seed: int) -> None:
    """Each request arrives after the client has given up."""
    _start(load)
    _await_renewals(load, lambda: _link(load, "n1").delay(35), RENEWALS + 1)


@scenario(long=True)
def the_server_is_stopped_for_45_seconds(load: Workload, seed: int) -> None:
    """With the timings of `--fast`: a Job's pods start once, unless a node was lost."""
    _stop_server(load, 45)


@scenario(long=True, manager=True)
def the_answers_to_pod_creations_are_held_for_32_seconds(load: Workload, seed: int) -> None:
    """The manager gives up a request that has created the pod."""
    with _link(load, "manager").rule(Action.HOLD, is_creation) as rule:
        load.submit("a", completions=6, parallelism=6)
        wait(lambda: len(rule.bodies) >= 1, "the manager creates pods")
        time.sleep(32)
    load.running(6)
