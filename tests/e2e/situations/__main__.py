# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.e2e.situations` creates all situations and prints what explain answered.

With `--write` the answers go into docs/explain-examples.md.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.e2e.situations import document, play, table


def _answers() -> dict[str, str]:
    answers: dict[str, str] = {}
    for cluster, situations in (
        (play.processes, table.ON_PROCESSES),
        (play.simulated, table.ON_SIMULATED),
    ):
        with tempfile.TemporaryDirectory(prefix="refloat-situations-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            with cluster(folder) as playground:
                answers |= play.play(playground, situations)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.situations")
    parser.add_argument("--write", action="store_true", help=f"write {document.PATH.name}")
    options = parser.parse_args()
    answers = _answers()
    if wrong := play.mistakes(table.SITUATIONS, answers):
        sys.exit("\n".join(wrong))
    text = document.write(answers)
    if not options.write:
        sys.stdout.write(text)
        return
    by_hand = document.PATH.read_text().partition(document.MARK)[0]
    document.PATH.write_text(by_hand + text)


if __name__ == "__main__":
    main()
