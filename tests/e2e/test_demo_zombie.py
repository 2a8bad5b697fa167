# SPDX-License-Identifier: Apache-2.0
"""The demo that `make demo` plays: on real nodes, to the end, and kept with --keep."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from refloat.cli import demo
from refloat.demo import catalogue, zombie
from refloat.policy.recovery.zombie import REASON
from tests.e2e.cluster import REFLOAT, Api

# The demo itself ends after two minutes; nodes start before the demo, and end after the demo.
PATIENCE_SECONDS = 300


pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 20)


def environment(folder: Path) -> dict[str, str]:
    return {"TMPDIR": str(folder), "PATH": "/usr/bin:/bin"}


def test_it_is_the_story_that_is_played_without_a_word() -> None:
    assert catalogue.DEFAULT.name == "zombie"


def test_the_zombie_is_freed_and_the_job_completes(tmp_path: Path) -> None:
    done = subprocess.run(
        [REFLOAT, "demo"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment(tmp_path),
    )
    assert (done.returncode, done.stderr) == (0, "")
    output = done.stdout
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= demo.WIDTH
    parts = (
        "falls silent",
        "is unreachable: silent for 5 s",
        "is evicted from",
        "hangs in Terminating",
        f"{REASON}: Pod forcefully terminated after 8s grace",
        "The Job is complete",
        "Complete   3/3",
        "The demo ended as expected",
    )
    places = [output.index(part) for part in parts]
    assert places == sorted(places)
    [(index, frozen)] = re.findall(r"index (\d) is evicted from (n\d)", output)
    ran = re.findall(rf"index {index} runs on (n\d)", output)
    assert len(ran) == 2
    assert ran[0] == frozen != ran[1]
    assert list(tmp_path.iterdir()) == []


def test_its_cluster_is_kept_until_it_is_told_to_stop(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [REFLOAT, "demo", "zombie", "--keep", "--pace", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.strip().startswith("refloat node heal"):
            break
    try:
        [config] = [each for each in lines if each.startswith("export KUBECONFIG=")]
        api = Api(Path(config.partition("=")[2]))
        status = api.ask("GET", f"{zombie.JOBS}/{zombie.JOB}").object["status"]
        assert (status["succeeded"], status["failed"]) == (3, 1)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
