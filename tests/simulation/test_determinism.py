# SPDX-License-Identifier: Apache-2.0
"""Same seed, same history: in one process, in two, and under two hash seeds."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from refloat.api import errors
from refloat.sim import api_server
from refloat.sim.run import Sim, run
from tests.simulation import api_program, fleet_program, job_program, manager_program
from tests.virtual import virtual

ROOT = Path(__file__).parents[2]


PROGRAMS: list[tuple[ModuleType, int]] = [
    (api_program, 1),
    (api_program, 2),
    (fleet_program, 7),
    (job_program, 7),
    (manager_program, 7),
]


def digests(module: ModuleType, seed: int, *hash_seeds: str) -> list[str]:
    """The digest of a seed's trace, from a process for each hash seed."""
    command = [sys.executable, "-m", module.__name__, str(seed)]
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": each},
            stdout=subprocess.PIPE,
            text=True,
        )
        for each in hash_seeds
    ]
    answers = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return answers


@pytest.mark.parametrize(("module", "seed"), PROGRAMS)
def test_two_processes_with_two_hash_seeds_have_one_history(module: ModuleType, seed: int) -> None:
    here = run(module.program, seed=seed).digest()
    assert digests(module, seed, "1", "12345") == [here, here]


def test_the_hash_seeds_of_that_test_do_order_sets_differently() -> None:
    program = "print(list({f'key-{n}' for n in range(20)}))"
    orders = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": each},
            capture_output=True,
            check=True,
        ).stdout
        for each in ("1", "12345")
    }
    assert len(orders) == 2


def test_a_seed_repeats_itself_in_one_process() -> None:
    first, again = (run(api_program.program, seed=3) for _ in range(2))
    assert str(first) == str(again)
    assert len(first.lines) > 100


def test_another_seed_has_another_history() -> None:
    assert len({run(api_program.program, seed=seed).digest() for seed in range(5)}) == 5


def test_the_order_alone_makes_another_history() -> None:
    """The seed's chance is the same for both; only the order differs."""
    shuffled = run(api_program.program, seed=1)
    in_order = run(api_program.program, seed=1, shuffle=False)
    assert shuffled.digest() != in_order.digest()


@virtual(seeds=50)
async def test_writers_lose_no_count_in_any_order(sim: Sim) -> None:
    """Each increment whose write succeeded counts."""
    async with api_server.serve(sim) as api:
        counter = {"metadata": {"name": "counter"}, "data": {"count": "0"}}
        await api.call("POST", api_program.MAPS, msgspec.json.encode(counter))
        writers = [api_program.Writer(sim, api, f"w{number}") for number in range(4)]

        conflicts: list[int] = []

        async def count(writer: api_program.Writer) -> int:
            increments = 0
            for _ in range(5):
                try:
                    await api_program.count(writer)
                    increments += 1
                except errors.StatusError as error:
                    conflicts.append(error.code)
            return increments

        counts = await asyncio.gather(*map(count, writers))
        config_map = msgspec.json.decode(await api.call("GET", f"{api_program.MAPS}/counter"))
        assert int(config_map["data"]["count"]) == sum(counts) >= 5
        assert set(conflicts) <= {409}
