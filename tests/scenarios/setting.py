# SPDX-License-Identifier: Apache-2.0
"""Where the scenarios run: a cluster, and the controller of its Jobs.

The same suite asks all of them, so a setting is no more than where the cluster
is and what a Job must say to get the controller that is meant. The nodes are
simulated in each (`refloat.agent.simulated`).
"""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.scenario.cluster import ScenarioCluster, connected, delete_namespaces

Role: TypeAlias = Literal["embedded", "managed", "reference"]

ROLES: tuple[Role, ...] = get_args(Role)

ENDS = "REFLOAT_TEST_CLUSTER_ENDS"
"""The variable that is set for runs that need not clear up on a cluster."""

# `spec.managedBy` by which Refloat's controller takes a Job on a cluster that has its own.
OURS = "refloat.dev/job-controller"

MANAGED_BY: dict[Role, str] = {"embedded": "", "managed": OURS, "reference": ""}


@dataclass(frozen=True, slots=True)
class Setting:
    """One cluster in one role."""

    role: Role
    kubeconfig: Path

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read `NAME=KUBECONFIG`."""
        name, separator, path = text.partition("=")
        for role in ROLES:
            if name == role and separator and path:
                return cls(role, Path(path))
        roles = ", ".join(ROLES)
        raise ValueError(f"{text!r}: want NAME=KUBECONFIG, with NAME one of {roles}")

    def connect(self) -> AbstractAsyncContextManager[ScenarioCluster]:
        return connected(
            self.kubeconfig,
            RealClock(),
            Rand(),
            managed_by=MANAGED_BY[self.role],
            needs_account=self.role != "embedded",
        )

    def sweep(self) -> None:
        """Delete the namespaces of all scenarios, unless the cluster ends with the run."""
        if not os.environ.get(ENDS):
            asyncio.run(self._sweep())

    async def _sweep(self) -> None:
        async with self.connect() as cluster:
            await delete_namespaces(cluster)
