# SPDX-License-Identifier: Apache-2.0
"""The clusters that the suites ask: Kubernetes' own, and Refloat's beside that.

Two stages, one after the other. On `api_servers` nothing acts: what a test
writes stays unchanged. On `clusters` everything does: Kubernetes' controllers
and scheduler, simulated nodes, and `refloat manager` with the rights that
`examples/manager-rbac.yaml` gives, and no others.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from refloat.app import private_files
from refloat.bench import control_plane
from refloat.bench.daemons import Daemon, DaemonError, Probe
from tests.kubernetes.real_nodes import packages

ROOT = Path(__file__).parents[2]
RIGHTS = ROOT / "examples" / "manager-rbac.yaml"
REFLOAT = Path(sys.executable).parent / "refloat"

# A hundred pods at once for each of a dozen scenarios have room.
NODES = 20

NAMESPACE, ACCOUNT = "refloat-system", "refloat-manager"
MANAGER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

# Both controllers of Jobs may ask as often as they like: what is compared is
# what they do, and 20 requests a second would be most of the time.
QUICK = ("--kube-api-qps=500", "--kube-api-burst=500")

# How long a pod with the opt-in hangs on a lost node after the grace.
ZOMBIE_SECONDS = 3

_CONFIGURATION = {
    "apiVersion": "config.refloat.dev/v1alpha1",
    "kind": "Configuration",
    "featureGates": {
        "FailureRecoveryPolicy": True,
        # Only for Jobs with the annotation.
        "RetriableAndNonRetriableFailures": True,
        "TaintForceEviction": True,
    },
    "failureRecoveryPolicy": {
        "annotated": {"forcefulTerminationGracePeriod": f"{ZOMBIE_SECONDS}s"},
        "nodeGracePeriod": "24s",  # the controller manager's, see bench.control_plane
    },
}

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [MANAGER]},
        {"level": "Metadata", "userGroups": ["system:nodes"]},
        {"level": "None"},
    ],
}

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """What all stages of a run have in common."""

    folder: Path
    """Of this run alone: data, logs, kubeconfigs."""
    programs: Mapping[str, Path]
    tell: Tell
    port: int = 0
    """The port of Kubernetes' API server; 0 is a free one."""
    given: Path | None = None
    """The kubeconfig of a cluster that is there already."""

    @property
    def binaries(self) -> Path:
        """All programs in one folder."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        for name, path in self.programs.items():
            with contextlib.suppress(FileExistsError):
                (folder / name).symlink_to(path.resolve())
        return folder


@dataclass(frozen=True, slots=True)
class Clusters:
    """What a suite can ask."""

    kubernetes: Path
    """The kubeconfig of the real one."""
    embedded: Path
    """The kubeconfig of a `refloat up` with as many nodes."""
    binaries: Path
    """A folder with a kubectl, among others."""
    audit: Path | None = None
    """What the manager and the nodes asked of Kubernetes, where that is known."""
    authority: Path | None = None
    """The folder of the authority that signs the certificates of nodes, if that is ours."""


@contextmanager
def api_servers(run: ClusterRun) -> Iterator[Clusters]:
    """Two API servers on which nothing acts."""
    folder = run.folder / "api"
    settings = control_plane.ControlPlaneSettings(run.binaries, folder, run.port, api_only=True)
    with control_plane.running(settings, run.tell):
        pass  # One with a past: the suites ask for what a server has forgotten.
    with control_plane.running(settings, run.tell) as plane, ExitStack() as stack:
        embedded = _embedded(folder, stack, run.tell, "--nodes=0", "--controllers=none")
        yield Clusters(plane.kubeconfig, embedded, run.binaries)


@contextmanager
def real_nodes(run: ClusterRun) -> Iterator[Clusters]:
    """No cluster yet: the suite makes its own, in its own network namespace."""
    packages.ensure(run.tell)
    yield Clusters(Path(), Path(), run.binaries)


@contextmanager
def clusters(run: ClusterRun) -> Iterator[Clusters]:
    """Kubernetes with nodes and with Refloat's manager, and an embedded cluster."""
    folder = run.folder / "cluster"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        kubernetes, audit, authority = run.given, None, None
        if kubernetes is None:
            audit, authority = folder / "audit.log", folder / "pki"
            settings = _settings(run, folder, audit)
            kubernetes = stack.enter_context(control_plane.running(settings, run.tell)).kubeconfig
        kubectl = AdminKubectl(run.binaries / "kubectl", kubernetes)
        start_simulated_nodes(kubectl, folder, stack, run.tell)
        start_manager(kubectl, folder, stack, run.tell)
        nodes = ("--simulated-nodes", str(NODES))
        embedded = _embedded(folder, stack, run.tell, *nodes)
        yield Clusters(kubernetes, embedded, run.binaries, audit, authority)


def _settings(run: ClusterRun, folder: Path, audit: Path) -> control_plane.ControlPlaneSettings:
    policy = folder / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
    audited = (f"--audit-policy-file={policy}", f"--audit-log-path={audit}")
    more = {control_plane.APISERVER: audited, control_plane.CONTROLLER_MANAGER: QUICK}
    return control_plane.ControlPlaneSettings(run.binaries, folder, run.port, more=more)


@dataclass(frozen=True, slots=True)
class AdminKubectl:
    """kubectl with the administrator's kubeconfig."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str) -> str:
        command = [str(self.program), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise DaemonError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def ready_nodes(self) -> int:
        """How many of the simulated nodes are ready; none while the API server is not."""
        try:
            items = json.loads(self("get", "nodes", "--output", "json"))["items"]
        except DaemonError:
            return 0
        conditions = [each for item in items for each in item["status"].get("conditions", ())]
        return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _started(stack: ExitStack, log: Path, *arguments: str | Path) -> Daemon:
    daemon = Daemon([REFLOAT, *arguments], log)
    stack.callback(daemon.stop)
    return daemon


def _embedded(folder: Path, stack: ExitStack, tell: Tell, *flags: str) -> Path:
    tell("waiting for refloat up")
    data, log = folder / "refloat", folder / "refloat-up.log"
    daemon = _started(stack, log, "up", "--data-dir", data, *flags)
    daemon.wait_until(lambda: "Ctrl-C" in log.read_text(), "kubeconfig")
    return data / "kubeconfig"


def start_simulated_nodes(
    kubectl: AdminKubectl, folder: Path, stack: ExitStack, tell: Tell
) -> None:
    """Start the simulated nodes, and wait until they are ready."""
    tell(f"waiting for {NODES} simulated nodes")
    flags = ("--kubeconfig", kubectl.kubeconfig, "--simulated-nodes", str(NODES))
    daemon = _started(stack, folder / "refloat-agent.log", "agent", *flags)
    daemon.wait_until(lambda: kubectl.ready_nodes() >= NODES, f"{NODES} ready nodes")


def start_manager(kubectl: AdminKubectl, folder: Path, stack: ExitStack, tell: Tell) -> None:
    """Start `refloat manager` with the rights of the example, and wait until it is ready."""
    tell(f"waiting for refloat manager, as {NAMESPACE}/{ACCOUNT}")
    kubectl("apply", "--filename", str(RIGHTS))
    kubeconfig = folder / "manager.kubeconfig"
    private_files.write(kubeconfig, _account(kubectl))
    configuration = folder / "manager.yaml"
    configuration.write_text(yaml.safe_dump(_CONFIGURATION))
    (port,) = control_plane.free_ports(1)
    at = f"--health-probe-bind-address=127.0.0.1:{port}"
    flags = ("--kubeconfig", kubeconfig, "--config", configuration, at, *QUICK)
    daemon = _started(stack, folder / "refloat-manager.log", "manager", *flags)
    daemon.wait_until(Probe(port, "/readyz"), f"answer at 127.0.0.1:{port}/readyz")


def _account(kubectl: AdminKubectl) -> bytes:
    """A kubeconfig like the administrator's, for the manager's service account."""
    about = ("--namespace", NAMESPACE, "--duration", "12h")
    token = kubectl("create", "token", ACCOUNT, *about).strip()
    document = json.loads(kubectl("config", "view", "--minify", "--flatten", "--output", "json"))
    document["users"][0]["user"] = {"token": token}
    document["contexts"][0]["context"]["namespace"] = NAMESPACE
    return json.dumps(document).encode()
