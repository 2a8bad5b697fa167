# SPDX-License-Identifier: Apache-2.0
"""A scenario: what is done to a pod, what a KEP says of its end, and where we know better.

What is expected is what the KEP says, but for the differences, each with its
reason; a difference that is none is a mistake too.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from refloat.demo.errors import StoryFailed
from refloat.demo.failures.end import FIELDS, TITLES, End
from refloat.demo.failures.scene import Scene
from refloat.demo.stage import Setting, Stage
from refloat.demo.story import Story

Act: TypeAlias = Callable[[Scene], Awaitable[End]]


@dataclass(frozen=True, slots=True)
class Difference:
    """What it is instead, and why."""

    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario."""

    name: str
    title: str
    """For `refloat demo --list`."""
    heading: str
    """The KEP's."""
    how: str
    """What is done, in a sentence or two."""
    act: Act
    setting: Setting
    kep: Mapping[str, str] = field(default_factory=dict)
    """What the KEP says of the end, by the field of `End`."""
    differs: Mapping[str, Difference] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    """What it is where the KEP says nothing."""
    source: str = "KEP-3329"

    @property
    def want(self) -> End:
        """What is expected."""
        changed = {name: each.value for name, each in self.differs.items()}
        return End(**{**self.kep, **self.more, **changed})

    @property
    def story(self) -> Story:
        return Story(self.name, self.title, self._perform, self.setting)

    async def _perform(self, stage: Stage) -> None:
        await stage.step(f"{self.source}: {self.heading}")
        stage.note(self.how)
        if self.source == "KEP-3329":
            stage.note("The Job ignores DisruptionTarget, and fails on exit code 137.")
        found = await self.play(stage)
        await stage.step("The end")
        for name in FIELDS:
            self._tell(stage, name, getattr(found, name))

    def _tell(self, stage: Stage, name: str, value: str) -> None:
        stage.answer(f"{TITLES[name]}: {value or '(empty)'}")
        if (difference := self.differs.get(name)) is not None:
            stage.note(f"{self.source} says {self.kep[name] or 'nothing'}: {difference.why}")

    async def play(self, stage: Stage) -> End:
        """How it ended; raises `StoryFailed` if that is not what is expected."""
        found = await self.act(await Scene.of(stage, self.name))
        if found != self.want:
            raise StoryFailed(f"{self.name}: {'; '.join(_differences(found, self.want))}")
        return found


def _differences(found: End, want: End) -> list[str]:
    pairs = ((name, getattr(found, name), getattr(want, name)) for name in FIELDS)
    return [f"{name} is {has!r}, not {wanted!r}" for name, has, wanted in pairs if has != wanted]


def mistakes(case: Case) -> list[str]:
    """What is wrong with a scenario before it is played."""
    said = {*case.kep, *case.more}
    found = [f"{name}: nothing is said" for name in FIELDS if name not in said]
    found += [f"{name}: said twice" for name in case.more if name in case.kep]
    found += [f"{name}: no such field" for name in {*said, *case.differs} - {*FIELDS}]
    found += [
        f"{name}: the same as {case.source} says"
        for name, each in case.differs.items()
        if case.kep.get(name) == each.value
    ]
    return found
