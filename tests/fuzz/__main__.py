# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz`: until Ctrl-C or the first failure."""

import argparse
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.e2e import cluster
from tests.fuzz.driver import Fuzzer, WrongAnswer

# Between two lines of progress.
ROUND = 2000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--only", type=int, help="the number of the one case to send")
    parser.add_argument("--count", type=int, help="how many cases to send; else without end")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.serving(Path(folder) / "data") as server,
    ):
        return _run(Fuzzer(server, options.seed), options.only, options.count)


def _run(fuzzer: Fuzzer, only: int | None, count: int | None) -> int:
    fuzzer.prepare()
    number = 0
    try:
        if only is not None:
            fuzzer.run(only, count=1)
        while only is None and (count is None or number < count):
            fuzzer.run(number, count=min(ROUND, (count or number + ROUND) - number))
            number += ROUND
            print(fuzzer.report, flush=True)
    except WrongAnswer as wrong:
        print(wrong, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        fuzzer.close()
    print(fuzzer.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
