# SPDX-License-Identifier: Apache-2.0
"""A manager whose controllers lack a right says so in readyz."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from refloat.app import controller_names
from refloat.app.manager import ClusterManager, ClusterManagerSettings
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.runtime.event_series import Reference
from refloat.runtime.health_server import Address
from refloat.runtime.missing_rights import Rights
from tests.clocks import ManualClock

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@pytest.fixture
def manager(tmp_path: Path) -> ClusterManager:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(KUBECONFIG))
    settings = ClusterManagerSettings(
        kubeconfig=file,
        gate_flags={"FailureRecoveryPolicy": True, "TaintForceEviction": True},
        controllers=(controller_names.FAILURE_RECOVERY, controller_names.FORCE_EVICTION),
        health_at=Address("127.0.0.1", 0),
    )
    return ClusterManager(settings, ManualClock(), Rand(1))


async def readyz(manager: ClusterManager) -> str:
    reader, writer = await asyncio.open_connection(*manager.endpoints.addresses["health"])
    writer.write(b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def refuse(rights: Rights) -> None:
    about = Reference("v1", "Node", "n", uid="n")
    with pytest.raises(errors.Forbidden), rights.needed("patch nodes", about):
        raise errors.Forbidden("no", code=403)


async def test_a_missing_right_of_each_controller_is_named(manager: ClusterManager) -> None:
    await manager.endpoints.start()
    try:
        first = await readyz(manager)
        independent = manager._manager._parts.independent
        recovery, eviction, _publisher = (cast("Any", each) for each in independent)
        for each in (recovery, eviction._reconciler):
            assert f"[+]rights/{each.name} ok" in first
            refuse(each.rights)
            line = f"[-]rights/{each.name} failed: {each.name} may not patch nodes"
            assert line in await readyz(manager)
    finally:
        await manager.endpoints.close()
