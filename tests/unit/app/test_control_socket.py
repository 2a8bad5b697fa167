# SPDX-License-Identifier: Apache-2.0
"""The control socket of an embedded cluster."""

import asyncio
import stat
from pathlib import Path

import pytest

from refloat.app import control_socket, node_faults, socket_paths
from refloat.app.control_socket import Control, Object, Refused
from refloat.base.errors import UsageError


def echo(request: Object) -> Object:
    if request["do"] == "fail":
        raise Refused("not that")
    return {"heard": request["do"]}


async def asked(folder: Path, request: Object) -> Object:
    return await asyncio.to_thread(control_socket.ask, folder, request)


@pytest.fixture(params=["short", "long" * 30])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Also where its path is too long for a unix socket."""
    control = tmp_path / str(request.param)
    control.mkdir()
    return control


async def test_a_request_gets_its_answer(folder: Path) -> None:
    control = Control(folder, echo)
    await control.start()
    try:
        assert await asked(folder, {"do": "x"}) == {"heard": "x"}
        with pytest.raises(Refused, match="not that"):
            await asked(folder, {"do": "fail"})
    finally:
        await control.close()


async def test_only_its_owner_may_use_it(folder: Path) -> None:
    control = Control(folder, echo)
    await control.start()
    try:
        mode = (folder / control_socket.NAME).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    finally:
        await control.close()
    assert not (folder / control_socket.NAME).exists()


async def test_what_a_killed_process_left_is_no_obstacle(folder: Path) -> None:
    (folder / control_socket.NAME).write_text("")
    control = Control(folder, echo)
    await control.start()
    try:
        assert await asked(folder, {"do": "x"}) == {"heard": "x"}
    finally:
        await control.close()


async def test_nonsense_ends_only_its_own_connection(folder: Path) -> None:
    control = Control(folder, echo)
    await control.start()
    try:
        with socket_paths.reachable(folder / control_socket.NAME) as name:
            reader, writer = await asyncio.open_unix_connection(name)
        writer.write(b"nonsense\n")
        assert await reader.read() == b""
        writer.close()
        assert await asked(folder, {"do": "x"}) == {"heard": "x"}
    finally:
        await control.close()


def test_without_a_cluster_the_error_says_how_to_start_one(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no cluster runs on .*refloat up --data-dir"):
        control_socket.ask(folder, {})


def test_a_cluster_without_nodes_says_how_to_get_some() -> None:
    with pytest.raises(Refused) as error:
        node_faults.execute(None, {"do": "freeze", "node": "n1"})
    assert str(error.value) == (
        "no node 'n1' to freeze; this cluster has none; `refloat up --simulated-nodes 3` has three"
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

    def fail(self, name: str, fault: node_faults.Fault) -> None:
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
        node_faults.execute(simulated, {"do": "freeze", "node": node}, real)
    node_faults.execute(simulated, {"do": "shutdown", "node": "n1"}, real)
    assert (simulated.done, real.done) == (["freeze"], ["freeze", "shutdown"])
    look = {"do": "look", "node": "n1"}
    assert node_faults.execute(simulated, look, real) == {"node": "n1", "off": True}


def test_what_cannot_be_done_to_a_node_is_refused() -> None:
    simulated, real = One("node-0"), One("n1")
    for verb, node, want in (
        ("shutdown", "node-0", "node node-0 is simulated: only nodes of `--nodes` shut down"),
        ("heal", "n1", "node n1 has no fault"),
        ("melt", "n1", "unknown action 'melt'; one of crash, freeze, partition, heal, shutdown"),
        ("crash", "n2", "no node 'n2' to crash; there are n1, node-0"),
    ):
        with pytest.raises(Refused) as error:
            node_faults.execute(simulated, {"do": verb, "node": node}, real)
        assert str(error.value) == want
    assert simulated.done == real.done == []
