# SPDX-License-Identifier: Apache-2.0
"""The control socket of an embedded cluster."""

import asyncio
import stat
from pathlib import Path

import pytest

from refloat.app import control, faults, socket_paths
from refloat.app.control import Control, Object, Refused
from refloat.base.errors import UsageError


def echo(request: Object) -> Object:
    if request["do"] == "fail":
        raise Refused("not that")
    return {"heard": request["do"]}


async def asked(folder: Path, request: Object) -> Object:
    return await asyncio.to_thread(control.ask, folder, request)


@pytest.fixture(params=["short", "long" * 30])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Also where its path is too long for a unix socket."""
    made = tmp_path / str(request.param)
    made.mkdir()
    return made


async def test_a_request_gets_its_answer(folder: Path) -> None:
    made = Control(folder, echo)
    await made.start()
    try:
        assert await asked(folder, {"do": "x"}) == {"heard": "x"}
        with pytest.raises(Refused, match="not that"):
            await asked(folder, {"do": "fail"})
    finally:
        await made.close()


async def test_only_its_owner_may_use_it(folder: Path) -> None:
    made = Control(folder, echo)
    await made.start()
    try:
        mode = (folder / control.NAME).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    finally:
        await made.close()
    assert not (folder / control.NAME).exists()


async def test_what_a_killed_process_left_is_no_obstacle(folder: Path) -> None:
    (folder / control.NAME).write_text("")
    made = Control(folder, echo)
    await made.start()
    try:
        assert await asked(folder, {"do": "x"}) == {"heard": "x"}
    finally:
        await made.close()


async def test_nonsense_ends_only_its_own_connection(folder: Path) -> None:
    made = Control(folder, echo)
    await made.start()
    try:
        with socket_paths.reachable(folder / control.NAME) as name:
            reader, writer = await asyncio.open_unix_connection(name)
        writer.write(b"nonsense\n")
        assert await reader.read() == b""
        writer.close()
        assert await asked(folder, {"do": "x"}) == {"heard": "x"}
    finally:
        await made.close()


def test_without_a_cluster_the_error_says_how_to_start_one(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no cluster runs on .*refloat up --data-dir"):
        control.ask(folder, {})


def test_a_cluster_without_nodes_says_how_to_get_some() -> None:
    with pytest.raises(Refused) as error:
        faults.obey(None, {"do": "freeze", "node": "n1"})
    assert str(error.value) == (
        "there is no node 'n1' that can be told to freeze; "
        "this cluster has none; `refloat up --simulated-nodes 3` has three"
    )


class One:
    """A node to which nothing happens."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.done: list[str] = []

    def names(self) -> list[str]:
        return [self._name]

    def fault(self, name: str) -> str | None:
        return None

    def fail(self, name: str, fault: faults.Fault) -> None:
        self.done.append(fault)

    def heal(self, name: str) -> None:
        self.done.append("heal")

    def shut_down(self, name: str) -> None:
        self.done.append("shutdown")

    def is_off(self, name: str) -> bool:
        return "shutdown" in self.done


def test_a_fault_comes_to_the_node_that_it_is_meant_for() -> None:
    simulated, real = One("node-0"), One("n1")
    for node in ("n1", "node-0"):
        faults.obey(simulated, {"do": "freeze", "node": node}, real)
    faults.obey(simulated, {"do": "shutdown", "node": "n1"}, real)
    assert (simulated.done, real.done) == (["freeze"], ["freeze", "shutdown"])
    look = {"do": "look", "node": "n1"}
    assert faults.obey(simulated, look, real) == {"node": "n1", "off": True}


def test_what_cannot_be_done_to_a_node_is_refused() -> None:
    simulated, real = One("node-0"), One("n1")
    for verb, node, want in (
        ("shutdown", "node-0", "node node-0 is simulated: only nodes of `--nodes` shut down"),
        ("heal", "n1", "nothing is the matter with node n1"),
        ("melt", "n1", "nobody knows how to 'melt' a node"),
        (
            "crash",
            "n2",
            "there is no node 'n2' that can be told to crash; there are n1, node-0",
        ),
    ):
        with pytest.raises(Refused) as error:
            faults.obey(simulated, {"do": verb, "node": node}, real)
        assert str(error.value) == want
    assert simulated.done == real.done == []
