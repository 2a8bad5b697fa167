# SPDX-License-Identifier: Apache-2.0
"""One node of a cluster, which runs the containers of pods as processes of this machine.

A fleet of one node on the process runtime, with an endpoint for logs. By default
no commands of strangers run here: the node registers with a taint, and rejects
every pod that does not tolerate this taint by its name. Everything that outlives
the process is in the node's folder. The keeper owns the containers, so they run on
without the agent.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import refloat
from refloat.agent import machine_info, node_ownership
from refloat.agent.admission import Check
from refloat.agent.container_inputs import ContainerInputs
from refloat.agent.downward_api import NodeValues
from refloat.agent.fleet import POD_INDEXES, Fleet, Member
from refloat.agent.node import NodeSettings
from refloat.agent.pod_status import TERMINAL
from refloat.agent.process.images import ImageSettings
from refloat.agent.process.runtime import ProcessRuntime
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process_usage import ProcessUsage
from refloat.agent.runtime import Attempts, StartError
from refloat.agent.server import NodeServer
from refloat.agent.static_pods import StaticClient, StaticPods
from refloat.api import kinds as resources
from refloat.api import times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.app import node_tls, private_files, simulated_nodes, timings
from refloat.app.node_faults import CUT, MEND
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.errors import UsageError
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.base.rand import Rand
from refloat.client import errors, kinds, kubeconfig
from refloat.client.cluster_access import Access, Source
from refloat.client.contract import Client, Kind, Selector
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from refloat.policy.job.job_gates import JobGates
from refloat.policy.node.eviction_thresholds import EvictionSettings
from refloat.policy.node.node_admission import Rejection
from refloat.policy.node.node_shutdown import ShutdownSettings
from refloat.runtime.controller import Instruments
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Manager, Parts
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder

log = logging.getLogger(__name__)

TAINT = "refloat.dev/process-runtime"
_NO_EXECUTE = "NoExecute"

# Events of nodes and pods come from kubelets, and tools look for that name.
COMPONENT = "kubelet"

# Kubernetes learns from a watch of its own which pods a node may read. At times this watch is
# behind the node's watch, by a second or a few. A longer refusal has another cause.
_READS, _READ_SECONDS = 50, 0.1

_WHOLE_PODS: Kind[Object] = Kind(resources.of("pods"), dict)
_WHOLE_NODES: Kind[Object] = Kind(resources.of("nodes"), dict)

# For an agent that has to end its pods before it knows them: it learns them within a second.
KNOW_SECONDS = 10.0

# The wait before the agent asks a silent API server again who runs the node.
CLAIM_SECONDS = 2.0

# The file in the node's folder with the identity of the agent.
INSTANCE_FILE = "instance"

_WAITING = "node %s was run by another agent; it takes %g s to see whether it still is"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One node, and the cluster that it joins."""

    name: str
    """The name of the node."""
    folder: Path
    """The folder of the node."""
    kubeconfig: Path | None = None
    """The file that names the cluster; else KUBECONFIG, the pod's own identity, ~/.kube/config."""
    context: str = ""
    """The context in that file; else the current one."""
    gates: Gates = field(default_factory=Gates)
    address: str = "127.0.0.1"
    """The address of the log endpoint; the API server must be able to connect to it."""
    port: int = 0
    """The port of the log endpoint; 0 takes a free one."""
    client_authority: Path | None = None
    """The authority of clients of the log endpoint; else the authority in the kubeconfig."""
    accept_all_pods: bool = False
    """Whether pods may run here that do not tolerate the taint."""
    trust_pods: bool = False
    """Whether pods may run with the agent's own rights, where it is not root."""
    images: ImageSettings = field(default_factory=ImageSettings)
    """Which images are commands, missing, or slow to pull."""
    fast: bool = False
    """Whether heartbeats are as fast as a cluster with short waits expects (`timings`)."""
    self_fence_seconds: int | None = None
    """How long pods with self-fencing go on without a renewal of the lease; else as with `fast`."""
    end_pods: bool = False
    """Whether a stop of the agent also ends pods and keeper."""
    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    shutdown: ShutdownSettings = field(default_factory=ShutdownSettings)
    manifests: Path | None = None
    """A folder of pods that run here, with or without an API server."""


class Agent:
    """A running node."""

    def __init__(self, settings: AgentSettings, clock: Clock, rand: Rand) -> None:
        self._settings, self._clock, self._rand = settings, clock, rand
        self._access = kubeconfig.find(settings.kubeconfig, context=settings.context)
        self.server = self._access.cluster.server
        self._authority = _authority(settings, self._access)
        self._stop = asyncio.Event()
        self._is_replaced = False

    async def run(self) -> None:
        """Run until `stop`. The containers and their keeper run on."""
        with _folder_lock(self._settings.folder):
            # The limit of a kubelet: 50 requests a second, 100 at once.
            how = ClientSettings(component="agent", field_manager="kubelet", qps=50.0, burst=100)
            client = HttpClient(self._access, clock=self._clock, rand=self._rand, settings=how)
            try:
                await self._run(client)
            finally:
                await client.close()

    def stop(self) -> None:
        self._stop.set()

    async def _run(self, client: Client) -> None:
        settings = self._settings
        capacity = machine_info.capacity(settings.folder)
        static = self._static()
        # The fleet checks whether the agent may write, so this client always may.
        reading = client if static is None else StaticClient(client, static, lambda: None)
        volumes = settings.folder.parent.parent / "volumes"
        inputs = ContainerInputs(client, NodeValues((settings.address,), capacity), volumes)
        runtime = ProcessRuntime(
            _processes(settings, volumes),
            clock=self._clock,
            fetch_pod=WholePods(reading, self._clock, lambda uid: host.pod_of(uid) is not None),
            inputs=inputs,
        )
        await runtime.open()
        host = _Host(runtime)
        server = NodeServer(host, clock=self._clock)
        try:
            await node_tls.certify(settings.folder, settings.address)
            port = await self._listen(server)
            node = _node(settings, capacity, port)
            instance = _instance(settings.folder, self._rand)
            node = replace(node, instance=instance, incarnation=self._rand.uid())
            limits = partial(_size_limits, reading, host)
            member = Member(
                node,
                runtime,
                ProcessUsage(runtime, settings.folder, limits),
                eviction=settings.eviction,
                shutdown=settings.shutdown,
                checks=_checks(settings, static),
                static=static,
            )
            await self._serve(client, host, member)
        finally:
            await server.close()
            await (runtime.shutdown() if self._ends_pods() else runtime.close())

    async def _listen(self, server: NodeServer) -> int:
        settings = self._settings
        try:
            return await server.start(settings.address, settings.port, self._tls())
        except OSError as error:
            where = f"--address {settings.address} --port {settings.port}"
            raise UsageError(f"{where}: {os.strerror(error.errno or 0)}") from error

    def _ends_pods(self) -> bool:
        return self._is_replaced or (self._settings.end_pods and self._stop.is_set())

    def _static(self) -> StaticPods | None:
        """The static pods, if there is a folder for them."""
        folder = self._settings.manifests
        if folder is None:
            return None
        # The reader of manifests imports the whole API, and few nodes need that.
        from refloat.agent.manifests import Manifests  # noqa: PLC0415

        def now() -> str:
            return times.format_micro(self._clock.now())

        return StaticPods(Manifests(folder, self._settings.name, now), self._clock)

    async def _serve(self, client: Client, host: "_Host", member: Member) -> None:
        node = member.settings
        registry = metrics.process_registry()
        recorder = Recorder(
            client,
            controller=COMPONENT,
            instance=node.name,
            clock=self._clock,
            rand=self._rand,
            metrics=EventMetrics(registry),
        )
        pods = Informer(
            client,
            kinds.PODS,
            clock=self._clock,
            rand=self._rand,
            selector=Selector(fields=f"spec.nodeName={node.name}"),
            indexes=POD_INDEXES,
        )
        fleet = Fleet(
            client,
            [member],
            pods,
            clock=self._clock,
            rand=self._rand,
            instruments=Instruments(ReconcileMetrics(registry), QueueMetrics(registry)),
            record_event=partial(_record_event, recorder),
            record_node_event=partial(_record_node_event, recorder),
            job_gates=JobGates.of(self._settings.gates),
            replaced=self._give_way,
            force_eviction=self._settings.gates.enabled(TAINT_FORCE_EVICTION),
        )
        host.fleet = fleet
        parts = Parts(informers=[pods], controllers=[fleet], recorders=[recorder])
        manager = Manager(parts, clock=self._clock)
        fleet.begin()
        _on_faults(fleet, self._settings.name)
        claiming = asyncio.ensure_future(self._claim(client, fleet))
        stopping = asyncio.ensure_future(self._until_stop(fleet, manager, claiming))
        try:
            await asyncio.wait({claiming})
            if not claiming.cancelled():  # else `stop` was called meanwhile
                claiming.result()
            await manager.run()
        finally:
            await fleet.stop()  # the manager stops only what it has started
            for task in (claiming, stopping):
                task.cancel()
            await asyncio.gather(claiming, stopping, return_exceptions=True)
        if self._is_replaced:
            raise UsageError(await self._refusal(client))

    async def _claim(self, client: Client, fleet: Fleet) -> None:
        """Wait until this process owns the node."""
        name = self._settings.name
        settle = partial(fleet.heartbeats.settle, name, partial(log.warning, _WAITING, name))
        try:
            await node_ownership.persist(settle, self._clock, CLAIM_SECONDS)
        except node_ownership.OwnedByAnother as error:
            self._is_replaced = True
            raise UsageError(await self._refusal(client)) from error

    async def _refusal(self, client: Client) -> str:
        """The error that names the other agent and, if known, its address."""
        name = self._settings.name
        where = ""
        with contextlib.suppress(errors.ClientError):
            where = _place(await client.get(_WHOLE_NODES, name))
        return f"another agent runs node {name}{where}: stop it, or choose another --name"

    def _give_way(self, name: str) -> None:
        """Another agent owns the node now: our pods end, and so does this process.

        The next process on this folder is another instance. If the other agent runs on a copy
        of the folder, the next process would else take the node back at once.
        """
        (self._settings.folder / INSTANCE_FILE).unlink(missing_ok=True)
        self._is_replaced = True
        self._stop.set()

    async def _until_stop(
        self, fleet: Fleet, manager: Manager, claiming: "asyncio.Future[None]"
    ) -> None:
        await self._stop.wait()
        if self._settings.end_pods and not self._is_replaced:
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(KNOW_SECONDS):
                    await fleet.started()  # before, the fleet knows no pods
        claiming.cancel()
        if self._is_replaced:
            fleet.fail(self._settings.name, "partition")  # reports nothing about the pods any more
        if self._ends_pods():
            await fleet.end_pods(self._settings.name)
        manager.stop()

    def _tls(self) -> ssl.SSLContext:
        return node_tls.context(*node_tls.paths(self._settings.folder), self._authority)


def _on_faults(fleet: Fleet, name: str) -> None:
    """Let signals cut the node off and back, from before the first request on.

    The supervisor starts agents with these signals blocked. A signal that is already pending is
    obeyed here: the event loop would handle it only after it has sent the first request.
    """
    loop = asyncio.get_running_loop()
    actions = {CUT: partial(fleet.fail, name, "partition"), MEND: partial(fleet.heal, name)}
    for number, act in actions.items():
        loop.add_signal_handler(number, act)
        if number in signal.sigpending():
            signal.sigwait((number,))
            act()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, actions)


def _authority(settings: AgentSettings, access: Access) -> bytes:
    """The authority of the clients of the node's endpoint."""
    source = access.cluster.authority
    if settings.client_authority is not None:
        source = Source(path=settings.client_authority)
    content = source.data or (source.path.read_bytes() if source.path is not None else b"")
    if not content:
        raise UsageError(
            "the kubeconfig names no certificate authority, so the node could not verify the API "
            "server's requests for logs; name the authority with --client-ca-file"
        )
    return content


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Refuse a second agent on the same folder."""
    try:
        lock = private_files.open_lock(folder / "agent.lock")
    except OSError as error:
        raise UsageError(f"--data-dir: {error.filename}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise UsageError(
            f"another agent runs on {folder}: a node has one; stop it, or choose another --name"
        ) from error
    try:
        yield
    finally:
        os.close(lock)


def _place(node: Object) -> str:
    status = node.get("status") or {}
    addresses = [each["address"] for each in status.get("addresses") or ()]
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    return f", at {addresses[0]}:{port}" if addresses and port else ""


def _instance(folder: Path, rand: Rand) -> str:
    """The identity of the agent: the same for all agents on one folder, and for no others."""
    path = folder / INSTANCE_FILE
    if not path.exists():
        private_files.write(path, rand.uid().encode())
    return path.read_text().strip()


def _processes(settings: AgentSettings, volumes: Path) -> ProcessSettings:
    """The settings of containers, which see neither the data directory nor the credentials."""
    secrets = (volumes.parent, *kubeconfig.credential_files(settings.kubeconfig))
    return ProcessSettings(settings.folder, images=settings.images, hidden=secrets, shared=volumes)


def _node(settings: AgentSettings, capacity: dict[str, str], port: int) -> NodeSettings:
    taint = {"key": TAINT, "effect": _NO_EXECUTE}
    return replace(
        simulated_nodes.fenced(
            timings.select(fast=settings.fast).node, settings.self_fence_seconds
        ),
        name=settings.name,
        capacity=capacity,
        version=f"v{refloat.__version__}",
        info=machine_info.info(),
        address=settings.address,
        port=port,
        taints=() if settings.accept_all_pods and _runs_pods(settings) else (taint,),
    )


def _runs_pods(settings: AgentSettings) -> bool:
    return settings.trust_pods or os.geteuid() == 0


def _checks(settings: AgentSettings, static: StaticPods | None) -> tuple[Check, ...]:
    if not _runs_pods(settings):
        check: Check = refuse_untrusted
    elif settings.accept_all_pods:
        return ()
    else:
        check = check_invited
    if static is None:
        return (check,)
    # The author of a static pod's file is no stranger. An annotation proves nothing: every user
    # can write one.
    is_own = static.find
    return (lambda pod: None if is_own(pod.metadata.uid) else check(pod),)


def refuse_untrusted(_: Pod) -> Rejection:
    """Without root the agent cannot take any of its own rights from a container."""
    text = (
        "Predicate PodTrust failed: the agent is not root, so containers would have all rights "
        "of its user; start it with --trust-pods to allow that"
    )
    return Rejection("PodTrust", text)


def check_invited(pod: Pod) -> Rejection | None:
    """A toleration of everything does not mean this machine: the pod has to name the taint."""
    for each in pod.spec.tolerations or ():
        if each.key == TAINT and each.effect in ("", _NO_EXECUTE):
            return None
    text = f"Predicate TaintToleration failed: the pod does not tolerate {TAINT} by its name"
    return Rejection("TaintToleration", text)


def _record_event(
    recorder: Recorder, pod: Pod, event_type: EventType, reason: str, note: str
) -> None:
    recorder.event(Reference.of(kinds.PODS, pod), event_type, reason, reason, note)


def _record_node_event(
    recorder: Recorder, name: str, event_type: EventType, reason: str, note: str
) -> None:
    # The uid is the name, as for a kubelet: `kubectl describe node` looks for that.
    recorder.event(Reference("v1", "Node", name, uid=name), event_type, reason, reason, note)


async def _size_limits(client: Client, host: "_Host", uid: str) -> dict[str, str]:
    """The size limits of a pod's emptyDirs, without those that have no limit."""
    pod = host.pod_of(uid)
    if pod is None:
        return {}
    meta = pod.metadata
    whole = await client.get(_WHOLE_PODS, meta.name, namespace=meta.namespace)
    volumes = whole["spec"].get("volumes") or ()
    sizes = {each["name"]: (each.get("emptyDir") or {}).get("sizeLimit", "") for each in volumes}
    return {name: size for name, size in sizes.items() if size}


class WholePods:
    """Reads whole pods live, because the watch of an agent that slept may be far behind.

    While the API server does not answer, a pod is as in the last read: an admitted pod
    restarts its containers in place without the API server, as on a kubelet.
    """

    def __init__(self, client: Client, clock: Clock, is_known: Callable[[str], bool]) -> None:
        """`is_known`: whether a pod with that uid is still the node's."""
        self._client, self._clock = client, clock
        self._is_known = is_known
        self._read: dict[str, Object] = {}  # by uid; no more than the node has pods

    async def __call__(self, pod: Pod) -> Object:
        """Raises `StartError` for a pod that may start no more containers (D4.1)."""
        meta = pod.metadata
        try:
            whole = await _read(self._client, self._clock, meta.name, meta.namespace)
        except (errors.Timeout, errors.Unavailable, errors.Unauthorized):
            if meta.uid not in self._read:
                raise
            return self._read[meta.uid]
        if whole["metadata"]["uid"] != meta.uid:
            raise StartError(f"pod {meta.uid} is gone")
        is_over = (whole.get("status") or {}).get("phase") in TERMINAL
        if is_over or whole["metadata"].get("deletionTimestamp"):
            raise StartError(f"pod {meta.uid} has ended, or is about to", reason="")
        self._read = {uid: each for uid, each in self._read.items() if self._is_known(uid)}
        self._read[meta.uid] = whole
        return whole


async def _read(client: Client, clock: Clock, name: str, namespace: str) -> Object:
    for _ in range(_READS - 1):
        with contextlib.suppress(errors.Forbidden):
            return await client.get(_WHOLE_PODS, name, namespace=namespace)
        await clock.sleep(_READ_SECONDS)
    return await client.get(_WHOLE_PODS, name, namespace=namespace)


class _Host:
    """The pods and logs for the node's endpoint."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self.fleet: Fleet | None = None

    def pod(self, namespace: str, name: str) -> Pod | None:
        if self.fleet is None:
            return None
        (node,) = self.fleet.names()
        for pod in self.fleet.worker(node).pods.values():
            if (pod.metadata.namespace, pod.metadata.name) == (namespace, name):
                return pod
        return None

    def pod_of(self, uid: str) -> Pod | None:
        if self.fleet is None:
            return None
        (node,) = self.fleet.names()
        return self.fleet.worker(node).pods.get(uid)

    def attempts(self, uid: str, container: str) -> Attempts | None:
        return self._runtime.containers(uid).get(container)

    def log_file(self, uid: str, container: str, attempt: int) -> Path:
        return self._runtime.folder(uid).log(container, attempt)
