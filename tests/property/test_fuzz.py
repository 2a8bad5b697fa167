# SPDX-License-Identifier: Apache-2.0
"""A fixed share of what `make fuzz` does without end."""

import json
from pathlib import Path

import pytest

from tests.cases import cases
from tests.e2e import cluster
from tests.fuzz import driver

# About 15 seconds of a quiet machine; the time is a bound for a busy one.
CASES = 1500
SECONDS = 20.0

# The same cases each time: a test that fails now and then is no test. Others
# are for `make fuzz`.
SEED = 20261116


def test_no_request_gets_a_server_error_or_harms_the_server(tmp_path: Path) -> None:
    with cluster.serving(tmp_path / "data") as server:
        fuzzer = driver.Fuzzer(server, SEED)
        fuzzer.prepare()
        try:
            fuzzer.run(0, count=CASES, seconds=SECONDS)
        finally:
            fuzzer.close()
        assert server.end() == 0
    assert fuzzer.report.cases > CASES // 10  # a run that did nothing proves nothing
    assert {200, 201, 400, 404, 422} <= set(fuzzer.report.codes)


def test_the_same_seed_makes_the_same_cases(tmp_path: Path) -> None:
    with cluster.serving(tmp_path / "data") as server:
        first, second = (driver.Fuzzer(server, SEED) for _ in range(2))
        assert [first.case(number) for number in range(200)] == [
            second.case(number) for number in range(200)
        ]


def _status(code: int, reason: str | None) -> bytes:
    body: dict[str, object] = {"kind": "Status", "code": code, "message": "m"}
    return json.dumps(body | ({} if reason is None else {"reason": reason})).encode()


@cases(
    "code media body",
    {
        "a bug": (500, "application/json", _status(500, "InternalError")),
        "unavailable": (503, "application/json", _status(503, None)),
        "no Status": (400, "text/plain", b"400 Bad Request"),
        "an empty object": (404, "application/json", b"{}"),
        "another code": (404, "application/json", _status(400, None)),
    },
)
def test_an_answer_that_is_wrong_is_found(code: int, media: str, body: bytes) -> None:
    with pytest.raises(driver.WrongAnswer):
        driver.check(code, media, body, "GET")


@cases(
    "code media body",
    {
        "success of any form": (200, "text/plain", b"ok"),
        "Kubernetes' own 500": (500, "application/json", _status(500, None)),
        "no address of the API": (404, "text/plain", b"404 page not found\n"),
        "a Status": (422, "application/json", _status(422, "Invalid")),
        "one in YAML": (400, "application/yaml", b"kind: Status\ncode: 400\n"),
    },
)
def test_an_answer_that_is_right_is_let_pass(code: int, media: str, body: bytes) -> None:
    driver.check(code, media, body, "GET")
