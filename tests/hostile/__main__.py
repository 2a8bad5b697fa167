# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.hostile`: send the hostile requests and print what each cost."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.hostile import attacks, driver


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose names contain this text")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    options = parser.parse_args()
    selection = [each for each in attacks.ALL if options.only in each.name]
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder) / "data", selection, options.loop))


async def _run(data_dir: Path, selection: list[attacks.Attack], loop: str) -> int:
    excesses: list[str] = []
    costs: list[driver.Cost] = []
    async with driver.under_attack(data_dir, loop) as siege:
        print(driver.HEADER, flush=True)
        async for cost in siege.costs(selection):
            print(cost, flush=True)
            costs.append(cost)
            excesses += cost.excesses()
        final = await siege.final_growth()
        if final > driver.GROWTH_BYTES:
            excesses.append(f"in the end memory had grown by {final / driver.MB:.0f} MB")
    if costs:
        print(
            f"\nlongest callback {max(each.busy for each in costs) * 1000:.0f} ms, "
            f"latest tick {max(each.late for each in costs) * 1000:.0f} ms, "
            f"largest answer {max(each.answer for each in costs) / driver.MB:.1f} MB, "
            f"memory grew by {max(each.growth for each in costs) / driver.MB:.0f} MB "
            f"within 20 s after a request, by {final / driver.MB:.0f} MB in the end, "
            f"slowest renewal of a lease {max(each.slowest_lease for each in costs):.2f} s"
        )
    print(*excesses, sep="\n")
    return 1 if excesses else 0


if __name__ == "__main__":
    sys.exit(main())
