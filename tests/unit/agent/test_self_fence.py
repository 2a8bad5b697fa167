# SPDX-License-Identifier: Apache-2.0
"""Pods that end by themselves when their node cannot renew its lease."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from refloat.agent.fleet import Fault
from refloat.agent.runtime import StartError
from refloat.agent.self_fence import DEFAULT_SECONDS, KILL_GRACE_SECONDS
from refloat.agent.simulated import SimulatedRuntime
from refloat.api import self_fence, times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Kind
from refloat.client.local import LocalClient
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.virtual import virtual

BEAT = 10.4
"""Seconds after which a node has renewed its lease once more."""

LONG = {"main": {"seconds": None}}
ASKS = {self_fence.ANNOTATION: "true"}


def asking(name: str = "p", **more: Any) -> Object:
    """A pod that requests the promise and runs until `stop`."""
    manifest = nodes.pod(name, **{"script": LONG, **more})
    manifest["metadata"].setdefault("annotations", {}).update(ASKS)
    return manifest


def promised(status: Object) -> self_fence.Promise | None:
    for each in status.get("conditions", ()):
        if each["type"] == self_fence.CONDITION:
            assert (each["status"], each["reason"]) == ("True", "Armed")
            return self_fence.read(each["message"])
    return None


def terminated(status: Object) -> Object:
    state: Object = status["containerStatuses"][0]["state"]["terminated"]
    return state


def deadline(here: nodes.Nodes) -> float:
    """The only one of the node n0."""
    (deadline,) = here.runtimes["n0"].deadlines().values()
    return deadline


def is_running(here: nodes.Nodes, node: str = "n0") -> bool:
    return bool(list(here.runtimes[node].running()))


async def lease(here: nodes.Nodes) -> str:
    lease = await here.client.get(kinds.LEASES, "n0", namespace="kube-node-lease")
    return lease.spec.renew_time or ""


class Renewals(LocalClient):
    """A client whose renewals of leases fail on request."""

    trouble = ""

    async def patch(self, kind: Kind[Any], name: str, patch: Any, **more: Any) -> Any:
        if kind is not kinds.LEASES or not Renewals.trouble:
            return await super().patch(kind, name, patch, **more)
        if Renewals.trouble == "refused":
            raise errors.Unavailable("away")
        await super().patch(kind, name, patch, **more)
        raise errors.Timeout("no answer")


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on renewals are `refused`, or done and `unanswered`; or all is well again: ''."""
    monkeypatch.setattr(nodes, "LocalClient", Renewals)
    monkeypatch.setattr(Renewals, "trouble", "")
    return lambda kind: monkeypatch.setattr(Renewals, "trouble", kind)


@on_nodes()
async def test_a_pod_that_asks_for_it_is_armed_and_says_so(here: Nodes) -> None:
    created = await here.create(asking())
    await here.after(1)
    promise = promised(await here.status())
    boot = here.runtimes["n0"].boot_id
    assert promise == self_fence.Promise(DEFAULT_SECONDS, KILL_GRACE_SECONDS, boot)
    assert list(here.runtimes["n0"].deadlines()) == [created["metadata"]["uid"]]


@pytest.mark.parametrize("value", [None, "false", "True", ""])
@on_nodes()
async def test_a_pod_that_does_not_ask_is_as_ever(here: Nodes, value: str | None) -> None:
    manifest = nodes.pod(script=LONG)
    if value is not None:
        manifest["metadata"]["annotations"][self_fence.ANNOTATION] = value
    await here.create(manifest)
    await here.after(1)
    assert promised(await here.status()) is None
    here.fleet.fail("n0", "freeze")
    await here.after(10 * DEFAULT_SECONDS)
    assert is_running(here)
    assert here.runtimes["n0"].deadlines() == {}


@on_nodes()
async def test_asking_for_it_later_is_too_late(here: Nodes) -> None:
    await here.create(nodes.pod(script={"main": {"seconds": 30}}, policy="Always"))
    await here.after(1)
    patch = {"metadata": {"annotations": ASKS}}
    await here.client.patch(kinds.PODS, "p", patch, namespace="default")
    await here.after(100)  # also when a container restarts
    await here.restart()
    await here.after(100)
    status = await here.status()
    assert status["containerStatuses"][0]["restartCount"] >= 2
    assert promised(status) is None
    assert here.runtimes["n0"].deadlines() == {}


@on_nodes(seeds=10)
async def test_nothing_of_it_starts_and_nothing_is_said_before_it_is_armed(here: Nodes) -> None:
    class Watched(SimulatedRuntime):
        async def arm(self, uid: str, at: float) -> None:
            assert not self.containers(uid)
            await self._clock.sleep(5)
            assert not self.containers(uid)
            assert promised(await here.status()) is None
            await super().arm(uid, at)

        async def start(self, pod: Pod, container: str, attempt: int) -> None:
            assert pod.metadata.uid in self.deadlines()
            await super().start(pod, container, attempt)

    here.runtimes["n0"] = Watched(here.sim.clock)
    await here.restart()
    spec = {"initContainers": [nodes.container("first")]}
    await here.create(asking(script={"main": {"seconds": None}, "first": {}}, spec=spec))
    await here.after(30)
    assert is_running(here)
    assert promised(await here.status()) is not None
    promises = [promised(each["status"]) is not None for each in here.history]
    assert promises == sorted(promises)  # and the promise stays


@on_nodes()
async def test_one_whose_deadline_cannot_be_set_claims_nothing_and_does_not_start(
    here: Nodes,
) -> None:
    class Broken(SimulatedRuntime):
        async def arm(self, uid: str, at: float) -> None:
            raise StartError("the keeper is gone")

    here.runtimes["n0"] = Broken(here.sim.clock)
    await here.restart()
    await here.create(asking())
    await here.after(100)
    status = await here.status()
    assert status["phase"] == "Pending"
    assert promised(status) is None
    assert here.runtimes["n0"].pods() == []
    assert ("Warning", "Failed", "Error: the keeper is gone") in here.events
    assert 5 <= len(here.events) <= 12


@on_nodes(seeds=20)
async def test_a_deadline_counts_from_when_the_last_success_was_sent(here: Nodes) -> None:
    await here.create(asking())
    await here.after(1)
    for _ in range(100):
        await here.after(3 * here.sim.rand.random())
        renewed_ago = (here.sim.clock.now() - times.parse(await lease(here))).total_seconds()
        sent_at = deadline(here) - DEFAULT_SECONDS
        assert here.sim.clock.monotonic() - sent_at == pytest.approx(renewed_ago, abs=0.01)
        assert renewed_ago <= BEAT


@pytest.mark.parametrize("kind", ["refused", "unanswered"])
@on_nodes()
async def test_a_renewal_without_a_good_answer_extends_nothing(
    here: Nodes, kind: str, trouble: Callable[[str], None]
) -> None:
    await here.create(asking(policy="Always"))
    await here.after(15)
    before, renewed = deadline(here), await lease(here)
    trouble(kind)
    await here.after(before - here.sim.clock.monotonic() - 1)
    assert ((await lease(here)) != renewed) == (kind == "unanswered")
    assert deadline(here) == before
    assert is_running(here)
    await here.after(1.5)
    assert not is_running(here)
    status = await here.status()  # the API server answers, so the status arrives
    assert (status["phase"], status["reason"]) == ("Failed", "SelfFenced")


@on_nodes()
async def test_a_short_trouble_ends_nobody(here: Nodes, trouble: Callable[[str], None]) -> None:
    await here.create(asking())
    for _ in range(5):
        await here.after(BEAT)
        trouble("refused")
        await here.after(DEFAULT_SECONDS - 3 * BEAT)
        trouble("")
        await here.after(BEAT)
    assert is_running(here)


@pytest.mark.parametrize("fault", ["freeze", "partition"])
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
@virtual(nodes.running, seeds=5)
async def test_a_pod_of_a_lost_node_ends_at_its_deadline_for_good(
    here: Nodes, fault: Fault, policy: str
) -> None:
    created = await here.create(asking(policy=policy))
    await here.after(15)
    here.fleet.fail("n0", fault)
    at = deadline(here)
    await here.after(at - here.sim.clock.monotonic() - 0.01)
    assert is_running(here)
    await here.after(0.02)
    assert not is_running(here)
    await here.after(1000)
    here.fleet.heal("n0")
    await here.after(60)
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "SelfFenced")
    assert status["message"] == (
        "The node could not renew its lease for 380s and ended the pod by itself"
    )
    end = terminated(status)
    assert (end["exitCode"], end["reason"]) == (137, "Fenced")
    assert promised(status) is not None
    (target,) = [e for e in status["conditions"] if e["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    warned = [each for each in here.events if each[1] == "SelfFenced"]
    assert warned == [("Warning", "SelfFenced", status["message"])]
    await here.restart()
    await here.after(1000)
    assert not is_running(here)
    assert here.phases() == ["Pending", "Running", "Failed"]
    assert here.runtimes["n0"].containers(created["metadata"]["uid"])


@on_nodes()
async def test_one_that_ended_well_before_its_deadline_has_succeeded(here: Nodes) -> None:
    await here.create(asking(script={"main": {"seconds": 100}}))
    await here.after(15)
    here.fleet.fail("n0", "freeze")
    await here.after(1000)
    here.fleet.heal("n0")
    await here.after(5)
    status = await here.status()
    assert (status["phase"], status.get("reason")) == ("Succeeded", None)


@on_nodes()
async def test_the_deadline_stays_in_force_while_a_pod_ends_with_grace(here: Nodes) -> None:
    deaf = {"main": {"seconds": None, "ignoreTerm": True}}
    await here.create(asking(script=deaf, spec={"terminationGracePeriodSeconds": 3600}))
    await here.after(15)
    await here.delete()
    await here.after(2 * DEFAULT_SECONDS)
    assert is_running(here)  # renewals move the deadline, as before
    here.fleet.fail("n0", "freeze")
    await here.after(DEFAULT_SECONDS)
    assert not is_running(here)
    here.fleet.heal("n0")
    await here.after(5)
    assert await here.names() == []
    assert here.history[-1]["status"]["reason"] == "SelfFenced"


@on_nodes()
async def test_one_that_somebody_declared_failed_is_ended_by_its_deadline_too(here: Nodes) -> None:
    """The promise is for running containers, whatever the API's status is."""
    deaf = {"main": {"seconds": None, "ignoreTerm": True}}
    await here.create(asking(script=deaf, spec={"terminationGracePeriodSeconds": 3600}))
    await here.after(15)
    await here.patch_status({"phase": "Failed", "reason": "Lost"})
    await here.after(5)
    here.fleet.fail("n0", "freeze")
    assert is_running(here)
    await here.after(DEFAULT_SECONDS)
    assert not is_running(here)
    here.fleet.heal("n0")
    await here.after(5)
    assert (await here.status())["reason"] == "Lost"


@on_nodes()
async def test_pods_that_have_ended_or_are_gone_have_no_deadline(here: Nodes) -> None:
    await here.create(asking("ended", script={"main": {"seconds": 3}}))
    await here.create(asking("deleted"))
    await here.after(1)
    assert len(here.runtimes["n0"].deadlines()) == 2
    await here.after(5)
    await here.delete("deleted")
    await here.after(5)
    assert here.runtimes["n0"].deadlines() == {}
    assert promised(await here.status("ended")) is not None  # the promise was in force


@on_nodes(seeds=10)
async def test_an_agent_that_restarts_goes_on_with_the_promise(here: Nodes) -> None:
    await here.create(asking())
    await here.after(15)
    conditions = (await here.status())["conditions"]
    for _ in range(5):
        await here.crash_agent()
        before = deadline(here)
        await here.after(200 * here.sim.rand.random())
        assert deadline(here) == before  # no agent moves the deadline
        await here.boot()
        await here.after(BEAT)
        assert deadline(here) > before
    assert (await here.status())["conditions"] == conditions
    await here.crash_agent()
    await here.after(DEFAULT_SECONDS)
    assert not is_running(here)
    await here.boot()
    await here.after(30)
    assert (await here.status())["reason"] == "SelfFenced"
    assert not is_running(here)


@pytest.mark.parametrize("seconds", [100, 1000])
@on_nodes()
async def test_what_was_promised_holds_when_the_setting_changes(here: Nodes, seconds: int) -> None:
    await here.create(asking())
    await here.after(15)
    here.settings = [replace(each, self_fence_seconds=seconds) for each in here.settings]
    await here.restart()
    await here.create(asking("new"))
    await here.after(BEAT)
    old, new = promised(await here.status()), promised(await here.status("new"))
    assert old is not None
    assert new is not None
    assert (old.seconds, new.seconds) == (DEFAULT_SECONDS, seconds)
    first, second = here.runtimes["n0"].deadlines().values()
    assert second - first == seconds - DEFAULT_SECONDS


@on_nodes(seeds=10)
async def test_an_agent_killed_before_it_could_say_so_says_it_later(here: Nodes) -> None:
    """Armed and started, and the agent is gone; the next one has another setting."""
    created = await here.create(asking())
    while not here.runtimes["n0"].containers(created["metadata"]["uid"]):
        await here.after(0)
    await here.crash_agent()
    await here.after(5)
    here.settings = [replace(each, self_fence_seconds=100) for each in here.settings]
    await here.boot()
    await here.after(BEAT)
    promise = promised(await here.status())
    assert promise is not None
    assert deadline(here) - here.sim.clock.monotonic() <= promise.seconds


@on_nodes()
async def test_after_a_reboot_nothing_runs_and_a_restart_is_armed_anew(here: Nodes) -> None:
    await here.create(asking("never"))
    await here.create(asking("again", policy="OnFailure"))
    await here.after(15)
    first = promised(await here.status("again"))
    here.fleet.fail("n0", "crash")
    assert not is_running(here)
    assert here.runtimes["n0"].deadlines() == {}
    await here.after(60)
    here.fleet.heal("n0")
    await here.after(30)
    assert (await here.status("never"))["phase"] == "Failed"
    second = promised(await here.status("again"))
    assert first is not None
    assert second is not None
    assert second == replace(first, boot_id=here.runtimes["n0"].boot_id)
    assert second.boot_id != first.boot_id
    assert is_running(here)
    here.fleet.fail("n0", "freeze")
    await here.after(DEFAULT_SECONDS)
    assert not is_running(here)


@pytest.mark.parametrize("freed", ["terminating", "failed", "gone", "replaced"])
@on_nodes()
async def test_a_promise_whose_deadline_was_lost_is_not_started_on_old_news(
    here: Nodes, freed: str
) -> None:
    """The machine rebooted, and meanwhile others have acted on the promise.

    1. the agent of the new boot knows the pod, and is cut off before its first renewal
    2. the pod is deleted, declared failed and replaced
    3. the first renewal succeeds before the watch has come as far
    """
    created = await here.create(asking(policy="Always"))
    await here.after(15)
    here.fleet.fail("n0", "crash")
    await here.informer.close()  # no news any more
    await (here.delete() if freed == "terminating" else here.after(0))
    if freed == "failed":
        await here.patch_status({"phase": "Failed"})
    if freed in ("gone", "replaced"):
        await here.delete(gracePeriodSeconds=0)
    if freed == "replaced":
        await here.create(asking(policy="Always"))
    await here.after(60)
    here.fleet.heal("n0")
    await here.after(60)
    assert not here.runtimes["n0"].containers(created["metadata"]["uid"])


@on_nodes(seeds=5)
async def test_an_armed_pod_waits_for_the_first_renewal_of_its_agent(
    here: Nodes, trouble: Callable[[str], None]
) -> None:
    await here.after(15)
    await here.crash_agent()
    trouble("refused")
    await here.boot()
    await here.create(asking())
    await here.create(nodes.pod("other", script=LONG))
    await here.after(30)
    assert (await here.status())["phase"] == "Pending"
    assert (await here.status("other"))["phase"] == "Running"
    trouble("")
    await here.after(8)
    assert (await here.status())["phase"] == "Running"
    assert promised(await here.status()) is not None
