# SPDX-License-Identifier: Apache-2.0
"""All faults at once, for some seeds; `job_soak` plays more of them."""

from refloat.sim.run import Sim
from tests.simulation import job_soak
from tests.virtual import virtual


@virtual(seeds=12)
async def test_no_rule_is_broken_under_all_faults_at_once(sim: Sim) -> None:
    await job_soak.program(sim)
