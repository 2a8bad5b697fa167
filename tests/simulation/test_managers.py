# SPDX-License-Identifier: Apache-2.0
"""Two managers, one Lease: every pod is marked once, in any order and any process."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from refloat.sim.run import Sim, run
from tests.simulation import manager_program
from tests.virtual import virtual

ROOT = Path(__file__).parents[2]


@virtual(seeds=40)
async def test_every_pod_is_marked_once_and_leadership_moves_on(sim: Sim) -> None:
    trace = await manager_program.program(sim)
    marks = Counter(text.rpartition(" ")[2] for text in trace.texts if " marked default/" in text)
    assert len(marks) == manager_program.PODS
    assert set(marks.values()) == {1}
    leaders = list(
        dict.fromkeys(text.split()[0] for text in trace.texts if " marked default/" in text)
    )
    assert len(leaders) == 2, f"who led: {leaders}"
    assert trace.texts[-1] == f"{manager_program.PODS} events"


@pytest.mark.parametrize("hash_seed", ["1", "12345"])
def test_another_process_has_the_same_history(hash_seed: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation.manager_program", "7"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == run(manager_program.program, seed=7).digest()
