# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.scenarios --setting NAME=KUBECONFIG ...`: play them all, and compare.

Settings are played one after the other: two may be the same cluster, and its
machine is busy enough with one. The reference is what the others are compared
with; without it only the claims of the scenarios are checked. Ends with 0 when
all claims hold and all differences are meant, with 1 when not.
"""

import argparse
import asyncio
import fnmatch
import sys
import time
from pathlib import Path

import msgspec

from tests.scenarios import comparing, playing, scenario
from tests.scenarios.playing import ScenarioResult
from tests.scenarios.scenario import Scenario
from tests.scenarios.setting import Setting

REFERENCE = "reference"


def main() -> int:
    arguments = _arguments()
    scenarios = [
        each for each in scenario.every() if fnmatch.fnmatchcase(each.name, arguments.only)
    ]
    if not scenarios:
        print(f"no scenario is named {arguments.only!r}", file=sys.stderr)
        return 2
    results = {each.role: _play(each, scenarios, arguments.at_once) for each in arguments.setting}
    if arguments.outcomes is not None:
        arguments.outcomes.write_bytes(msgspec.json.encode(results))
    for each in arguments.setting:
        each.sweep()
    failures = sum(_tell_broken(name, outcomes) for name, outcomes in results.items())
    return 1 if failures + _compare(results, is_all=arguments.only == "*") else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios")
    add = parser.add_argument
    add("--setting", action="append", required=True, type=Setting.parse, metavar="NAME=KUBECONFIG")
    add("--only", default="*", metavar="PATTERN", help="play those with such a name")
    add("--at-once", type=int, default=playing.AT_ONCE, metavar="N", help="play so many at once")
    add("--outcomes", type=Path, metavar="FILE", help="write all outcomes there, as JSON")
    return parser.parse_args()


def _play(setting: Setting, scenarios: list[Scenario], at_once: int) -> dict[str, ScenarioResult]:
    began, done = time.monotonic(), 0

    def tell(result: ScenarioResult) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{setting.role}: {done} of {len(scenarios)}", end="", file=sys.stderr)

    results = asyncio.run(playing.play(setting, scenarios, tell, at_once=at_once))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    successes = sum(not each.error for each in results.values())
    seconds = time.monotonic() - began
    print(f"{setting.role}: {successes} of {len(scenarios)} scenarios as claimed, {seconds:.0f} s")
    return results


def _tell_broken(setting: str, results: dict[str, ScenarioResult]) -> int:
    failures = [each for each in results.values() if each.error]
    for each in failures:
        print(f"\n{setting}: {each.name}\n{each.error}")
    return len(failures)


def _compare(results: dict[str, dict[str, ScenarioResult]], *, is_all: bool) -> int:
    """Print the differences from the reference; the number of those not in the document."""
    if REFERENCE not in results or len(results) == 1:
        return 0
    others = {name: outcomes for name, outcomes in results.items() if name != REFERENCE}
    lines = comparing.meant()
    outcomes = list(comparing.differences(results[REFERENCE], others, lines))
    unmeant = [each for each in outcomes if not each.meant]
    unseen = comparing.unseen(lines, outcomes, set(others)) if is_all else []
    print(comparing.table(outcomes))
    print(f"{len(outcomes)} differences from the reference, {len(unmeant)} of them not meant")
    for line in unseen:
        print(f"{comparing.DOCUMENT.name} names a difference that is none: {line.id}")
    return len(unmeant) + len(unseen)


if __name__ == "__main__":
    sys.exit(main())
