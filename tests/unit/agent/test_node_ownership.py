# SPDX-License-Identifier: Apache-2.0
"""One process owns a node, and loses the node only to another living process."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from refloat.agent import node_ownership
from refloat.agent.node_ownership import OwnedByAnother
from refloat.api import self_fence, times
from refloat.api.coordination import Lease
from refloat.api.meta import Object
from refloat.api.self_fence import Promise
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.client.local import LocalClient
from refloat.sim import api_server
from refloat.sim.api_server import SimulatedServer
from refloat.sim.run import Sim, run
from tests.unit.agent.lease_agents import (
    LEASE_SECONDS,
    TIMEOUT_SECONDS,
    Agent,
    on_api_server,
    owner,
)
from tests.virtual import virtual

BEAT_SECONDS = 10.5


async def an_owner_and_another(
    sim: Sim, api: SimulatedServer, second: str = "b"
) -> tuple[Agent, Agent]:
    """An agent on folder a that owns the node, and an agent that has not begun."""
    owning = Agent(sim, api, "a")
    await owning.settle()
    await owning.beat()
    return owning, Agent(sim, api, second)


@on_api_server()
async def test_the_first_agent_owns_the_node_at_once(sim: Sim, api: SimulatedServer) -> None:
    first = Agent(sim, api, "a")
    await first.settle()
    await first.beat()
    await first.beat()
    assert (first.waited, first.replaced, first.is_sure) == ([], [], True)
    assert await owner(api) == f"a/{first.incarnation}"


@on_api_server()
async def test_a_restart_on_the_same_folder_owns_the_node_at_once(
    sim: Sim, api: SimulatedServer
) -> None:
    _, again = await an_owner_and_another(sim, api, "a")
    began = sim.clock.monotonic()
    await again.settle()
    await again.beat()
    assert sim.clock.monotonic() == began
    assert (again.waited, again.replaced) == ([], [])
    assert await owner(api) == f"a/{again.incarnation}"


@on_api_server()
async def test_a_restart_owns_the_node_of_an_agent_that_wrote_no_incarnation(
    sim: Sim, api: SimulatedServer
) -> None:
    """After an upgrade."""
    client = LocalClient(api, field_manager="kubelet")
    lease = {"metadata": {"name": "n1", "annotations": {node_ownership.ANNOTATION: "a"}}}
    await client.create(kinds.LEASES, lease, namespace="kube-node-lease")
    agent = Agent(sim, api, "a")
    await agent.settle()
    assert agent.waited == []
    assert await owner(api) == f"a/{agent.incarnation}"


@on_api_server()
async def test_a_second_agent_is_refused_when_the_first_keeps_renewing(
    sim: Sim, api: SimulatedServer
) -> None:
    first, second = (Agent(sim, api, name) for name in "ab")
    first.start()
    await sim.clock.sleep(1)
    began = sim.clock.monotonic()
    with pytest.raises(OwnedByAnother):
        await second.settle()
    assert sim.clock.monotonic() - began < 3 * BEAT_SECONDS
    assert (first.replaced, first.is_alive, second.is_sure) == ([], True, False)


@on_api_server()
async def test_one_renewal_does_not_prove_that_the_first_agent_lives(
    sim: Sim, api: SimulatedServer
) -> None:
    """The renewal may be the last write of a dead process."""
    first, second = (Agent(sim, api, name) for name in "ab")
    first.start()
    await sim.clock.sleep(1)
    settling = asyncio.ensure_future(second.settle())
    await sim.clock.sleep(BEAT_SECONDS)
    await first.kill()
    await settling
    assert second.is_sure


@on_api_server()
async def test_a_second_agent_owns_the_node_when_the_first_is_silent(
    sim: Sim, api: SimulatedServer
) -> None:
    first, second = await an_owner_and_another(sim, api)
    began = sim.clock.monotonic()
    second.start()
    await sim.clock.sleep(LEASE_SECONDS - 1)
    assert not second.is_sure
    await sim.clock.sleep(10)
    assert (second.waited, second.is_sure) == ([LEASE_SECONDS], True)
    assert sim.clock.monotonic() - began < LEASE_SECONDS + 10
    with pytest.raises(node_ownership.Unsure):
        await first.beat()  # the first agent returns, and is not sure
    assert not first.is_sure
    first.start()
    await sim.clock.sleep(4 * BEAT_SECONDS)
    assert (first.replaced, second.replaced) == (["n1"], [])
    assert await owner(api) == f"b/{second.incarnation}"


async def _list_promise(client: Client, annotations: Object | None = None) -> None:
    """A pod in the Lease that ends by itself: dead after 390 s."""
    listing = self_fence.write_listed({"p": Promise(380, 10)})
    patch = {"metadata": {"annotations": {self_fence.LISTED: listing, **(annotations or {})}}}
    await client.patch(kinds.LEASES, "n1", patch, namespace="kube-node-lease")


async def _delete_lease(agent: Agent) -> None:
    await agent.wire.delete(kinds.LEASES, "n1", namespace="kube-node-lease")


@on_api_server()
async def test_a_second_agent_waits_until_the_pods_of_the_first_have_ended_by_themselves(
    sim: Sim, api: SimulatedServer
) -> None:
    first, second = await an_owner_and_another(sim, api)
    await _list_promise(first.wire)
    second.start()
    await sim.clock.sleep(390 * 1.01 - 1)
    assert not second.is_sure
    await sim.clock.sleep(2 * LEASE_SECONDS / node_ownership.READS)
    assert (second.waited, second.is_sure) == ([390 * 1.01], True)


@on_api_server()
async def test_a_second_agent_that_waits_for_pods_hears_a_living_owner_as_soon(
    sim: Sim, api: SimulatedServer
) -> None:
    """The second agent does not read the Lease less often."""
    first, second = await an_owner_and_another(sim, api)
    await _list_promise(first.wire)
    second.start()
    await sim.clock.sleep(1)
    for _ in range(node_ownership.PROOF_RENEWALS):
        patch = {"spec": {"renewTime": times.format_micro(first.sim.clock.now())}}
        await first.wire.patch(kinds.LEASES, "n1", patch, namespace="kube-node-lease")
        await sim.clock.sleep(LEASE_SECONDS / node_ownership.READS)
    assert second.replaced == ["n1"]


@on_api_server()
async def test_a_restart_on_the_same_folder_does_not_wait_for_pods_that_end_by_themselves(
    sim: Sim, api: SimulatedServer
) -> None:
    first, again = await an_owner_and_another(sim, api, "a")
    await _list_promise(first.wire)
    await again.settle()
    assert (again.waited, again.is_sure) == ([], True)


@on_api_server()
async def test_a_lease_that_is_deleted_is_not_taken_from_a_living_owner(
    sim: Sim, api: SimulatedServer
) -> None:
    first, second = await an_owner_and_another(sim, api)
    second.start()
    await sim.clock.sleep(1)
    await _delete_lease(first)
    await sim.clock.sleep(LEASE_SECONDS / 2)
    assert not second.has_begun
    await first.beat()
    assert (await owner(api), first.is_sure) == (f"a/{first.incarnation}", True)
    first.start()
    await sim.clock.sleep(4 * BEAT_SECONDS)
    assert (first.replaced, second.replaced, second.has_begun) == ([], ["n1"], False)


@on_api_server()
async def test_a_lease_that_is_deleted_is_made_when_its_owner_does_not_return(
    sim: Sim, api: SimulatedServer
) -> None:
    first, second = await an_owner_and_another(sim, api)
    second.start()
    await sim.clock.sleep(LEASE_SECONDS / 2)
    await _delete_lease(first)
    await sim.clock.sleep(LEASE_SECONDS - 1)
    assert not second.is_sure
    await sim.clock.sleep(3 * LEASE_SECONDS / node_ownership.READS)
    assert second.is_sure
    assert await owner(api) == f"b/{second.incarnation}"


@on_api_server()
async def test_the_node_of_a_kubelet_is_not_taken(sim: Sim, api: SimulatedServer) -> None:
    kubelet, agent = (Agent(sim, api, name) for name in ("", "b"))
    kubelet.start()
    await sim.clock.sleep(1)
    with pytest.raises(OwnedByAnother):
        await agent.settle()


@on_api_server(seeds=5)
async def test_of_two_agents_that_begin_at_once_one_owns_the_node(
    sim: Sim, api: SimulatedServer
) -> None:
    both = [Agent(sim, api, name) for name in "ab"]
    for each in both:
        each.start()
    await sim.clock.sleep(4 * BEAT_SECONDS)
    assert sorted(len(each.replaced) for each in both) == [0, 1]
    assert sorted(each.has_begun for each in both) == [False, True]


@on_api_server(seeds=5)
async def test_of_two_agents_on_copies_of_one_folder_the_later_owns_the_node(
    sim: Sim, api: SimulatedServer
) -> None:
    first, copy = (Agent(sim, api, "a") for _ in range(2))
    first.start()
    await sim.clock.sleep(30)
    copy.start()
    await sim.clock.sleep(5 * BEAT_SECONDS)
    assert (first.replaced, copy.replaced, copy.is_sure) == (["n1"], [], True)


@on_api_server()
async def test_nobody_minds_where_nobody_has_an_instance(sim: Sim, api: SimulatedServer) -> None:
    first, second = (Agent(sim, api, "") for _ in range(2))
    for _ in range(2):
        await first.beat()
        await second.beat()
    assert (first.replaced, second.replaced) == ([], [])


@on_api_server(seeds=5)
async def test_renewals_that_are_applied_late_are_ones_own(sim: Sim, api: SimulatedServer) -> None:
    """A server that was stopped for 80 s, or a wire that held everything for so long."""
    agent = Agent(sim, api, "a")
    agent.start()
    await sim.clock.sleep(25 + 10 * sim.rand.random())
    held_at = sim.clock.monotonic()
    agent.wire.hold()
    await sim.clock.sleep(80)
    # A renewal without an answer does not count: pods with a self-fence rely on that.
    assert all(at < held_at for at in agent.renewed)
    agent.wire.deliver()
    released_at = sim.clock.monotonic()
    await sim.clock.sleep(60)
    assert (agent.replaced, agent.is_sure) == ([], True)
    assert agent.renewed[-1] > released_at - TIMEOUT_SECONDS
    assert await owner(api) == f"a/{agent.incarnation}"


@on_api_server(seeds=5)
async def test_an_agent_whose_answers_are_lost_for_minutes_keeps_its_node(
    sim: Sim, api: SimulatedServer
) -> None:
    """As with a link that delays each answer beyond the client's patience."""
    agent = Agent(sim, api, "a")
    agent.start()
    await sim.clock.sleep(25)
    agent.wire.lose_answers = True
    await sim.clock.sleep(300)
    agent.wire.lose_answers = False
    await sim.clock.sleep(30)
    assert (agent.replaced, agent.is_sure) == ([], True)


@on_api_server(seeds=10)
async def test_a_write_of_the_process_before_that_arrives_late_takes_nothing(
    sim: Sim, api: SimulatedServer
) -> None:
    first, again = (Agent(sim, api, "a") for _ in range(2))
    first.start()
    await sim.clock.sleep(25)
    first.wire.hold()
    await sim.clock.sleep(45)
    await first.kill()
    again.start()
    await sim.clock.sleep(20 * sim.rand.random())
    first.wire.deliver()
    await sim.clock.sleep(60)
    assert (again.replaced, again.waited, again.is_sure) == ([], [], True)
    assert await owner(api) == f"a/{again.incarnation}"


ERRORS = [
    errors.Timeout("no answer"),
    errors.Unavailable("broken"),
    errors.Unreachable("away"),
    errors.Unauthorized("who are you"),
    errors.Forbidden("not you"),
    errors.NotFound("nothing here"),
    errors.Conflict("it changed"),
    errors.AlreadyExists("it is there"),
    errors.Invalid("what"),
    errors.Expired("too old"),
    errors.TooManyRequests("later"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_no_error_makes_an_agent_give_up(error: errors.ClientError) -> None:
    async def trouble(agent: Agent) -> None:
        agent.wire.error = error

    _survives(trouble)


STRANGE = [
    Lease(),
    msgspec.convert({"metadata": {"name": "n1"}}, Lease),
    msgspec.convert({"metadata": {"name": "other", "resourceVersion": "7"}}, Lease),
]


@pytest.mark.parametrize("answer", STRANGE, ids=["nothing", "no version", "of another node"])
def test_no_strange_answer_makes_an_agent_give_up(answer: Lease) -> None:
    async def trouble(agent: Agent) -> None:
        agent.wire.answer = answer

    _survives(trouble)


def test_a_lease_without_our_identity_is_taken_back_when_it_is_left_alone() -> None:
    """A user removed the annotation."""

    async def trouble(agent: Agent) -> None:
        patch = {"metadata": {"annotations": {node_ownership.ANNOTATION: None}}}
        await agent.wire.patch(kinds.LEASES, "n1", patch, namespace="kube-node-lease")
        await agent.sim.clock.sleep(BEAT_SECONDS)
        assert not agent.is_sure

    _survives(trouble)


def test_a_lease_without_our_identity_is_taken_back_before_our_own_pods_end() -> None:
    async def trouble(agent: Agent) -> None:
        await _list_promise(agent.wire, {node_ownership.ANNOTATION: None})
        await agent.sim.clock.sleep(BEAT_SECONDS)
        assert not agent.is_sure

    _survives(trouble)


def test_a_lease_that_was_deleted_is_made_again() -> None:
    _survives(_delete_lease)


def _survives(trouble: Callable[[Agent], object]) -> None:
    """An agent still owns the node after a minute of trouble."""

    async def program(sim: Sim) -> None:
        async with api_server.serve(sim) as api:
            agent = Agent(sim, api, "a")
            agent.start()
            await sim.clock.sleep(25)
            await trouble(agent)  # type: ignore[misc]
            await sim.clock.sleep(60)
            agent.wire.error = agent.wire.answer = None
            await sim.clock.sleep(60)
            assert (agent.replaced, agent.is_sure) == ([], True)
            assert sim.clock.monotonic() - agent.renewed[-1] < BEAT_SECONDS
            assert await owner(api) == f"a/{agent.incarnation}"

    run(program, seed=0)


@on_api_server()
async def test_a_pause_of_the_api_server_is_no_silence_of_the_owner(
    sim: Sim, api: SimulatedServer
) -> None:
    """The second agent waits for the first one's lease while the API server stands still."""
    first, second = (Agent(sim, api, name) for name in "ab")
    first.start()
    await sim.clock.sleep(1)
    second.start()
    await sim.clock.sleep(1)
    for each in (first, second):
        each.wire.hold()
    await sim.clock.sleep(100)
    second.wire.deliver()
    await sim.clock.sleep(10)
    first.wire.deliver()
    await sim.clock.sleep(60)
    assert (first.replaced, first.is_sure) == ([], True)
    assert (second.replaced, second.has_begun) == (["n1"], False)


@virtual()
async def test_an_api_server_that_is_away_is_asked_again(sim: Sim) -> None:
    calls: list[float] = []

    async def attempt() -> None:
        calls.append(sim.clock.monotonic())
        if len(calls) < 3:
            raise errors.Unreachable("no connection")

    await node_ownership.persist(attempt, sim.clock, 2.0)
    assert [at - calls[0] for at in calls] == [0.0, 2.0, 4.0]
