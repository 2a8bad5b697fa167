# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.unit.agent.process.agent FOLDER ACTS`: an agent that a test may kill.

The agent starts the containers named in ACTS, one after the other, and then waits.
"""

import asyncio
import sys
from pathlib import Path

from refloat.agent.process.settings import ProcessSettings
from tests.unit.agent.process.node import ProcessNode, sh


async def main(folder: str, acts: list[str]) -> None:
    here = ProcessNode(ProcessSettings(Path(folder)))
    await here.runtime.open()
    for act in acts:
        uid, _, script = act.partition("=")
        await here.start(sh(uid, script))
        sys.stdout.write(f"{uid}\n")
        sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
