# SPDX-License-Identifier: Apache-2.0
"""A server may be killed at any moment: all answers and events stay true."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Fewer while one works on something else; all of them in every full run.
ROUNDS = int(os.environ.get("REFLOAT_KILL_ROUNDS", "200"))


@pytest.mark.timeout(600)
def test_a_killed_server_loses_nothing_and_showed_nothing_that_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Any failure prints the seed and the round."""
    data_dir = str(tmp_path / "data")
    command = [sys.executable, "-m", "tests.e2e.server_kill_rounds", data_dir, str(ROUNDS), "1"]
    with capfd.disabled():  # the rounds show their progress on a terminal
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert result.returncode == 0, "see the standard error"
    rounds, acknowledged, events = map(int, result.stdout.split())
    assert rounds == ROUNDS
    assert acknowledged > 5 * ROUNDS
    assert events > 5 * ROUNDS
