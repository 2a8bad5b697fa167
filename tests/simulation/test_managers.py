# SPDX-License-Identifier: Apache-2.0
"""Two managers, one Lease: every pod is marked once, in any order and any process."""

from collections import Counter

from refloat.sim.run import Sim
from tests.simulation import manager_program
from tests.virtual import virtual


@virtual(seeds=40)
async def test_every_pod_is_marked_once_and_leadership_moves_on(sim: Sim) -> None:
    trace = await manager_program.program(sim)
    marks = Counter(text.rpartition(" ")[2] for text in trace.texts if " marked default/" in text)
    assert len(marks) == manager_program.PODS
    assert set(marks.values()) == {1}
    leaders = list(
        dict.fromkeys(text.split()[0] for text in trace.texts if " marked default/" in text)
    )
    assert len(leaders) == 2, f"who led: {leaders}"
    assert trace.texts[-1] == f"{manager_program.PODS} events"
