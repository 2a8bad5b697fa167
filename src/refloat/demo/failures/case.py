# SPDX-License-Identifier: Apache-2.0
"""A case: a failure of a pod, its end in a KEP, and the differences of today.

The expected end is that of the KEP, except for the differences. A difference that
equals the KEP is a mistake in the case.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from refloat.demo.demo_cluster import DemoCluster, DemoSettings
from refloat.demo.demo_run import Demo
from refloat.demo.errors import DemoFailed
from refloat.demo.failures.case_namespace import CaseNamespace
from refloat.demo.failures.pod_end import FIELDS, TITLES, End

Procedure: TypeAlias = Callable[[CaseNamespace], Awaitable[End]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The value of today, and the reason for it."""

    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a pod fails."""

    name: str
    title: str
    """For `refloat demo --list`."""
    heading: str
    """The heading in the KEP."""
    how: str
    """The steps, in a sentence or two."""
    procedure: Procedure
    settings: DemoSettings
    kep: Mapping[str, str] = field(default_factory=dict)
    """The end in the KEP, by the field of `End`."""
    differs: Mapping[str, Difference] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    """The values of fields that the KEP leaves out."""
    source: str = "KEP-3329"

    @property
    def want(self) -> End:
        """The expected end."""
        changed = {name: difference.value for name, difference in self.differs.items()}
        return End(**{**self.kep, **self.more, **changed})

    @property
    def demo(self) -> Demo:
        return Demo(self.name, self.title, self._perform, self.settings)

    async def _perform(self, cluster: DemoCluster) -> None:
        await cluster.step(f"{self.source}: {self.heading}")
        cluster.note(self.how)
        if self.source == "KEP-3329":
            cluster.note("The Job ignores DisruptionTarget, and fails on exit code 137.")
        end = await self.run(cluster)
        await cluster.step("The end")
        for name in FIELDS:
            cluster.answer(f"{TITLES[name]}: {getattr(end, name) or '(empty)'}")
            if (difference := self.differs.get(name)) is not None:
                cluster.note(f"{self.source} says {self.kep[name] or 'nothing'}: {difference.why}")

    async def run(self, cluster: DemoCluster) -> End:
        """Run the case; raises `DemoFailed` if the end is not the expected one."""
        end = await self.procedure(await CaseNamespace.of(cluster, self.name))
        pairs = ((name, getattr(end, name), getattr(self.want, name)) for name in FIELDS)
        mismatches = [
            f"{name} is {has!r}, not {want!r}" for name, has, want in pairs if has != want
        ]
        if mismatches:
            raise DemoFailed(f"{self.name}: {'; '.join(mismatches)}")
        return end


def mistakes(case: Case) -> list[str]:
    """The mistakes in the definition of a case."""
    names = {*case.kep, *case.more}
    return [
        *(f"{name}: no value" for name in FIELDS if name not in names),
        *(f"{name}: two values" for name in case.more if name in case.kep),
        *(f"{name}: no such field" for name in sorted({*names, *case.differs} - {*FIELDS})),
        *(
            f"{name}: the same as in {case.source}"
            for name, difference in case.differs.items()
            if case.kep.get(name) == difference.value
        ),
    ]
