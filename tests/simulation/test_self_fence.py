# SPDX-License-Identifier: Apache-2.0
"""Self-fencing over many schedules: a node keeps its promises, and controllers may rely on them.

What runs is read from the machines themselves, never from the API.
`REFLOAT_SCHEDULES=1000 pytest tests/simulation/test_self_fence.py` runs more of them.
"""

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from refloat.agent.fleet import Fault
from refloat.agent.self_fence import DEFAULT_SECONDS, KILL_GRACE_SECONDS
from refloat.agent.simulated import SimulatedRuntime
from refloat.api import self_fence
from refloat.api.core import Pod
from refloat.app import controller_names
from refloat.app.controller_names import ControllerSelection
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.base.rand import Rand
from refloat.client import errors, kinds
from refloat.client.contract import Kind
from refloat.client.local import LocalClient
from refloat.policy.recovery.failure_recovery import AnnotationRule, FailureRecoveryPolicy
from refloat.policy.recovery.zombie import ANNOTATIONS
from refloat.sim.cluster import Cluster
from refloat.sim.run import Sim, run
from tests.unit.agent import nodes
from tests.virtual import seeds, virtual

# A schedule takes about 0.15 s; those of the test command are the first ones.
SCHEDULES = int(os.environ.get("REFLOAT_SCHEDULES", "150"))
PARTS = 10

ASKS = {self_fence.ANNOTATION: "true"}
SAFE = {ANNOTATIONS[0]: "true"}
ON = Gates({FAILURE_RECOVERY_POLICY: True})

FAULTS: tuple[Fault, ...] = ("freeze", "freeze", "partition", "partition", "crash")

NEEDED = (
    controller_names.FAILURE_RECOVERY,
    controller_names.JOB,
    controller_names.NODE_LIFECYCLE,
    controller_names.POD_GC,
    controller_names.SCHEDULER,
    controller_names.TAINT_EVICTION,
)
SERVED = ControllerSelection(NEEDED)
UNREACHABLE = "node.kubernetes.io/unreachable"


class Shaky(LocalClient):
    """The API as a node sees it: renewals fail, and answers are lost or late."""

    rand: Rand
    clock: Any
    trouble = 0.0
    renewed_at = 0.0
    """When the node sent the last renewal that got an answer."""

    async def patch(self, kind: Kind[Any], name: str, patch: Any, **more: Any) -> Any:
        if kind is not kinds.LEASES:
            return await super().patch(kind, name, patch, **more)
        sent_at = Shaky.clock.monotonic()
        if Shaky.rand.random() < Shaky.trouble:
            if Shaky.rand.below(2):
                raise errors.Unavailable("away")
            await super().patch(kind, name, patch, **more)
            raise errors.Timeout("no answer")
        await Shaky.clock.sleep(30 * Shaky.rand.random() ** 4)
        answer = await super().patch(kind, name, patch, **more)
        await Shaky.clock.sleep(30 * Shaky.rand.random() ** 4)
        Shaky.renewed_at = sent_at
        return answer


def seeds_of(part: int) -> list[int]:
    """Each part has its share, or what the environment asks for."""
    return [seed for seed in seeds(SCHEDULES) if seed % PARTS == part]


@pytest.mark.parametrize("part", range(PARTS))
def test_a_node_keeps_its_promise_whatever_becomes_of_it(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen, cut off, restarted, in trouble with the API, and asked to end pods meanwhile."""
    monkeypatch.setattr(nodes, "LocalClient", Shaky)
    for seed in seeds_of(part):
        run(_promise, seed=seed)


async def _promise(sim: Sim) -> None:
    Shaky.rand, Shaky.clock, Shaky.trouble = sim.rand, sim.clock, 0.0
    async with nodes.running(sim) as here:
        kill_seconds = KILL_GRACE_SECONDS * sim.rand.random()
        script = {"main": {"seconds": None, "ignoreTerm": True, "killSeconds": kill_seconds}}
        spec = {"terminationGracePeriodSeconds": 3600}
        body = nodes.pod(script=script, policy="Always", spec=spec)
        body["metadata"]["annotations"] |= ASKS
        await here.create(body)
        await here.after(60)
        assert list(here.runtimes["n0"].running())
        is_up, checked = True, 0
        for _ in range(12):
            is_up = await _something(here, is_up=is_up)
            for _ in range(10):
                await here.after(20 * sim.rand.random())
                late = sim.clock.monotonic() - Shaky.renewed_at
                if list(here.runtimes["n0"].running()):
                    assert late <= DEFAULT_SECONDS + kill_seconds
                    checked += 1
        assert checked >= 10
        if not is_up:
            await here.boot()


async def _something(here: nodes.Nodes, *, is_up: bool) -> bool:
    """Let something happen to the node; whether its agent runs."""
    what = here.sim.rand.below(7)
    if what == 0 and is_up:
        here.fleet.fail("n0", "freeze")
    elif what == 1 and is_up:
        here.fleet.fail("n0", "partition")
    elif what == 2 and is_up:
        await here.restart()
    elif what == 3 and is_up:
        await here.crash_agent()
        return False
    elif what == 4 and "p" in await here.names():
        await here.delete()
    elif what == 5:
        Shaky.trouble = here.sim.rand.random()
    elif not is_up:
        await here.boot()
    elif here.fleet.fault("n0"):
        here.fleet.heal("n0")
    return is_up if what in (4, 5) else True


@dataclass
class Machines:
    """What runs where, and whether two ever ran at once."""

    cluster: Cluster
    overlaps: list[tuple[float, list[str]]] = field(default_factory=list)
    starts: int = 0

    def watch(self) -> None:
        for name in self.cluster.fleet.names():
            self._watch(self.runtime(name))

    def runtime(self, name: str) -> SimulatedRuntime:
        runtime = self.cluster.fleet.worker(name).runtime
        assert isinstance(runtime, SimulatedRuntime)
        return runtime

    def _watch(self, runtime: SimulatedRuntime) -> None:
        plain = runtime.start

        async def start(pod: Pod, container: str, attempt: int) -> None:
            await plain(pod, container, attempt)
            self.starts += 1
            if len(running := self.running()) > 1:
                self.overlaps.append((self.cluster.seconds, running))

        runtime.start = start  # type: ignore[method-assign]

    def running(self) -> list[str]:
        return [
            f"{name}/{uid}"
            for name in self.cluster.fleet.names()
            for uid, *_ in self.runtime(name).running()
        ]

    def node(self) -> str | None:
        """The node on which the healthy container runs."""
        names = [each.partition("/")[0] for each in self.running()]
        return next((each for each in names if self.cluster.fleet.fault(each) is None), None)


def policy(*, fenced: bool, seconds: int | None = 1) -> FailureRecoveryPolicy:
    period = None if seconds is None else timedelta(seconds=seconds)
    return FailureRecoveryPolicy(annotated=AnnotationRule(period, require_self_fence=fenced))


async def submit(cluster: Cluster, *, hurry: bool = True, armed: bool = True) -> None:
    """A Job of one index, which has one pod at a time; the pod ignores SIGTERM for long."""
    rand = cluster.sim.rand
    kill_seconds = KILL_GRACE_SECONDS * rand.random()
    toleration = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    hurried = {
        "terminationGracePeriodSeconds": 1 + rand.below(10),
        "tolerations": [{**toleration, "tolerationSeconds": rand.below(10)}],
    }
    await cluster.submit(
        script={"main": {"seconds": None, "ignoreTerm": True, "killSeconds": kill_seconds}},
        annotations={**SAFE, **(ASKS if armed else {})},
        podReplacementPolicy="Failed",
        completionMode="Indexed",
        completions=1,
        pod=hurried if hurry else {},
    )


async def play(cluster: Cluster, *, fenced: bool) -> Machines:
    """Lose the node of the pod; perhaps the node returns, perhaps the controllers restart."""
    rand = cluster.sim.rand
    machines = Machines(cluster)
    machines.watch()
    await submit(cluster)
    await cluster.sleep(5 + 15 * rand.random())
    await cluster.mark()
    old_node = machines.node()
    assert old_node is not None
    cluster.fleet.fail(old_node, FAULTS[rand.below(len(FAULTS))])
    heals_at = 220 * rand.random() if rand.below(2) else None
    restarts_at = 130 * rand.random() if rand.below(4) == 0 else None
    while cluster.seconds < 260 and (machines.starts < 2 or heals_at is not None):
        await cluster.sleep(1 + rand.random())
        if restarts_at is not None and cluster.seconds > restarts_at:
            restarts_at = None
            await cluster.stop_last()
            cluster.start(SERVED, ON, policy(fenced=fenced))
        if heals_at is not None and cluster.seconds > heals_at:
            heals_at = None
            cluster.fleet.heal(old_node)
    await cluster.sleep(10)
    return machines


def schedule(seed: int, *, fenced: bool) -> Machines:
    """One of them; the fence is mostly what is waited for last."""

    async def program(sim: Sim) -> Machines:
        controllers = ControllerSelection(
            (), simulated_nodes=2, self_fence_seconds=40 + sim.rand.below(60)
        )
        async with Cluster(sim, controllers, gates=ON) as cluster:
            cluster.start(SERVED, ON, policy(fenced=fenced))
            return await play(cluster, fenced=fenced)

    return run(program, seed=seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_old_pod_is_dead_before_its_replacement_starts(part: int) -> None:
    tries = seeds_of(part)
    replaced = 0
    for seed in tries:
        machines = schedule(seed, fenced=True)
        assert machines.overlaps == [], f"again: REFLOAT_SEED={seed}"
        replaced += machines.starts > 1
    assert replaced >= len(tries) // 2


def test_where_nobody_asks_for_self_fencing_both_run_at_once() -> None:
    """The risk that KEP-6757 names, in the same schedules."""
    assert any(schedule(seed, fenced=False).overlaps for seed in range(10))


async def _lose_and_wait(cluster: Cluster, *, armed: bool) -> tuple[Machines, float]:
    """At Kubernetes' own waits: what ran, and the second in which the old pod was freed."""
    machines = Machines(cluster)
    machines.watch()
    await submit(cluster, hurry=False, armed=armed)
    await cluster.sleep(15)
    old_node = machines.node()
    assert old_node is not None
    cluster.fleet.fail(old_node, "freeze")
    await cluster.mark()
    while machines.starts < 2 and cluster.seconds < 1000:
        await cluster.sleep(1)
    (freed,) = [pod for pod in cluster.pods() if pod.status.phase == "Failed"]
    return machines, cluster.history(freed)[-1][0]


def test_at_the_waits_of_kubernetes_it_costs_no_time_and_saves_the_overlap() -> None:
    def freed(*, armed: bool) -> tuple[Machines, float]:
        async def program(sim: Sim) -> tuple[Machines, float]:
            controllers = ControllerSelection(NEEDED, simulated_nodes=2)
            recovery = policy(fenced=armed, seconds=None)
            async with Cluster(sim, controllers, gates=ON, recovery=recovery) as cluster:
                return await _lose_and_wait(cluster, armed=armed)

        return run(program, seed=0)

    armed, armed_at = freed(armed=True)
    plain, plain_at = freed(armed=False)
    assert armed_at == plain_at
    assert (armed.overlaps, len(plain.overlaps)) == ([], 1)


@virtual()
async def test_a_pod_without_the_promise_is_not_freed_by_who_requires_it(sim: Sim) -> None:
    controllers, recovery = ControllerSelection(NEEDED, simulated_nodes=2), policy(fenced=True)
    async with Cluster(sim, controllers, gates=ON, recovery=recovery) as cluster:
        machines = Machines(cluster)
        machines.watch()
        await submit(cluster, armed=False)
        await cluster.sleep(15)
        cluster.fleet.fail(str(machines.node()), "freeze")
        await cluster.sleep(3000)
        assert machines.starts == 1
