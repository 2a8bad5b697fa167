# SPDX-License-Identifier: Apache-2.0
"""A cluster of real processes, each behind a separate link; all can be killed and stopped.

`refloat up` has the API server and the controllers; each node is a `refloat agent` with
a keeper; `refloat manager` has the Jobs that name Refloat. A component that died starts
again with `revive`; one that ended by itself is noted, because only the manager may. A
keeper is started by the agent alone.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

from refloat.app import tokens
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Object, ServerProcess, free_port
from tests.e2e.node_cluster import is_ready, processes
from tests.e2e.test_manager import ManagerProcess
from tests.faults import audit, containers
from tests.faults.proxy import ProxyLink, ProxyLoop

T = TypeVar("T")

OURS = "refloat.dev/job-controller"

# Two processes that run one Job are a mistake of the operator, not a fault.
MANAGED = "job-controller,failure-recovery-controller"
WITHOUT_MANAGED = "*,-job-controller,-failure-recovery-controller,-force-eviction-controller"

# A hang, not a slow machine: nothing takes a tenth of this on a quiet one. Each wait that
# lasts this long is a failure of the check "nothing is stuck after the faults".
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 0.1


def wait(holds: Callable[[], T], what: str, patience: float = PATIENCE_SECONDS) -> T:
    """The value, once there is one."""
    deadline = time.monotonic() + patience
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(LOOK_SECONDS)
    return value


def through(admin: Path, link: ProxyLink, user: Object | None, path: Path) -> Path:
    """A kubeconfig of the same cluster, reached over a link; without a user, the same one."""
    document = yaml.safe_load(admin.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
    if user is not None:
        document["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


@dataclass
class Component:
    """One process of the cluster; `link` leads to the server, if the process has one."""

    name: str
    start: Callable[[], object]
    process: Callable[[], "subprocess.Popen[bytes]"]
    errors: Callable[[], str]
    """The standard error."""
    link: ProxyLink | None = None
    kills: int = 0
    """The number of kills by this scenario."""

    def kill(self) -> None:
        """kill -9; `Cluster.revive` starts the process again."""
        self.kills += 1
        self.process().kill()
        self.process().wait()

    def is_alive(self) -> bool:
        return self.process().poll() is None

    def restart(self, failures: list[str]) -> None:
        """Start the process again; an end without a kill is a failure."""
        if not self.kills and self.name != "manager":
            failures.append(f"{self.name} ended by itself: {self.errors()[-500:]}")
        self.kills = 0
        self.process().wait()
        _close(self.process())
        self.start()

    def freeze(self) -> None:
        self.process().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process().send_signal(signal.SIGCONT)


@dataclass
class Keeper:
    """The process that has the containers of one node. The agent starts the next one."""

    name: str
    node: str
    pid: Callable[[], int]
    """Of the process that is the keeper now; 0: there is none."""
    link: None = None
    kills: int = 0
    """The number of kills in this scenario."""

    def kill(self) -> None:
        """kill -9; also of one that is stopped."""
        if pid := self._signal(signal.SIGKILL):
            self.kills += 1
            wait(lambda: self.pid() != pid, f"{self.name} ends")

    def is_alive(self) -> bool:
        return self.pid() != 0

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, by: signal.Signals) -> int:
        if pid := self.pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, by)
        return pid


def _close(process: "subprocess.Popen[bytes]") -> None:
    if process.stdout is not None:
        process.stdout.close()


@dataclass
class FaultCluster:
    """All processes of one run, in one folder."""

    folder: Path
    fast: bool = True
    """Whether nodes are lost after 5 s, as with `--fast`, or after 50 s."""
    agents: int = 2
    manager: bool = False
    """Whether `refloat manager` has the Jobs, and `refloat up` only the rest."""
    failures: list[str] = field(default_factory=list)
    """What a component did that none may do."""

    def __post_init__(self) -> None:
        self.folder.chmod(0o755)
        self.shown = containers.folder(self.folder / "shown")
        self._loop = ProxyLoop()
        self._flags = ("--fast",) if self.fast else ()
        self._acting = ("--config", str(self._configuration()), "--log-format", "json")
        self._port = free_port()
        self._data = self.folder / "data"
        self.components: dict[str, Component] = {}
        self.keepers: dict[str, Keeper] = {}
        """By the name of their node."""
        self._agents: dict[str, AgentProcess] = {}
        self._managers: list[ManagerProcess] = []
        self.kubeconfig, self.pki = self._add_server()
        self.api = Api(self.kubeconfig)
        for number in range(1, self.agents + 1):
            self._add_agent(f"n{number}")
        if self.manager:
            self._add_manager()

    def _configuration(self) -> Path:
        """The configuration of the process that has the Jobs, and may force pods."""
        policy = {**audit.POLICY, **({"nodeGracePeriod": "5s"} if self.fast else {})}
        document = {
            "apiVersion": "config.refloat.dev/v1alpha1",
            "kind": "Configuration",
            "featureGates": {"FailureRecoveryPolicy": True, "TaintForceEviction": True},
            "failureRecoveryPolicy": policy,
        }
        path = self.folder / "refloat.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    # Components

    def _add(
        self,
        name: str,
        start: Callable[[], object],
        process: Callable[[], "subprocess.Popen[bytes]"],
        errors: Callable[[], str],
        link: ProxyLink | None = None,
    ) -> None:
        self.components[name] = Component(name, start, process, errors, link)

    def _add_server(self) -> tuple[Path, Path]:
        """Start what every other component needs; the kubeconfig and the certificates."""
        self._start_server()
        self._add(
            "server",
            self._start_server,
            lambda: self.server.process,
            self.server.errors,  # of all servers of this folder
        )
        return self.server.kubeconfig, self._data / "pki"

    def _start_server(self) -> None:
        port = ("--port", str(self._port))
        controllers = WITHOUT_MANAGED if self.manager else "*"
        flags = (*port, *self._flags, *self._acting, "--log-level", "info")
        self.server = ServerProcess(self._data, "--controllers", controllers, *flags)

    def link(self, client: tuple[Path, Path] | None = None) -> ProxyLink:
        return ProxyLink(self._loop, self.pki, self._port, client)

    def _link_of_node(self, name: str) -> tuple[ProxyLink, Object]:
        """The link of a node to the server, and the user of the kubeconfig."""
        return self.link(), {"token": tokens.node_token(self._data, name)}

    def _add_agent(self, name: str) -> None:
        link, user = self._link_of_node(name)
        access = through(self.kubeconfig, link, user, self.folder / f"{name}.kubeconfig")
        flags = ("--accept-all-pods", *self._flags)
        agent = AgentProcess(self._data, access, name, *flags)
        self._agents[name] = agent
        keeper = Keeper(f"{name}-keeper", name, lambda: self._keeper_pid(name))
        self.keepers[name] = keeper

        def start() -> None:
            keeper.thaw()  # an agent is ready when the keeper has answered
            agent.start()

        self._add(name, start, lambda: agent.process, agent.errors, link)

    def _add_manager(self) -> None:
        link = self.link()
        access = through(self.kubeconfig, link, None, self.folder / "manager.kubeconfig")

        def start() -> None:
            log = self.folder / f"manager-{len(self._managers)}.stderr"
            flags = ("--controllers", MANAGED, "--kube-api-qps", "500", *self._acting)
            self._managers.append(ManagerProcess(access, log, *flags))

        start()
        self._add("manager", start, lambda: self._managers[-1].process, self.errors, link)

    def nodes(self) -> list[Component]:
        return [self.components[name] for name in self._agents]

    def targets(self) -> dict[str, Component | Keeper]:
        """All that can be killed and stopped, by name."""
        return {**self.components, **{each.name: each for each in self.keepers.values()}}

    def _keeper_pid(self, node: str) -> int:
        """Not the process that starts one, and no fork: both have that command."""
        keepers = processes(self._data)
        others = {*keepers, *(each.process.pid for each in self._agents.values())}
        return next(
            (
                pid
                for pid, command in keepers.items()
                if f"/nodes/{node} " in f"{command} " and _parent(pid) not in others
            ),
            0,
        )

    # Life

    def _thaw(self) -> None:
        for each in self.targets().values():
            each.thaw()

    def revive(self) -> None:
        """Start again what is dead. An agent or a server that was not killed has failed."""
        self._thaw()
        for each in self.components.values():
            if not each.is_alive():
                each.restart(self.failures)

    def heal(self) -> None:
        """End all faults: links work, processes run, and each node is ready."""
        for each in self.components.values():
            if each.link is not None:
                each.link.mend()
        self._thaw()
        if self.components["server"].is_alive():
            self._await_renewals()
        self.revive()
        for name in self._agents:
            self.until(f"/api/v1/nodes/{name}", is_ready, f"{name} is ready again")

    def _await_renewals(self) -> None:
        """Until each agent has renewed the lease, and so has answers to earlier requests."""
        before = {name: self._renewal(name) for name in self._agents}
        for each in self.nodes():
            wait(
                lambda each=each: (  # type: ignore[misc]
                    not each.is_alive() or self._renewal(each.name) != before[each.name]
                ),
                f"{each.name} renews its lease",
            )

    def _renewal(self, name: str) -> str:
        """When a node's lease was renewed for the last time; empty: never."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        answer = self.api.ask("GET", path)
        return str(answer.object["spec"]["renewTime"]) if answer.status == 200 else ""

    def until(self, path: str, holds: Callable[[Object], object], what: str) -> Object:
        """The object, once it satisfies the condition."""

        def value() -> Object | None:
            self._restart_manager()
            with contextlib.suppress(OSError):
                answer = self.api.ask("GET", path)
                if answer.status == 200 and holds(answer.object):
                    return answer.object
            return None

        return wait(value, what) or {}

    def _restart_manager(self) -> None:
        """Start the manager again, as a Deployment does: a manager that lost the lease exits."""
        manager = self.components.get("manager")
        if manager is not None and not manager.is_alive():
            manager.restart(self.failures)

    def close(self) -> None:
        self._thaw()
        for each in self.components.values():
            if each.link is not None:
                each.link.close()
            each.kill()
            _close(each.process())
        for agent in self._agents.values():
            agent.clear()
        self._loop.close()

    def errors(self) -> str:
        """What all processes wrote to their standard error."""
        logs = (*self.folder.rglob("*.stderr"), *self.folder.rglob("keeper.log"))
        return "\n".join(each.read_text() for each in sorted(logs))


def _parent(pid: int) -> int:
    """Of a process that may have just ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _end_all(folder: Path) -> None:
    """Kill each process whose command names this folder: only this run has the folder."""
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and f"{folder}/".encode() in (each / "cmdline").read_bytes():
                os.kill(int(each.name), signal.SIGKILL)


@contextlib.contextmanager
def running(
    folder: Path, *, fast: bool = True, agents: int = 2, manager: bool = False
) -> Iterator[FaultCluster]:
    """A cluster whose nodes are ready, and no process of the cluster outlives the block."""
    try:
        cluster = FaultCluster(folder, fast, agents, manager)
    except BaseException:  # also a Ctrl-C in the middle of the start
        _end_all(folder)
        raise
    try:
        cluster.heal()
        yield cluster
    finally:
        cluster.close()
    assert "Traceback" not in cluster.errors(), cluster.errors()
    wait(lambda: not processes(folder / "data"), "the processes of the cluster are gone", 30.0)
