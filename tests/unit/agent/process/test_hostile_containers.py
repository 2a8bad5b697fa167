# SPDX-License-Identifier: Apache-2.0
"""Containers that search for the agent's secrets and use the agent's sockets."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import mounts, peer_check, service
from refloat.agent.runtime import StartError
from refloat.app import control_socket, keepers
from tests.cases import cases
from tests.unit.agent.process.node import IS_ROOT, PATIENCE_SECONDS, ProcessNode, node, sh
from tests.unit.agent.process.test_volumes import with_volume

# The agent's own user: nothing but the checks of the keeper keeps such a container out.
OWN_USER: dict[str, Any] = {"user": None}

CONNECT = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.settimeout(10)
try:
    line.connect(sys.argv[1])
    line.sendall(sys.argv[2].encode() + b"\\n")
    print("got", line.recv(4096))
except OSError as error:
    print("failed", type(error).__name__)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a secret."""
    data = tmp_path / "data"
    (data / "nodes").mkdir(parents=True)
    (data / "kubeconfig").write_text("secret\n")
    return data


def hidden(data: Path) -> dict[str, Any]:
    return {"hidden": (data,), "shared": data / "volumes"}


@pytest.mark.parametrize("user", [OWN_USER, {}], ids=["of the agent's user", "of the default user"])
async def test_container_does_not_see_the_data_directory(data: Path, user: dict[str, Any]) -> None:
    async with node(data / "nodes", **hidden(data), **user) as here:
        if here.runtime.features["mounts"] == mounts.NONE:
            return  # documented: there nothing can be hidden
        script = f"cat {data}/kubeconfig; ls -A {data}; cat $V/data/kubeconfig; ls -A $V/data"
        host = {"hostPath": {"path": str(data.parent)}}
        await here.run(with_volume("a", script, "/up", host))
        assert "secret" not in here.log("a")
        words = [line.rpartition(": ")[2] for line in here.log("a").splitlines()]
        assert set(words) <= {"No such file or directory", "Permission denied"}


async def test_a_container_does_not_see_a_file_that_is_hidden(data: Path) -> None:
    settings = {"hidden": (data / "kubeconfig",), **OWN_USER}
    async with node(data / "nodes", **settings) as here:
        if here.runtime.features["mounts"] == mounts.NONE:
            return  # documented: there nothing can be hidden
        await here.run(sh("a", f"cat {data}/kubeconfig; echo end"))
        assert here.log("a") == "end\n"
    assert (data / "kubeconfig").read_text() == "secret\n"


@pytest.mark.parametrize("kind", ["DirectoryOrCreate", "FileOrCreate"])
async def test_nothing_is_made_in_the_data_directory(data: Path, kind: str) -> None:
    async with node(data / "nodes", **hidden(data), **OWN_USER) as here:
        (data.parent / "link").symlink_to(data)
        before = sorted(data.rglob("*"))
        for path in (data / "planted.token", data.parent / "link" / "deep" / "planted.token"):
            host = {"hostPath": {"path": str(path), "type": kind}}
            with pytest.raises(StartError, match="is in the data directory of the agent"):
                await here.start(with_volume("a", "true", "/data", host))
        planted = [each for each in data.rglob("*") if each not in before]
        assert [each for each in planted if "pods" not in each.parts] == []


@pytest.mark.parametrize("inner", ["data/planted", "data/nodes/deep/planted", "data"])
async def test_no_sub_path_of_a_parent_folder_is_made_in_the_data_directory(
    data: Path, inner: str
) -> None:
    async with node(data / "nodes", **hidden(data), **OWN_USER) as here:
        pod = with_volume("a", "true", "/host", {"hostPath": {"path": str(data.parent)}})
        pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = inner
        with pytest.raises(StartError, match="is in the data directory of the agent"):
            await here.start(pod)
        assert list(data.rglob("planted")) == []


@pytest.mark.parametrize("inner", ["", "nodes", "kubeconfig"])
async def test_a_path_in_the_data_directory_is_not_mounted(data: Path, inner: str) -> None:
    async with node(data / "nodes", **hidden(data), **OWN_USER) as here:
        (data.parent / "link").symlink_to(data)
        for path in (data / inner, data.parent / "link" / inner):
            host = {"hostPath": {"path": str(path)}}
            with pytest.raises(StartError, match="is in the data directory of the agent"):
                await here.start(with_volume("a", "true", "/host", host))


async def test_a_claims_folder_in_the_data_directory_is_mounted(data: Path) -> None:
    async with node(data / "nodes", **hidden(data)) as here:
        here.inputs.folders["v"] = data / "volumes" / "handle"
        claim = {"persistentVolumeClaim": {"claimName": "c"}}
        await here.run(with_volume("a", "echo hi > $V/f; cat $V/f", "/data", claim))
        assert here.log("a") == "hi\n"
        assert (data / "volumes" / "handle" / "f").read_text() == "hi\n"


@asynccontextmanager
async def reachable_keeper(folder: Path) -> AsyncIterator[ProcessNode]:
    """A node whose socket has a second name `s`, which is not hidden from containers.

    They run as the agent's user, as where no namespace can be made.
    """
    async with node(folder / "nodes", **OWN_USER) as here:
        os.link(here.settings.folder / service.SOCKET, folder / "s")
        yield here


async def asked_from_container(here: ProcessNode, path: Path, request: str) -> str:
    """What a process of a container is answered."""
    await here.run(sh("a", f"exec {sys.executable} -I -c '{CONNECT}' {path} '{request}'"))
    return here.log("a")


@cases(
    "script",
    {"itself": "", "without mark and session": "env -i setsid --fork --wait", "orphaned": "("},
)
async def test_the_keeper_hears_no_process_of_a_container(tmp_path: Path, script: str) -> None:
    async with reachable_keeper(tmp_path) as here:
        request = json.dumps({"id": 1, "op": "hello"})
        received = tmp_path / "told"
        python = f"{sys.executable} -I -c '{CONNECT}' {tmp_path / 's'} '{request}' > {received}"
        forms = {
            "": python,
            "(": f"(setsid {python} &) ; while ! [ -s {received} ]; do sleep 0.02; done",
        }
        await here.run(sh("a", forms.get(script, f'{script} sh -c "{quoted(python)}"')))
        # The agent closes the connection without an answer: at once, or during the request.
        assert received.read_text().strip() in ("got b''", "failed BrokenPipeError") or (
            "ConnectionResetError" in received.read_text()
        )
        assert not here.runtime.is_replaced
        assert (await here.run(sh("b", "exit 3"))).exit_code == 3


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


async def test_the_control_socket_hears_no_process_of_a_container(data: Path) -> None:
    requests: list[Any] = []

    def answer(request: control_socket.Object) -> control_socket.Object:
        requests.append(request)
        return {}

    listening = control_socket.Control(data, answer)
    await listening.start()
    os.link(data / control_socket.NAME, data.parent / "s")
    try:
        async with node(data / "nodes", **hidden(data), **OWN_USER) as here:
            assert keepers.all_below(data / "nodes") == {here.runtime.features["pid"]}
            request = json.dumps({"do": "crash", "node": "n1"})
            reply = await asked_from_container(here, data.parent / "s", request)
            assert "is a container" in reply
            assert requests == []
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(None, control_socket.ask, data, {"do": "look"}) == {}
            assert requests == [{"do": "look"}]
    finally:
        await listening.close()


def test_a_process_is_known_by_its_ancestors() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_check.credentials(ours) == (os.getpid(), os.geteuid())
        assert peer_check.refusal(ours, ()) == ""
        assert "is a container's" in peer_check.refusal(ours, (os.getppid(),))


@contextmanager
def connected(uid: int, *, lives: bool) -> Iterator[socket.socket]:
    """The end of a socket to which a process of a user has connected."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # a name that the kernel chooses, and any user can reach
        listener.listen(1)
        child = os.fork()
        if child == 0:
            os.setuid(uid)
            line = socket.socket(socket.AF_UNIX)
            line.connect(listener.getsockname())
            while lives:
                signal.pause()
            os._exit(0)
        try:
            if not lives:
                os.waitpid(child, 0)
            with listener.accept()[0] as end:
                yield end
        finally:
            if lives:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def test_a_process_that_is_gone_is_refused() -> None:
    with connected(os.getuid(), lives=False) as end:
        assert "is not known on this machine" in peer_check.refusal(end, ())


def test_a_process_of_another_user_is_refused() -> None:
    if not IS_ROOT:
        return  # no other user can be had
    with connected(65534, lives=True) as end:
        assert "of user 65534 is not the owner's" in peer_check.refusal(end, ())
    with connected(0, lives=True) as end:
        assert peer_check.refusal(end, ()) == ""


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


SPEC: dict[str, Any] = {
    "pod": "x",
    "container": "main",
    "id": "0" * 64,
    "attempt": 0,
    "argv": ["true"],
    "env": {},
    "mounts": [],
    "hidden": [],
    "scratch": "/x",
    "log": "/nowhere/x",
    "log_bytes": 1000,
    "log_files": 1,
    "pids": 10,
}


def _start(**changed: Any) -> bytes:
    return json.dumps({"id": 1, "op": "start", "spec": {**SPEC, **changed}}).encode()


def _op(op: str, **more: Any) -> bytes:
    return json.dumps({"id": 1, "op": op, **more}).encode()


MALFORMED = [
    pytest.param(b"\xff\xfe\x00", id="no text"),
    pytest.param(b"{", id="no JSON"),
    pytest.param(b"[1]", id="no object"),
    pytest.param(_nested(200_000), id="deep"),
    pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="deep objects"),
    pytest.param(b'{"id": 1}', id="no op"),
    pytest.param(b'{"id": 1, "op": ["start"]}', id="an op that is a list"),
    pytest.param(_op("start"), id="no spec"),
    pytest.param(_op("start", spec=[1]), id="a spec that is a list"),
    pytest.param(_op("start", spec={}), id="an empty spec"),
    pytest.param(_start(id="../../x"), id="an id that is a path"),
    pytest.param(_start(id=["x"]), id="an id that is a list"),
    pytest.param(_start(attempt=1 << 80), id="a huge attempt"),
    pytest.param(_start(attempt=True), id="an attempt that is a truth"),
    pytest.param(_start(argv=[1]), id="a command of numbers"),
    pytest.param(_start(argv=["a\0b"]), id="a command with a zero"),
    pytest.param(_start(env={"A": None}), id="an environment of nothing"),
    pytest.param(_start(mounts=["/"]), id="mounts that are no objects"),
    pytest.param(_start(grace=float("nan")), id="a grace that is no number"),
    pytest.param(_op("stop", pod="a", container="main", grace=float("inf")), id="an endless grace"),
    pytest.param(_op("stop", pod="a", container="main", grace=float("nan")), id="no grace"),
    pytest.param(_op("stop", pod="a", container="main", grace=1e300), id="a grace too long"),
    pytest.param(_op("stop", pod="a", container="main", grace=-1), id="a grace below zero"),
    pytest.param(_op("stop", pod=["a"], container="main", grace=1), id="a pod that is a list"),
    pytest.param(_op("exec", pod="a", container="main", argv="ls", timeout=1), id="no list"),
    pytest.param(_op("exec", pod="a", container="main", argv=["a\0"], timeout=1), id="a zero"),
    pytest.param(_op("exec", pod="a", container="main", argv=["ls"], timeout="x"), id="no timeout"),
    pytest.param(_op("deadlines", at=[1]), id="deadlines that are a list"),
    pytest.param(_op("deadlines", at={"a": 1e300}), id="a deadline too late"),
    pytest.param(_op("remove"), id="a removal of nothing"),
    pytest.param(_op("remove", pod={}), id="a removal of an object"),
]


async def test_a_malformed_request_is_refused_and_changes_nothing(here: ProcessNode) -> None:
    """Each request has its own connection; containers run on, and timers still run."""
    await here.start(sh("a", "sleep 1001"))
    for case in MALFORMED:
        (line,) = case.values
        assert isinstance(line, bytes)
        answer = await _sent(here, line)
        assert answer == b"" or b'"error"' in answer, case.id
        assert here.runtime.features["pid"] == keepers.find(here.settings.folder), case.id
    assert not here.current("a").has_ended
    assert (await here.run(sh("b", "exit 3"))).exit_code == 3
    here.runtime.stop("a", "main", 0.1)  # by a timer
    assert (await here.ended("a")).exit_code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)


async def _sent(here: ProcessNode, line: bytes) -> bytes:
    path = f"{here.settings.folder}/{service.SOCKET}"
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(line + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_connections_that_say_nothing_do_not_keep_the_agent_out(here: ProcessNode) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX))
            idle.connect(f"{here.settings.folder}/{service.SOCKET}")
        idle.settimeout(PATIENCE_SECONDS)
        assert idle.recv(1) == b""  # they are bounded
        assert (await here.run(sh("a", "exit 3"))).exit_code == 3
