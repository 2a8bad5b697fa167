# SPDX-License-Identifier: Apache-2.0
"""spec.backoffPolicy behind its gate: unknown while the gate is off, kept in stored Jobs.

KEP-3329, first design, feature enablement and rollback.
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
from tests.simulation.api_program import APPLY, JOBS, MERGE
from tests.virtual import virtual

OFF = Gates()
ON = Gates({gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES: True})

STRATEGIC = "application/strategic-merge-patch+json"
UNKNOWN = 'unknown field "spec.backoffPolicy"'

POLICY: Object = {
    "rules": [
        {"action": "Terminate", "containerExitCodeNotIn": "40-50", "containerName": "main"},
        {"action": "Ignore", "podStatusReasonNotIn": [""]},
    ]
}


async def call(
    api: LocalConnection, method: str, target: str, obj: Object, form: str = ""
) -> Object:
    body = msgspec.json.encode(obj)
    answer: Object = msgspec.json.decode(
        await api.call(method, target, body, form or "application/json")
    )
    return answer


async def create(
    api: LocalConnection, name: str = "j", policy: Any = POLICY, query: str = ""
) -> Object:
    return await call(
        api, "POST", f"{JOBS}{query}", builders.job(name, spec={"backoffPolicy": policy})
    )


async def change(api: LocalConnection, how: str, created: Object) -> Object:
    if how == "put":
        created["spec"]["parallelism"] = 3
        return await call(api, "PUT", f"{JOBS}/j?fieldValidation=Strict", created)
    if how == "status":
        status = {"status": {"active": 1}}
        return await call(api, "PATCH", f"{JOBS}/j/status?fieldValidation=Strict", status, MERGE)
    if how == "apply":
        target = f"{JOBS}/j?fieldManager=m&force=true"
        config = builders.job(spec={"backoffPolicy": POLICY, "parallelism": 3})
        return await call(api, "PATCH", target, config, APPLY)
    form = {"merge": MERGE, "strategic": STRATEGIC}[how]
    target = f"{JOBS}/j?fieldValidation=Strict"
    return await call(api, "PATCH", target, {"spec": {"parallelism": 3}}, form)


@virtual(api_server.serve)
async def test_on_it_is_stored_as_it_was_written(api: SimulatedServer) -> None:
    api.use(ON)
    created = await create(api, query="?fieldValidation=Strict")
    assert created["spec"]["backoffPolicy"] == POLICY
    assert created["spec"]["podReplacementPolicy"] == "Failed"
    assert (await call(api, "GET", f"{JOBS}/j", {}))["spec"]["backoffPolicy"] == POLICY


@pytest.mark.parametrize("policy", [POLICY, 3, "x", {"rules": 1}], ids=repr)
@virtual(api_server.serve)
async def test_off_it_is_no_field_whatever_stands_there(api: SimulatedServer, policy: Any) -> None:
    api.use(OFF)
    created = await create(api, policy=policy)
    assert "backoffPolicy" not in created["spec"]
    assert created["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"
    with pytest.raises(errors.StatusError) as error:
        await create(api, "k", policy, "?fieldValidation=Strict")
    assert error.value.message == (
        'Job in version "v1" cannot be handled as a Job: strict decoding error: ' + UNKNOWN
    )


@pytest.mark.parametrize("how", ["put", "merge", "strategic", "status", "apply"])
@virtual(api_server.serve)
async def test_off_it_is_kept_on_a_job_that_has_it(api: SimulatedServer, how: str) -> None:
    """Also with strict validation: the client read the field from the server."""
    api.use(ON)
    created = await create(api)
    api.use(OFF)
    assert (await call(api, "GET", f"{JOBS}/j", {}))["spec"]["backoffPolicy"] == POLICY
    changed = await change(api, how, created)
    assert changed["spec"]["backoffPolicy"] == POLICY
    assert changed["spec"]["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize("form", [MERGE, "put"])
@virtual(api_server.serve)
async def test_off_it_is_not_added_to_a_job_without_it(api: SimulatedServer, form: str) -> None:
    api.use(OFF)
    created = await create(api)
    created["spec"]["backoffPolicy"] = POLICY
    method, body = ("PUT", created) if form == "put" else ("PATCH", {"spec": created["spec"]})
    media = "" if form == "put" else form
    new = await call(api, method, f"{JOBS}/j", body, media)
    assert "backoffPolicy" not in new["spec"]
    assert new["metadata"]["generation"] == 1
    with pytest.raises(errors.StatusError) as error:
        await call(api, method, f"{JOBS}/j?fieldValidation=Strict", body, media)
    assert UNKNOWN in error.value.message


@virtual(api_server.serve)
async def test_off_it_cannot_be_applied(api: SimulatedServer) -> None:
    api.use(OFF)
    with pytest.raises(errors.StatusError) as error:
        await call(
            api,
            "PATCH",
            f"{JOBS}/j?fieldManager=m",
            builders.job(spec={"backoffPolicy": POLICY}),
            APPLY,
        )
    assert ".spec.backoffPolicy: field not declared in schema" in error.value.message


@pytest.mark.parametrize("after", [ON, OFF], ids=["on", "off"])
@virtual(api_server.serve)
async def test_it_cannot_be_changed(api: SimulatedServer, after: Gates) -> None:
    api.use(ON)
    await create(api)
    api.use(after)
    with pytest.raises(errors.StatusError, match=r"spec.backoffPolicy: .*immutable"):
        await call(api, "PATCH", f"{JOBS}/j", {"spec": {"backoffPolicy": None}}, MERGE)


@virtual(api_server.serve)
async def test_a_wrong_one_is_refused_with_its_path(api: SimulatedServer) -> None:
    api.use(ON)
    wrong = {"rules": [{"action": "Terminate", "containerExitCodeIn": "9-1"}]}
    with pytest.raises(errors.StatusError) as error:
        await create(api, policy=wrong)
    assert error.value.code == 422
    assert error.value.message == (
        'Job.batch "j" is invalid: spec.backoffPolicy.rules[0].containerExitCodeIn: '
        'Invalid value: "9-1": the range "9-1" ends before it begins'
    )
    with pytest.raises(errors.StatusError, match="cannot unmarshal number into Go struct field"):
        await create(api, policy={"rules": [{"containerExitCodeIn": 42}]})
    policy = {"rules": [{"exitCodeIn": "42"}]}
    with pytest.raises(errors.StatusError, match=r"unknown field .*rules\[0\].exitCodeIn"):
        await create(api, policy=policy, query="?fieldValidation=Strict")


@virtual(api_server.serve)
async def test_off_on_off_on(api: SimulatedServer) -> None:
    for turn, on in enumerate([OFF, ON] * 2):
        api.use(on)
        created = await create(api, f"j-{turn}")
        assert created["spec"].get("backoffPolicy") == (POLICY if turn % 2 else None)
    for on in (OFF, ON):
        api.use(on)
        for turn, want in enumerate([None, POLICY] * 2):
            current = await call(api, "GET", f"{JOBS}/j-{turn}", {})
            assert current["spec"].get("backoffPolicy") == want
