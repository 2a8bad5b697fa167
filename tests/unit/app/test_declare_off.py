# SPDX-License-Identifier: Apache-2.0
"""A node that is to be force evicted, and does not go off."""

from pathlib import Path

import pytest

from refloat.app import declare_off
from refloat.base.errors import RefloatError, UsageError
from refloat.sim.run import Sim
from tests.unit.app.test_simulated_nodes import KUBECONFIG
from tests.virtual import virtual


@virtual()
async def test_a_node_that_stays_on_is_a_negative_answer_and_no_wrong_use(
    sim: Sim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_on(_folder: Path, _node: str) -> bool:
        return False

    monkeypatch.setattr(declare_off, "_is_off", is_on)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    with pytest.raises(RefloatError, match="node n1 is not off after 120 s; when it") as error:
        await declare_off.declare_off(tmp_path, "n1", sim.clock, sim.rand)
    assert not isinstance(error.value, UsageError)
    assert sim.clock.monotonic() >= declare_off.PATIENCE_SECONDS
