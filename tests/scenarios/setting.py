# SPDX-License-Identifier: Apache-2.0
"""Where the scenarios run: a cluster, and the controller of its Jobs.

The same suite asks all of them, so a setting is no more than where the cluster
is and what a Job must say to get the controller that is meant. The nodes are
simulated in each (`refloat.agent.simulated`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.client import kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings

Role: TypeAlias = Literal["embedded", "managed", "reference"]

ROLES: tuple[Role, ...] = get_args(Role)

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

    def connect(self) -> HttpClient:
        """A client without a limit of its own: scenarios wait only for the cluster."""
        where = kubeconfig.load([self.kubeconfig])
        settings = ClientSettings(component="scenarios", field_manager="scenarios", qps=0)
        return HttpClient(where, clock=RealClock(), rand=Rand(), settings=settings)
