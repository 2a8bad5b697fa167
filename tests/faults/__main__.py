# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.faults`: one scenario, all of them, or random ones without end.

`make faults` runs all scenarios and some seeds, several at once, because most of them
wait; `make soak` runs random seeds until one fails or Ctrl-C. Each failure comes with
the replay command.
"""

import argparse
import concurrent.futures
import itertools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import schedule
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.processes import running
from tests.faults.workload import workload

RANDOM = ("random_faults", "random_faults_with_a_manager")

# Random schedules of each kind in a run of everything, beside the scenarios.
SEEDS = 3

# A scenario has about eight processes, and most of them wait.
AT_ONCE = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="only this one")
    parser.add_argument("--seed", type=int, help="of the moments and of random faults")
    parser.add_argument("--soak", action="store_true", help="random faults without end")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # processes end in order then, too
    seed = random.randrange(10**6) if options.seed is None else options.seed
    try:
        if options.scenario:
            return _one(options.scenario, seed)
        runs = _without_end(seed) if options.soak else _everything(seed)
        return _many(runs, options.at_once, until_failure=options.soak)
    except KeyboardInterrupt:
        print("interrupted")
        return 130


def replay(name: str, seed: int) -> str:
    """The command that runs a scenario again."""
    return f"python -m tests.faults --seed {seed} --scenario {name}"


def _one(name: str, seed: int) -> int:
    scenario = SCENARIOS[name]
    print(f"{name}: {scenario.about}\n  again: {replay(name, seed)}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="refloat-faults-"))
    began = time.monotonic()
    try:
        how = {"fast": scenario.fast, "manager": scenario.manager}
        with running(folder, **how) as cluster, workload(cluster, name) as load:
            if name in RANDOM:
                for step in schedule.draw(seed, cluster):
                    print(f"  {step}", flush=True)
            scenario.play(load, seed)
    except AssertionError as error:
        print(f"FAILED {error}\n  files are in {folder}\n  again: {replay(name, seed)}")
        return 1
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)
    print(f"held, {time.monotonic() - began:.0f} s")
    return 0


def _everything(seed: int) -> Iterator[tuple[str, int]]:
    """The longest first: the others fill the time."""
    for each in sorted(SCENARIOS.values(), key=lambda each: not each.long):
        count = SEEDS if each.name in RANDOM else 1
        yield from ((each.name, seed + number) for number in range(count))


def _without_end(seed: int) -> Iterator[tuple[str, int]]:
    for number in itertools.count(seed):
        yield RANDOM[number % 2], number


def _many(runs: Iterator[tuple[str, int]], at_once: int, *, until_failure: bool = False) -> int:
    failed: list[tuple[str, int]] = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        pending: dict[concurrent.futures.Future[int], tuple[str, int]] = {}
        for run in itertools.chain(runs, [None]):
            while pending and (run is None or len(pending) >= at_once):
                done, _ = concurrent.futures.wait(
                    pending, return_when=concurrent.futures.FIRST_COMPLETED
                )
                failed += [pending[each] for each in done if each.result()]
                for each in done:
                    del pending[each]
            if failed and until_failure:
                break  # the runs that are under way end first
            if run is not None:
                pending[pool.submit(_process, *run)] = run
    for name, seed in failed:
        print(f"FAILED; again: {replay(name, seed)}")
    return int(bool(failed))


def _process(name: str, seed: int) -> int:
    command = [sys.executable, "-m", "tests.faults", "--seed", str(seed), "--scenario", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
