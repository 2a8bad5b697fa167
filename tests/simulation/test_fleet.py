# SPDX-License-Identifier: Apache-2.0
"""Twenty nodes and two hundred pods, in virtual time: all end, always in the same way."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace
from tests.simulation import fleet_program
from tests.virtual import virtual

ROOT = Path(__file__).parents[2]


def histories(trace: Trace) -> dict[str, list[tuple[str, str]]]:
    """What each pod went through: phase and node."""
    found: dict[str, list[tuple[str, str]]] = {}
    for text in trace.texts:
        if " on " not in text:
            continue
        name, state, _, node = text.split()
        steps = found.setdefault(name, [])
        if steps[-1:] != [(state, node)]:
            steps.append((state, node))
    return found


@virtual(seeds=3)
async def test_all_pods_end_as_their_scripts_say(sim: Sim) -> None:
    trace = await fleet_program.program(sim)
    found = histories(trace)
    assert len(found) == fleet_program.PODS
    for name, steps in found.items():
        number = int(name.removeprefix("pod-"))
        deleted = number % fleet_program.DELETED == 0
        assert steps[0] == ("Pending", "-")
        failed = number % fleet_program.FAILS == 1 or deleted
        # One that was deleted before it had a node never ended on one.
        if deleted and steps[-1] == ("gone", "-"):
            continue
        phases = list(dict.fromkeys(state for state, _ in steps))
        want = ["Pending", "Running", "Failed" if failed else "Succeeded"]
        assert phases == (want + ["gone"] * deleted), name
        assert len({node for _, node in steps} - {"-"}) == 1
    assert trace.texts[-1] == f"left: {sum(s[-1][0] != 'gone' for s in found.values())}"


@virtual()
async def test_no_node_ever_runs_more_than_it_said_and_all_are_used(sim: Sim) -> None:
    trace = await fleet_program.program(sim)
    busy: dict[str, str] = {}
    used = Counter[str]()
    for text in trace.texts:
        if " on " not in text:
            continue
        name, state, _, node = text.split()
        if state == "Running":
            busy[name] = node
            used[node] += 1
            assert max(Counter(busy.values()).values()) <= int(fleet_program.PODS_PER_NODE)
        elif state != "Pending":
            busy.pop(name, None)
    assert len(used) == fleet_program.NODES


def test_another_process_has_the_same_history() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation.fleet_program", "7"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == run(fleet_program.program, seed=7).digest()


def test_another_seed_has_another_history() -> None:
    assert len({run(fleet_program.program, seed=seed).digest() for seed in range(2)}) == 2
