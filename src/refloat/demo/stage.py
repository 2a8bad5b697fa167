# SPDX-License-Identifier: Apache-2.0
"""Where a story plays: a fresh cluster, a client of it, and an audience."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refloat.app import embedded
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.demo import columns
from refloat.demo.client import Client
from refloat.demo.errors import StoryFailed
from refloat.demo.line import Kind, Line
from refloat.demo.view import View


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
    ) -> None:
        self._data_dir = data_dir
        self.clock = clock
        self._rand = chance
        self._show = show
        self._pace = pace
        self._began = clock.monotonic()
        self._steps = 0
        self._tasks = Tasks()
        self._cluster: embedded.Cluster | None = None
        self._client: Client | None = None

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
        settings = embedded.Settings(data_dir=self._data_dir)
        self._cluster = embedded.Cluster(settings, self.clock, self._rand)
        await self._cluster.start()
        self._client = Client(self._cluster.kubeconfig)

    async def _close(self) -> None:
        await self._tasks.close()
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

    async def step(self, title: str) -> None:
        """Begin the next part, after the reader had time for the one before."""
        if self._steps:
            await self.clock.sleep(self._pace)
        self._steps += 1
        self._tell("step", f"{self._steps}. {title}")

    def note(self, text: str) -> None:
        self._tell("note", text)

    def answer(self, text: str) -> None:
        self._tell("answer", text)

    def _tell(self, kind: Kind, text: str) -> None:
        self._show(Line(kind, text, self.seconds))

    # -- acting ----------------------------------------------------------

    async def view(self, path: str) -> View:
        """Watch a collection, from now on, and show each event as it arrives."""
        found = await self.client.get(path)
        view = View(
            self.client,
            path,
            found["metadata"]["resourceVersion"],
            lambda text: self._tell("event", text),
        )
        self._tasks.spawn(view.follow(), name=f"view of {path}")
        return view

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
