# SPDX-License-Identifier: Apache-2.0
"""Deleting a pod for a reason."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.app import delete_pod
from refloat.base.errors import RefloatError, UsageError
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.policy.job import pod_reason
from refloat.sim import api_server
from refloat.sim.api_server import SimulatedServer
from refloat.sim.run import Sim
from tests.virtual import virtual

HELD: Object = {
    "metadata": {"name": "p", "finalizers": ["example.com/held"]},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
}


class Client(LocalClient):
    """Lets something happen before its first patch, or before each."""

    def __init__(self, api: SimulatedServer) -> None:
        super().__init__(api, field_manager="test")
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None
        self.again = False
        self.refuses: errors.ClientError | None = None
        self.deletes = False
        """What is refused happens all the same: only the answer is lost."""

    async def _call(self, request: Request) -> bytes:
        if request.method == "DELETE" and self.refuses is not None:
            if self.deletes:
                await super()._call(request)
            raise self.refuses
        happens = self.meanwhile
        if request.method == "PATCH" and happens is not None:
            self.meanwhile = None
            await happens()
            self.meanwhile = happens if self.again else None
        return await super()._call(request)

    async def status(self, **status: Any) -> None:
        await self.patch(
            kinds.PODS, "p", {"status": status}, namespace="default", subresource="status"
        )

    async def label(self, **labels: str) -> None:
        await self.patch(kinds.PODS, "p", {"metadata": {"labels": labels}}, namespace="default")

    async def pod(self) -> Pod:
        return await self.get(kinds.PODS, "p", namespace="default")

    async def noted(self, reason: str) -> None:
        patch = {"metadata": {"annotations": {pod_reason.ANNOTATION: reason}}}
        await self.patch(kinds.PODS, "p", patch, namespace="default")

    async def refused(self, error: errors.ClientError) -> Pod:
        """The pod after a delete that came to nothing, or seems so."""
        self.refuses = error
        with pytest.raises(type(error)):
            await self.deleted()
        return await self.pod()

    async def deleted(self, reason: str = "Maintenance") -> Pod:
        await delete_pod.delete_pod(self, "p", namespace="default", reason=reason)
        return await self.pod()


@asynccontextmanager
async def held_pod(sim: Sim) -> AsyncIterator[Client]:
    """An API server with a pod."""
    async with api_server.serve(sim) as api:
        client = Client(api)
        await client.create(kinds.PODS, HELD, namespace="default")
        yield client


def said(pod: Pod) -> tuple[str, str | None]:
    return pod.status.reason, (pod.metadata.annotations or {}).get(pod_reason.ANNOTATION)


@virtual(held_pod)
async def test_the_reason_is_in_the_status_and_in_an_annotation(client: Client) -> None:
    pod = await client.deleted()
    assert pod.is_terminating
    assert said(pod) == ("Maintenance", "Maintenance")


@virtual(held_pod)
async def test_a_pod_that_has_ended_is_deleted_without_it(client: Client) -> None:
    """It failed by itself; a policy must not take it for disrupted."""
    await client.status(phase="Failed")
    pod = await client.deleted()
    assert pod.is_terminating
    assert said(pod) == ("", None)


@virtual(held_pod)
async def test_a_pod_that_ends_meanwhile_is_deleted_without_it(client: Client) -> None:
    client.meanwhile = lambda: client.status(phase="Failed")
    assert said(await client.deleted()) == ("", None)


@virtual(held_pod)
async def test_a_change_of_something_else_is_no_hindrance(client: Client) -> None:
    client.meanwhile = lambda: client.label(a="b")
    assert said(await client.deleted()) == ("Maintenance", "Maintenance")


@virtual(held_pod)
async def test_a_pod_that_never_rests_is_not_deleted(client: Client) -> None:
    turns = iter(range(100))
    client.again = True
    client.meanwhile = lambda: client.label(a=str(next(turns)))
    with pytest.raises(RefloatError, match="pod p changes all the time"):
        await client.deleted()
    assert not (await client.pod()).is_terminating


@virtual(held_pod)
async def test_the_first_reason_stays(client: Client) -> None:
    await client.deleted("First")
    assert said(await client.deleted("Second")) == ("First", "First")


@virtual(held_pod)
async def test_a_reason_that_was_given_by_another_client_stays(client: Client) -> None:
    options = DeleteOptions(reason="First")
    await client.delete(kinds.PODS, "p", namespace="default", options=options)
    assert said(await client.deleted("Second")) == ("First", None)


@virtual(held_pod)
async def test_an_annotation_that_no_delete_followed_is_no_reason(client: Client) -> None:
    await client.noted("First")
    assert said(await client.deleted("Second")) == ("Second", "Second")


@virtual(api_server.serve)
async def test_a_pod_that_there_is_not_is_not_found(api: SimulatedServer) -> None:
    with pytest.raises(errors.NotFound, match='pods "p" not found'):
        await Client(api).deleted()


FORBIDDEN = errors.Forbidden("no", code=403, reason="Forbidden")
LOST = errors.Unavailable("the answer was lost")


@pytest.mark.parametrize("error", [FORBIDDEN, LOST], ids=["it is refused", "it is not answered"])
@virtual(held_pod)
async def test_a_delete_that_comes_to_nothing_leaves_no_reason_behind(
    client: Client, error: errors.ClientError
) -> None:
    pod = await client.refused(error)
    assert not pod.is_terminating
    assert said(pod) == ("", None)


@virtual(held_pod)
async def test_delete_of_which_only_answer_is_lost_keeps_its_reason(client: Client) -> None:
    client.deletes = True
    pod = await client.refused(LOST)
    assert pod.is_terminating
    assert said(pod) == ("Maintenance", "Maintenance")


@virtual(held_pod)
async def test_a_refused_delete_of_a_pod_that_others_delete_leaves_no_reason_behind(
    client: Client,
) -> None:
    await client.delete(kinds.PODS, "p", namespace="default")
    pod = await client.refused(FORBIDDEN)
    assert pod.is_terminating
    assert said(pod) == ("", None)


@virtual(held_pod)
async def test_a_refused_delete_leaves_the_reason_that_was_there(client: Client) -> None:
    await client.noted("First")
    assert said(await client.refused(FORBIDDEN)) == ("", "First")


@virtual(held_pod)
async def test_refused_delete_leaves_what_others_wrote_meanwhile(client: Client) -> None:
    """At the first try to take it back; then it is not ours any more."""
    turns = iter(range(100))

    async def second() -> None:
        if next(turns) == 1:
            await client.noted("Second")

    client.again, client.meanwhile = True, second
    assert said(await client.refused(FORBIDDEN)) == ("", "Second")


@virtual(held_pod)
async def test_refused_delete_of_a_pod_that_has_ended_touches_nothing(client: Client) -> None:
    await client.status(phase="Failed")
    before = await client.pod()
    assert await client.refused(FORBIDDEN) == before


@virtual(held_pod)
async def test_that_it_is_refused_is_told_also_if_the_reason_cannot_be_taken_back(
    client: Client,
) -> None:
    turns = iter(range(100))

    async def fails() -> None:
        if next(turns) == 1:
            raise LOST

    client.again, client.meanwhile = True, fails
    assert said(await client.refused(FORBIDDEN)) == ("", "Maintenance")


@pytest.mark.parametrize("text", ["Maintenance", "A", "Node_1,a:b"])
def test_a_reason_is_one_word(text: str) -> None:
    assert delete_pod.check_reason(text) == text


@pytest.mark.parametrize("text", ["", "two words", "1st", "x" * 1025, "a.", "ümlaut"])
def test_anything_else_is_no_reason(text: str) -> None:
    with pytest.raises(UsageError, match="is no reason; expected one word"):
        delete_pod.check_reason(text)
