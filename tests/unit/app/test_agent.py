# SPDX-License-Identifier: Apache-2.0
"""What an agent starts, when its watch is behind what others did."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from refloat.agent.runtime import StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.apiserver.inprocess import InProcess
from refloat.app.agent import whole_pod
from refloat.client import kinds
from refloat.client.local import LocalClient
from refloat.sim.run import Sim, run
from tests import builders
from tests.simulation import api_program

PODS = "/api/v1/namespaces/default/pods"


async def created(api: InProcess) -> tuple[Object, Pod]:
    """A pod that is bound and not gone before its time, and what an agent has seen of it."""
    given = builders.pod(node="n1", spec={"terminationGracePeriodSeconds": 30})
    made = msgspec.json.decode(await api.call("POST", PODS, msgspec.json.encode(given)))
    return made, msgspec.convert(made, Pod)


async def fail(api: InProcess) -> None:
    await LocalClient(api, field_manager="other").patch(
        kinds.PODS,
        "p",
        {"status": {"phase": "Failed"}},
        patch_type="strategic",
        namespace="default",
        subresource="status",
    )


async def delete(api: InProcess) -> None:
    await api.call("DELETE", f"{PODS}/p", b"{}")


async def replace(api: InProcess) -> None:
    await api.call("DELETE", f"{PODS}/p", b'{"gracePeriodSeconds": 0}')
    await created(api)


@pytest.mark.parametrize(
    ("meanwhile", "want", "reason"),
    [
        pytest.param(fail, "has ended, or is about to", "", id="called Failed"),
        pytest.param(delete, "has ended, or is about to", "", id="terminating"),
        pytest.param(replace, "is gone", "CreateContainerError", id="another of its name"),
    ],
)
def test_nothing_is_started_of_a_pod_that_ended_unheard(
    meanwhile: Callable[[InProcess], Awaitable[None]], want: str, reason: str
) -> None:
    """behaviour D4.1, D8.2"""

    async def program(sim: Sim) -> None:
        async with api_program.serving(sim) as api:
            client = LocalClient(api, field_manager="agent")
            whole, seen = await created(api)
            assert await whole_pod(client, sim.clock, seen) == whole
            await meanwhile(api)
            with pytest.raises(StartError, match=want) as caught:
                await whole_pod(client, sim.clock, seen)
            assert caught.value.reason == reason

    run(program, seed=0)
