# SPDX-License-Identifier: Apache-2.0
"""The simulator refuses the real world, with and without asyncio."""

import asyncio
import concurrent.futures
import os
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from refloat.sim import errors
from refloat.sim.loop import REFUSED, VirtualLoop
from refloat.sim.run import Sim, run

# The methods of a loop that need no operating system.
SIMULATED = {
    "call_at",
    "call_exception_handler",
    "call_later",
    "call_soon",
    "call_soon_threadsafe",
    "close",
    "create_future",
    "create_task",
    "default_exception_handler",
    "get_debug",
    "get_exception_handler",
    "get_task_factory",
    "is_closed",
    "is_running",
    "run_forever",
    "run_until_complete",
    "set_debug",
    "set_exception_handler",
    "set_task_factory",
    "shutdown_asyncgens",
    "shutdown_default_executor",
    "stop",
    "time",
}


def test_every_method_of_a_loop_is_simulated_or_refused() -> None:
    public = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    assert public == SIMULATED | set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_the_loop_refuses_what_needs_the_operating_system(name: str) -> None:
    loop = VirtualLoop(None, seed=3)
    with pytest.raises(errors.Unsimulated, match=rf"^{name}: .*\(seed 3, 0.0 s"):
        getattr(loop, name)(None)
    loop.close()


async def _connect() -> None:
    await asyncio.open_connection("localhost", 1)


async def _process() -> None:
    await asyncio.create_subprocess_exec("true")


async def _sleep() -> None:
    time.sleep(0.001)


async def _thread() -> None:
    threading.Thread(target=print).start()


async def _pool() -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(print)


async def _socket() -> None:
    socket.socket()


async def _popen() -> None:
    subprocess.run(["true"])


async def _system() -> None:
    os.system("true")


ATTEMPTS = [
    pytest.param(lambda: asyncio.to_thread(print), "run_in_executor", id="a call in a thread"),
    pytest.param(_connect, "create_connection", id="a connection"),
    pytest.param(_process, "subprocess_exec", id="a process of asyncio"),
    pytest.param(_sleep, "time.sleep", id="a real sleep"),
    pytest.param(_thread, "threading.Thread.start", id="a thread"),
    pytest.param(_pool, "threading.Thread.start", id="a pool of threads"),
    pytest.param(_socket, "socket.socket", id="a socket"),
    pytest.param(_popen, "subprocess.Popen", id="a process"),
    pytest.param(_system, "os.system", id="a shell"),
]


@pytest.mark.parametrize(("attempt", "name"), ATTEMPTS)
def test_simulated_code_is_refused_the_real_world(
    attempt: Callable[[], Awaitable[None]], name: str
) -> None:
    async def main(sim: Sim) -> None:
        await sim.clock.sleep(5)
        await attempt()

    with pytest.raises(errors.Unsimulated, match=rf"^{name}: .*\(seed 9, 5.0 s"):
        run(main, seed=9)


@pytest.mark.parametrize(("attempt", "name"), ATTEMPTS)
def test_catching_the_refusal_does_not_save_the_run(
    attempt: Callable[[], Awaitable[None]], name: str
) -> None:
    async def main(sim: Sim) -> None:
        try:
            await attempt()
        except Exception as error:
            sim.trace.add(str(error))

    with pytest.raises(errors.Unsimulated, match=name):
        run(main, seed=1)


def test_the_real_world_is_back_after_a_run() -> None:
    async def main(sim: Sim) -> None:
        await sim.clock.sleep(1)

    real = (time.sleep, threading.Thread.start, socket.socket.__init__, os.fork)
    run(main, seed=1)
    assert (time.sleep, threading.Thread.start, socket.socket.__init__, os.fork) == real
    with socket.socket():
        pass


def test_another_thread_is_left_alone_but_may_not_call_in() -> None:
    refusals: list[BaseException] = []
    is_asleep, wake = threading.Event(), threading.Event()
    loops: list[Any] = []

    def call_in() -> None:
        is_asleep.wait()
        time.sleep(0.001)  # the time of this thread is real
        try:
            loops[0].call_soon_threadsafe(print)
        except errors.Unsimulated as error:
            refusals.append(error)
        wake.set()

    async def main(sim: Sim) -> None:
        loops.append(asyncio.get_running_loop())
        is_asleep.set()
        wake.wait()
        await sim.clock.sleep(1)

    thread = threading.Thread(target=call_in)
    thread.start()
    with pytest.raises(errors.Unsimulated, match="call_soon_threadsafe from another thread"):
        run(main, seed=1)
    thread.join()
    assert len(refusals) == 1
