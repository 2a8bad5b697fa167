# SPDX-License-Identifier: Apache-2.0
"""Fields of Jobs behind a gate: kept in stored Jobs, not accepted while the gate is off.

KEP-3329 and KEP-3939, enablement and rollback.
"""

from typing import Any

import msgspec
import pytest

from refloat.api import errors
from refloat.api.meta import Object
from refloat.apiserver.local_server import LocalConnection
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.sim import api_server
from refloat.sim.api_server import SimulatedServer
from tests import builders
from tests.cases import cases
from tests.simulation.api_program import JOBS, MERGE
from tests.virtual import virtual

FAILURE, REPLACEMENT = gates.JOB_POD_FAILURE_POLICY, gates.JOB_POD_REPLACEMENT_POLICY
ON = Gates()
NO_FAILURE = Gates({FAILURE: False})
NO_REPLACEMENT = Gates({REPLACEMENT: False})
NEITHER = Gates({FAILURE: False, REPLACEMENT: False})

POLICY = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
FAILED, EITHER = "Failed", "TerminatingOrFailed"

GIVEN_POLICY = {"podFailurePolicy": POLICY}
GIVEN_FAILED = {"podReplacementPolicy": FAILED}


async def call(
    api: LocalConnection, method: str, target: str, obj: Object, form: str = ""
) -> Object:
    form = form or "application/json"
    answer: Object = msgspec.json.decode(
        await api.call(method, target, msgspec.json.encode(obj), form)
    )
    return answer


async def create(api: LocalConnection, **spec: Any) -> Object:
    return await call(api, "POST", JOBS, builders.job(spec=spec))


async def patch(api: LocalConnection, obj: Object) -> Object:
    return await call(api, "PATCH", f"{JOBS}/j", obj, MERGE)


def policies(obj: Object) -> tuple[Any, Any]:
    spec = obj["spec"]
    return spec.get("podFailurePolicy"), spec.get("podReplacementPolicy")


@pytest.mark.parametrize(
    ("on", "policy_fields", "want"),
    [
        pytest.param(ON, {}, (None, EITHER), id="all on: nothing said"),
        pytest.param(ON, GIVEN_POLICY, (POLICY, FAILED), id="all on: a failure policy"),
        pytest.param(ON, GIVEN_FAILED, (None, FAILED), id="all on: Failed"),
        pytest.param(NO_FAILURE, {}, (None, EITHER), id="no failure policies: nothing said"),
        pytest.param(
            # Defaults come before fields are dropped, as in Kubernetes.
            NO_FAILURE,
            GIVEN_POLICY,
            (None, FAILED),
            id="no failure policies: what goes with one stays",
        ),
        pytest.param(NO_FAILURE, GIVEN_FAILED, (None, FAILED), id="no failure policies: Failed"),
        pytest.param(NO_REPLACEMENT, {}, (None, None), id="no replacement: not even a default"),
        pytest.param(
            NO_REPLACEMENT, GIVEN_POLICY, (POLICY, None), id="no replacement: a failure policy"
        ),
        pytest.param(NO_REPLACEMENT, GIVEN_FAILED, (None, None), id="no replacement: Failed"),
        pytest.param(NEITHER, GIVEN_POLICY | GIVEN_FAILED, (None, None), id="neither: both"),
    ],
)
@virtual(api_server.serve)
async def test_what_is_stored_of_a_new_job(
    api: SimulatedServer, on: Gates, policy_fields: Object, want: tuple[Any, Any]
) -> None:
    api.use(on)
    assert policies(await create(api, **policy_fields)) == want
    assert policies(await call(api, "GET", f"{JOBS}/j", {})) == want


@pytest.mark.parametrize("how", ["patch", "put", "status"])
@pytest.mark.parametrize("on", [NO_FAILURE, NO_REPLACEMENT, NEITHER], ids=repr)
@virtual(api_server.serve)
async def test_what_an_existing_job_has_is_kept(api: SimulatedServer, on: Gates, how: str) -> None:
    created = await create(api, **GIVEN_POLICY)
    api.use(on)
    assert policies(await call(api, "GET", f"{JOBS}/j", {})) == (POLICY, FAILED)
    if how == "patch":
        new = await patch(api, {"spec": {"parallelism": 3}})
    elif how == "put":
        created["spec"]["parallelism"] = 3
        new = await call(api, "PUT", f"{JOBS}/j", created)
    else:
        status = {"status": {"active": 1}}
        new = await call(api, "PATCH", f"{JOBS}/j/status", status, MERGE)
    assert policies(new) == (POLICY, FAILED)


@virtual(api_server.serve)
async def test_a_policy_is_not_added_to_an_existing_job(api: SimulatedServer) -> None:
    api.use(NEITHER)
    await create(api)
    new = await patch(api, {"spec": {**GIVEN_POLICY, **GIVEN_FAILED}})
    assert policies(new) == (None, None)
    assert new["metadata"]["generation"] == 1


@virtual(api_server.serve)
async def test_another_replacement_policy_replaces_the_kept_one(api: SimulatedServer) -> None:
    await create(api, **GIVEN_FAILED)
    api.use(NEITHER)
    new = await patch(api, {"spec": {"podReplacementPolicy": EITHER}})
    assert policies(new) == (None, EITHER)


@virtual(api_server.serve)
async def test_a_kept_failure_policy_can_still_not_be_changed(api: SimulatedServer) -> None:
    await create(api, **GIVEN_POLICY)
    api.use(NEITHER)
    with pytest.raises(errors.StatusError, match=r"podFailurePolicy.*immutable"):
        await patch(api, {"spec": {"podFailurePolicy": {"rules": []}}})


@cases(
    "policy_fields want",
    {
        "without a failure policy": ({}, (None, EITHER)),
        "with one": (GIVEN_POLICY, (POLICY, FAILED)),
    },
)
@virtual(api_server.serve)
async def test_the_default_comes_with_the_first_write_after_the_gate(
    api: SimulatedServer, policy_fields: Object, want: tuple[Any, Any]
) -> None:
    """And is no change of the spec: Kubernetes sets the default at each read of a Job."""
    api.use(NO_REPLACEMENT)
    await create(api, **policy_fields)
    api.use(ON)
    new = await patch(api, {"metadata": {"labels": {"a": "b"}}})
    assert policies(new) == want
    assert new["metadata"]["generation"] == 1
    changed = await patch(api, {"spec": {"parallelism": 3}})
    assert changed["metadata"]["generation"] == 2


@virtual(api_server.serve)
async def test_a_write_that_says_nothing_new_stays_none(api: SimulatedServer) -> None:
    api.use(NO_REPLACEMENT)
    await create(api)
    api.use(ON)
    first = await patch(api, {"metadata": {"labels": {"a": "b"}}})
    again = await patch(api, {"metadata": {"labels": {"a": "b"}}})
    assert again == first


@virtual(api_server.serve)
async def test_off_on_off_on(api: SimulatedServer) -> None:
    for turn, (on, want) in enumerate([(NEITHER, None), (ON, POLICY)] * 2):
        api.use(on)
        obj = builders.job(spec=GIVEN_POLICY)
        obj["metadata"]["name"] = f"j-{turn}"
        created = await call(api, "POST", JOBS, obj)
        assert policies(created)[0] == want
    for turn, want in enumerate([None, POLICY] * 2):
        current = await call(api, "GET", f"{JOBS}/j-{turn}", {})
        assert policies(current)[0] == want


@virtual(api_server.serve)
async def test_terminating_may_be_set_and_cleared_whatever_the_gate(api: SimulatedServer) -> None:
    """KEP-3939: the controller clears the field; a server with the gate on must allow that."""
    await create(api)
    for on in (ON, NEITHER):
        api.use(on)
        for value in (1, None):
            status = {"status": {"terminating": value}}
            new = await call(api, "PATCH", f"{JOBS}/j/status", status, MERGE)
            assert new["status"].get("terminating") == value
