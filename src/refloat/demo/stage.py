# SPDX-License-Identifier: Apache-2.0
"""Where a story plays: a fresh cluster, a client of it, and an audience."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refloat.app import controllers, embedded
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.demo import columns
from refloat.demo.client import Client
from refloat.demo.errors import StoryFailed
from refloat.demo.line import Kind, Line
from refloat.demo.nodes import Nodes, NodeSetting
from refloat.demo.view import Tell, View


@dataclass(frozen=True, slots=True)
class Setting:
    """What a story's cluster has besides its API server."""

    controllers: str = "none"
    """As `refloat up --controllers` says it; their waits are the short ones of `--fast`."""
    nodes: tuple[NodeSetting, ...] = ()
    gates: Gates = field(default_factory=Gates)


ALONE = Setting()
"""The API server, and nobody who does anything."""


class Stage:
    """A cluster for one story; enter it to have it run."""

    def __init__(
        self,
        data_dir: Path,
        clock: Clock,
        chance: Rand,
        show: Callable[[Line], None],
        *,
        pace: float,
        setting: Setting = ALONE,
    ) -> None:
        self._data_dir = data_dir
        self.clock = clock
        self._rand = chance
        self._show = show
        self._pace = pace
        self._setting = setting
        self._began = clock.monotonic()
        self._steps = 0
        self._tasks = Tasks()
        self._news = asyncio.Condition()
        self._cluster: embedded.Cluster | None = None
        self._client: Client | None = None
        self._nodes: Nodes | None = None

    @property
    def nodes(self) -> Nodes:
        assert self._nodes is not None, "the stage has not been entered"
        return self._nodes

    @property
    def kubeconfig(self) -> Path:
        return self._data_dir / "kubeconfig"

    @property
    def client(self) -> Client:
        assert self._client is not None, "the stage has not been entered"
        return self._client

    @property
    def url(self) -> str:
        assert self._cluster is not None, "the stage has not been entered"
        return self._cluster.url

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def _open(self) -> None:
        chosen = controllers.chosen(self._setting.controllers)
        settings = embedded.Settings(
            data_dir=self._data_dir,
            gates=self._setting.gates,
            inside=controllers.Chosen(chosen, fast=True),
        )
        self._cluster = embedded.Cluster(settings, self.clock, self._rand)
        await self._cluster.start()
        self._client = Client(self.kubeconfig)
        self._nodes = Nodes(
            self._setting.nodes,
            self._client,
            self.clock,
            data_dir=self._data_dir,
            server=self._cluster.url,
        )
        self._cluster.agents = self._nodes.agents
        if names := self._nodes.agents.names():
            self.note(f"Starting {', '.join(names)} as processes of this machine")
        await self._nodes.start()

    async def _close(self) -> None:
        await self._tasks.close()
        if self._nodes is not None:
            await self._nodes.close()
        if self._client is not None:
            await self._client.close()
        if self._cluster is not None:
            await self._cluster.close()

    async def restart(self) -> float:
        """Stop the cluster and start it from what it left on disk; the seconds it took."""
        began = self.clock.monotonic()
        await self._close()
        await self._open()
        return self.clock.monotonic() - began

    # -- telling ---------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Since the story began."""
        return self.clock.monotonic() - self._began

    def begin(self) -> None:
        """Count from now on: what was before was the setting of the stage."""
        self._began = self.clock.monotonic()

    async def step(self, title: str) -> None:
        """Begin the next part, after the reader had time for the one before."""
        if self._steps:
            await self.clock.sleep(self._pace)
        self._steps += 1
        self._tell("step", f"{self._steps}. {title}")

    def note(self, text: str) -> None:
        self._tell("note", text)

    def line(self, text: str) -> None:
        """A line that is laid out already."""
        self._tell("table", text)

    def answer(self, text: str) -> None:
        self._tell("answer", text)

    def event(self, text: str) -> None:
        self._tell("event", text)

    def board(self, lines: Sequence[str]) -> None:
        """How things are, in the place of what was shown so before."""
        self._tell("board", "\n".join(lines))

    def _tell(self, kind: Kind, text: str) -> None:
        self._show(Line(kind, text, self.seconds))

    def folder(self, name: str) -> Path:
        """A folder that pods may see, and that goes with the stage."""
        made = self._data_dir.parent / name
        made.mkdir()
        made.chmod(0o755)
        return made

    # -- acting ----------------------------------------------------------

    async def view(self, path: str, tell: Tell | None = None) -> View:
        """Watch a collection, from now on, and show each event as it arrives, or `tell` it."""
        found = await self.client.get(path)
        revision = found["metadata"]["resourceVersion"]
        view = View(self.client, path, revision, tell or self.event, self._news)
        self._tasks.spawn(view.follow(), name=f"view of {path}")
        return view

    def meanwhile(self, doing: Coroutine[Any, Any, None], name: str) -> None:
        """Do it beside the story, for as long as that takes."""
        self._tasks.spawn(doing, name=name)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds of what the views have shown."""
        async with self._news:
            await self._news.wait_for(lambda: bool(holds()))

    async def refused(self, code: int, method: str, path: str, body: Any = None) -> None:
        """Make a request that must fail with this code, and show what the server says."""
        answer = await self.client.ask(method, path, body)
        if answer.get("code") != code:
            raise StoryFailed(f"{method} {path}: expected {code}, not {answer}")
        causes = answer.get("details", {}).get("causes", ())
        told = [each["message"] for each in causes if each.get("reason") == "DisruptionBudget"]
        self._tell("refusal", " ".join([f"{code} {answer['reason']}:", answer["message"], *told]))

    async def table(self, path: str, *, headline: str) -> None:
        """Show a collection as the server itself lays it out."""
        self._tell("table", headline)
        for line in columns.layout(await self.client.table(path)):
            self._tell("table", line)
