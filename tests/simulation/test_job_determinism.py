# SPDX-License-Identifier: Apache-2.0
"""The same seed is the same history of Jobs, in any process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refloat.sim.run import run
from tests.simulation import job_program

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("hash_seed", ["1", "12345"])
def test_another_process_has_the_same_jobs(hash_seed: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation.job_program", "7"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == run(job_program.program, seed=7).digest()
