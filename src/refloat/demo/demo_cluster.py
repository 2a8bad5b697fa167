# SPDX-License-Identifier: Apache-2.0
"""The cluster of one demo, with a client, nodes and the lines to show."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refloat.api.meta import Object
from refloat.app import controller_names, embedded
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client.contract import EventType
from refloat.client.errors import ClientError
from refloat.demo import changes, columns
from refloat.demo.client import DemoClient
from refloat.demo.errors import DemoFailed
from refloat.demo.nodes import DemoNodes, DemoNodeSettings
from refloat.demo.output_lines import Kind, Line
from refloat.scenario.cluster import NAMESPACES, ScenarioCluster, whole
from refloat.scenario.namespace import ScenarioNamespace

EVENT_WIDTH = len("MODIFIED")

# What demos watch besides Jobs, pods and nodes.
KINDS = (
    whole("poddisruptionbudgets", "policy"),
    whole("volumeattachments", "storage.k8s.io"),
)


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The controllers, nodes and feature gates of a demo's cluster."""

    controllers: str = "none"
    """The value of `refloat up --controllers`; the waits are those of `--fast`."""
    nodes: tuple[DemoNodeSettings, ...] = ()
    gates: Gates = field(default_factory=Gates)


API_SERVER_ONLY = DemoSettings()
"""The API server without controllers and nodes."""


class DemoCluster:
    """The cluster of one demo; it runs inside `async with`."""

    def __init__(
        self,
        data_dir: Path,
        clock: Clock,
        chance: Rand,
        show: Callable[[Line], None],
        *,
        pace: float,
        settings: DemoSettings = API_SERVER_ONLY,
    ) -> None:
        self._data_dir = data_dir
        self.clock = clock
        self._rand = chance
        self._show = show
        self._pace = pace
        self._settings = settings
        self._began = clock.monotonic()
        self._steps = 0
        self._tasks = Tasks()
        self._cluster: embedded.EmbeddedCluster | None = None
        self._client: DemoClient | None = None
        self._scenario: ScenarioCluster | None = None
        self._nodes: DemoNodes | None = None

    @property
    def nodes(self) -> DemoNodes:
        assert self._nodes is not None, "the demo cluster has not been started"
        return self._nodes

    @property
    def kubeconfig(self) -> Path:
        return self._data_dir / "kubeconfig"

    @property
    def client(self) -> DemoClient:
        assert self._client is not None, "the demo cluster has not been started"
        return self._client

    @property
    def scenario(self) -> ScenarioCluster:
        assert self._scenario is not None, "the demo cluster has not been started"
        return self._scenario

    @property
    def url(self) -> str:
        assert self._cluster is not None, "the demo cluster has not been started"
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
        controllers = controller_names.select(self._settings.controllers)
        settings = embedded.EmbeddedSettings(
            data_dir=self._data_dir,
            gates=self._settings.gates,
            selection=controller_names.ControllerSelection(controllers, fast=True),
        )
        self._cluster = embedded.EmbeddedCluster(settings, self.clock, self._rand)
        await self._cluster.start()
        self._client = DemoClient(self.kubeconfig, self.clock, self._rand)
        self._scenario = ScenarioCluster(self._client, self.clock, self._rand)
        self._nodes = DemoNodes(
            self._settings.nodes,
            self._scenario,
            data_dir=self._data_dir,
            server=self._cluster.url,
        )
        self._cluster.agents = self._nodes.agents
        await self._scenario.open(*KINDS)
        if nodes := self._nodes.agents.names():
            self.note(f"Starting {', '.join(nodes)} as processes of this machine")
        await self._nodes.start()

    async def _close(self) -> None:
        await self._tasks.close()
        if self._scenario is not None:
            await self._scenario.close()
        if self._nodes is not None:
            await self._nodes.close()
        if self._client is not None:
            await self._client.close()
        if self._cluster is not None:
            await self._cluster.close()

    async def restart(self) -> float:
        """Stop the cluster and start it from its data directory; the seconds of both."""
        began = self.clock.monotonic()
        await self._close()
        await self._open()
        return self.clock.monotonic() - began

    # -- output ----------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return self.clock.monotonic() - self._began

    def begin(self) -> None:
        """Count seconds from now on, without the setup."""
        self._began = self.clock.monotonic()

    async def step(self, title: str) -> None:
        """Begin the next step, after a pause to read the last one."""
        if self._steps:
            await self.clock.sleep(self._pace)
        self._steps += 1
        self._add_line("step", f"{self._steps}. {title}")

    def note(self, text: str) -> None:
        self._add_line("note", text)

    def line(self, text: str) -> None:
        """A line with its layout."""
        self._add_line("table", text)

    def answer(self, text: str) -> None:
        self._add_line("answer", text)

    def event(self, text: str) -> None:
        self._add_line("event", text)

    def board(self, lines: Sequence[str]) -> None:
        """A picture, which replaces the last picture."""
        self._add_line("board", "\n".join(lines))

    def _add_line(self, kind: Kind, text: str) -> None:
        self._show(Line(kind, text, self.seconds))

    def folder(self, name: str) -> Path:
        """A folder for pods; the folder is removed with the cluster."""
        path = self._data_dir.parent / name
        path.mkdir()
        path.chmod(0o755)
        return path

    # -- requests --------------------------------------------------------

    async def namespace(self, name: str) -> ScenarioNamespace:
        """A new namespace of this name."""
        await self.client.create(NAMESPACES, {"metadata": {"name": name}})
        return ScenarioNamespace(self.scenario, name)

    def show(self, namespace: str, *plurals: str) -> None:
        """Show each event of these kinds in a namespace from now on."""
        versions: dict[str, Object] = {}

        def show_event(plural: str, event: EventType, obj: Object) -> None:
            if plural not in plurals:
                return
            meta = obj["metadata"]
            old, versions[meta["uid"]] = versions.get(meta["uid"]), obj
            change = "" if event == "DELETED" else changes.describe(old, obj)
            label = f"{obj['kind'].lower()}/{meta['name']}"
            self.event(f"{event:<{EVENT_WIDTH}} {label}  {change}".rstrip())

        self.scenario.listen(namespace, show_event)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine beside the demo."""
        self._tasks.spawn(work, name=name)

    async def refused(self, code: int, call: Awaitable[object]) -> None:
        """Make a call that must fail with this code, and show the response."""
        try:
            answer = await call
        except ClientError as error:
            if error.code != code:
                raise
            details = [text for cause, _, text in error.causes if cause == "DisruptionBudget"]
            text = " ".join([f"{code} {error.reason}:", str(error), *details])
            self._add_line("refusal", text)
        else:
            raise DemoFailed(f"expected {code}, not {answer}")

    async def table(self, path: str, *, headline: str) -> None:
        """Show a collection as the Table of the server."""
        self._add_line("table", headline)
        for line in columns.layout(await self.client.table(path)):
            self._add_line("table", line)
