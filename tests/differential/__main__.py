# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.differential`: the same random work on several clusters, compared."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.differential import api, jobs, plans
from tests.differential.answers import ComparedServer, ServerPair
from tests.scenarios.setting import Setting

# More than this is one mistake that shows everywhere.
MOST_FAILURES = 20

# Between two lines of progress.
ROUND = 200

# Jobs that are played at once. More of them only wait for each other's pods.
AT_ONCE = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    commands = parser.add_subparsers(required=True)
    _add_api(commands.add_parser("api", help=api.__doc__))
    _add_jobs(commands.add_parser("jobs", help=jobs.__doc__))
    options = parser.parse_args()
    code: int = options.run(options)
    return code


def _add_api(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        action="append",
        required=True,
        type=_server,
        metavar="NAME=KUBECONFIG",
        help="given twice; the first is the reference",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--case", type=int, help="the number of the one case to run")
    parser.add_argument("--kind", action="append", default=[], help="a plural, e.g. pods")
    parser.set_defaults(run=_api)


def _server(text: str) -> ComparedServer:
    name, _, path = text.partition("=")
    if not path or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=KUBECONFIG with a file that exists")
    return ComparedServer(name, Path(path))


def _api(options: argparse.Namespace) -> int:
    if len(options.server) != 2:
        print("--server must be given twice", file=sys.stderr)
        return 2
    pair = ServerPair(*options.server)
    run = api.ApiRun(pair, options.seed, options.kind)
    try:
        run.prepare()
    except (OSError, RuntimeError) as error:
        print(f"cannot begin: {error}", file=sys.stderr)
        return 2
    try:
        if options.case is not None:
            run.case(options.case, tell=lambda step: print(step.left))
            print(*run.tally.failures, sep="\n")
        else:
            _cases(run, options.cases)
    finally:
        run.clean()
        pair.close()
    return _verdict(run.tally)


def _cases(run: api.ApiRun, count: int) -> None:
    for number in range(count):
        reported = len(run.tally.failures)
        run.case(number)
        for failure in run.tally.failures[reported:]:
            print(failure, flush=True)
        if len(run.tally.failures) >= MOST_FAILURES:
            break
        if (number + 1) % ROUND == 0:
            print(run.tally, flush=True)


def _verdict(tally: api.ApiTally) -> int:
    for row, count in tally.known.most_common():
        print(f"  known, {count} times: {row}")
    print(tally)
    return 1 if tally.failures else 0


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--setting",
        action="append",
        required=True,
        type=_setting,
        metavar="NAME=KUBECONFIG",
        help="one of them the reference",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument(
        "--case", type=int, action="append", help="the number of a case to play; may be repeated"
    )
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N")
    parser.set_defaults(run=_jobs)


def _setting(text: str) -> Setting:
    try:
        return Setting.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _jobs(options: argparse.Namespace) -> int:
    names = [each.role for each in options.setting]
    if jobs.REFERENCE not in names or len(names) < 2:
        print(f"--setting must name {jobs.REFERENCE} and one other", file=sys.stderr)
        return 2
    numbers = options.case or range(options.cases)
    cases = [plans.plan(options.seed, number) for number in numbers]
    print(f"seed {options.seed}, {len(cases)} cases", flush=True)
    run = jobs.JobsRun(options.setting, cases, tell=_tell)
    verdict = run.play(options.at_once)
    for name, waits in run.waits.items():
        shortest = f", the shortest {min(waits):.1f} s" if waits else ""
        print(f"{name}: {len(waits)} waits for a first retry{shortest}")
    by_name = {each.name: each for each in cases}
    for row, count in Counter(each.meant for each in verdict.meant).items():
        print(f"meant, {count} times: {row}")
    print(
        jobs.shown(verdict, by_name, lambda case: jobs.replay(options.seed, case, options.setting))
    )
    wrong = {each.scenario for each in verdict.differences}
    print(f"{len(cases)} cases, {len(wrong)} differ, {len(verdict.dropped)} dropped")
    return 1 if verdict.is_bad else 0


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
