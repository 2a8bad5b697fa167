# SPDX-License-Identifier: Apache-2.0
"""How pods fail (KEP-3329's review, KEP-3939's e2e test), done to real processes.

behaviour C1, C2, C3, C6, C7, D4 to D8, F, G2, G3, G12. Scenarios share clusters:
one alone takes longer to start its nodes than to play.
"""

import subprocess
from pathlib import Path

import pytest
import yaml

from refloat.cli import demo
from refloat.demo.failures import case_namespace
from refloat.demo.failures.cases import CASES
from refloat.demo.output_lines import Line
from tests.e2e import failures
from tests.e2e.cluster import REFLOAT

# Each scenario has as long as a demo; a busy machine needs that long.
PATIENCE_SECONDS = 300


def test_every_scenario_is_played_in_one_group() -> None:
    played = [case.name for cases in failures.GROUPS.values() for case in cases]
    assert sorted(played) == sorted(case.name for case in CASES)


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.parametrize("group", failures.GROUPS)
async def test_pods_end_as_the_document_says(group: str) -> None:
    cases, lines = failures.GROUPS[group], list[Line]()
    ends = await failures.play(cases, lines)
    text = failures.DOCUMENT.read_text()
    assert [
        case.name for case in cases if failures.section(case, ends[case.name]) not in text
    ] == []
    assert [case.name for case in cases if failures.glance(case, ends[case.name]) not in text] == []
    rows = [text for line in lines for text in demo.render(line)]
    assert [text for text in rows if len(text) > demo.WIDTH] == []


def test_the_document_says_nothing_else() -> None:
    """A scenario raises unless the documented end comes."""
    document = failures.MARK + failures.DOCUMENT.read_text().partition(failures.MARK)[2]
    assert document == failures.document({case.name: case.want for case in CASES})


def test_the_policy_in_the_document_is_that_of_the_scenarios() -> None:
    policy = failures.DOCUMENT.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(policy) == {"podFailurePolicy": case_namespace.POLICY}


def test_a_scenario_can_be_watched_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [REFLOAT, "demo", "container-kill", "--pace", "0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Running -> Failed" in done.stdout
    assert "container: terminated 137 Error" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= demo.WIDTH
    assert list(tmp_path.iterdir()) == []
    assert not _mentioned(str(tmp_path))


def _mentioned(path: str) -> list[str]:
    """Processes that have a path in their command."""
    commands = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = each.read_bytes().decode(errors="replace")
        except OSError:
            continue  # the process has just ended
        if path in command:
            commands.append(command)
    return commands
