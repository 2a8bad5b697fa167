# SPDX-License-Identifier: Apache-2.0
"""Where the scenarios run: a cluster, and who takes care of its Jobs.

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
from refloat.client.settings import Settings

Name: TypeAlias = Literal["embedded", "managed", "reference"]

NAMES: tuple[Name, ...] = get_args(Name)

# What a Job says so that Refloat's controller takes it on a cluster that has its own.
OURS = "refloat.dev/job-controller"

_MANAGED_BY: dict[Name, str] = {"embedded": "", "managed": OURS, "reference": ""}


@dataclass(frozen=True, slots=True)
class Setting:
    """One cluster in one role."""

    name: Name
    kubeconfig: Path

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read `NAME=KUBECONFIG`."""
        name, separator, path = text.partition("=")
        for known in NAMES:
            if name == known and separator and path:
                return cls(known, Path(path))
        wanted = ", ".join(NAMES)
        raise ValueError(f"{text!r}: want NAME=KUBECONFIG, with NAME one of {wanted}")

    @property
    def managed_by(self) -> str:
        """What a Job's `spec.managedBy` must be here; empty: nothing."""
        return _MANAGED_BY[self.name]

    def connect(self) -> HttpClient:
        """A client without a limit of its own: scenarios wait for nobody but the cluster."""
        where = kubeconfig.load([self.kubeconfig])
        settings = Settings(component="scenarios", field_manager="scenarios", qps=0)
        return HttpClient(where, clock=RealClock(), rand=Rand(), settings=settings)
