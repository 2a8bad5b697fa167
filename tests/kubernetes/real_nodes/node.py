# SPDX-License-Identifier: Apache-2.0
"""One real node: it starts, falls silent in four ways, returns, and leaves nothing.

The node is a process with its own mounts, pids, network and name (`init.sh`),
with containerd in it. The kubelet is a second process in the same namespaces,
so that a test can freeze or kill the kubelet alone.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from refloat.bench.daemons import Daemon
from tests.kubernetes.real_nodes import images, network

CGROUPS = Path("/sys/fs/cgroup")

# A node is ready after 4 to 8 s on a quiet machine.
START_SECONDS = 120.0

_INIT = Path(__file__).with_name("init.sh")

_NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node is made of."""

    number: int
    name: str
    folder: Path
    """The disk of the node; a power-off leaves it."""
    kubelet: Path
    kubeconfig: Path
    authority: Path
    """The certificate of the authority, for requests to the kubelet."""

    @property
    def cgroup(self) -> str:
        return f"/refloat-{os.getpid()}/{self.name}"


class RealNode:
    """A node with a kubelet, until `stop`."""

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self._plan = plan
        self._silence = ""
        _lay_out(plan)
        self._boot()

    def silence(self, how: str) -> None:
        """Make the API server hear nothing of the node: frozen, killed, cut or off."""
        self._silence = how
        match how:
            case "frozen":
                self._signal_kubelet(signal.SIGSTOP)
            case "killed":
                self._signal_kubelet(signal.SIGKILL)
                self._kubelet.stop()
            case "cut":
                network.cut(self._plan.number)
            case "off":
                self._power_off()
            case _:
                raise ValueError(how)

    def give_back(self) -> None:
        """End the silence."""
        match self._silence:
            case "frozen":
                self._signal_kubelet(signal.SIGCONT)
            case "killed":
                self._start_kubelet()
            case "cut":
                network.mend(self._plan.number)
            case "off":
                self._boot()
        self._silence = ""

    def stop(self) -> None:
        """End all processes of the node, and remove its cgroups."""
        self._power_off()
        for hierarchy in CGROUPS.iterdir():
            _remove_cgroup(hierarchy / self._plan.cgroup.lstrip("/"))

    def _boot(self) -> None:
        plan = self._plan
        (plan.folder / "ready").unlink(missing_ok=True)
        self._machine = Daemon(
            [
                *("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"),
                *("sh", _INIT, plan.folder, plan.name, plan.cgroup),
                *(f"{network.address(plan.number)}/24", network.API_SERVER),
            ],
            plan.folder / "machine.log",
        )
        self._machine.wait_until(lambda: self._init() > 0, "first process", START_SECONDS)
        network.join(plan.number, self._init())
        ready = plan.folder / "ready"
        self._machine.wait_until(ready.exists, "containerd", START_SECONDS)
        self._start_kubelet()

    def _init(self) -> int:
        """The node's first process, which is in all of the node's namespaces; 0 if none yet."""
        pid = self._machine.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        first = int(children[0]) if children else 0
        # `unshare` has forked, but may not have made all the namespaces yet.
        if not first or Path(f"/proc/{first}/comm").read_text().strip() != "sh":
            return 0
        return first

    def _start_kubelet(self) -> None:
        plan = self._plan
        command: list[str | Path] = ["nsenter", "--target", str(self._init()), *_NAMESPACES, "--"]
        command += [plan.kubelet, f"--config={plan.folder / 'kubelet.yaml'}"]
        command += [f"--kubeconfig={plan.kubeconfig}", f"--hostname-override={plan.name}"]
        command += [f"--node-ip={network.address(plan.number)}", "--v=2"]
        self._kubelet = Daemon(command, plan.folder / "kubelet.log")

    def _signal_kubelet(self, number: signal.Signals) -> None:
        """`nsenter` waits for the kubelet, so the kubelet is its only child."""
        pid = self._kubelet.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(child), number)

    def _power_off(self) -> None:
        """Everything on the node ends at once, and so does its network."""
        self._machine.stop(signal.SIGKILL)
        self._kubelet.stop(signal.SIGKILL)
        # The kernel removes a link when the last process of its namespace is gone.
        deadline = time.monotonic() + START_SECONDS
        while Path(f"/sys/class/net/{network.link(self._plan.number)}").exists():
            assert time.monotonic() < deadline, f"the processes of {self.name} do not end"
            time.sleep(0.05)


@contextmanager
def running(plan: Plan) -> Iterator[RealNode]:
    """A node until the end of the block."""
    node = RealNode(plan)
    try:
        yield node
    finally:
        node.stop()


def _lay_out(plan: Plan) -> None:
    """Write the files of a new node."""
    for each in ("lib", "log", "images", "cni", "manifests"):
        (plan.folder / each).mkdir(parents=True)
    for image in (images.WORK, images.PAUSE):
        images.write(image, plan.folder / "images" / f"{image.split('/')[1].replace(':', '-')}.tar")
    (plan.folder / "resolv.conf").write_text("")
    (plan.folder / "cni" / "pods.conflist").write_text(json.dumps(_cni(plan)))
    (plan.folder / "containerd.toml").write_text(_containerd(plan))
    (plan.folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(plan)))


def _cni(plan: Plan) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": "/run/pod-addresses",
        "ranges": [[{"subnet": network.pods(plan.number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _containerd(plan: Plan) -> str:
    """Without CAP_SYS_RESOURCE no sandbox starts unless `restrict_oom_score_adj` is set."""
    return f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{plan.folder / "cni"}"
"""


def _kubelet(plan: Plan) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plan.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": plan.cgroup,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # The machine of the tests may be full, and may have swap and the old cgroups.
        "evictionHard": {"memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(plan.folder / "resolv.conf"),
        "staticPodPath": str(plan.folder / "manifests"),
    }


def _remove_cgroup(folder: Path) -> None:
    """Remove a group and the groups below it; the last node removes the run's group too."""
    deadline = time.monotonic() + START_SECONDS
    while folder.exists():
        assert time.monotonic() < deadline, f"{folder} is still in use"
        for path, _, _ in os.walk(folder, topdown=False):
            # A group is busy until the kernel has forgotten the processes that were in it.
            with contextlib.suppress(OSError):
                Path(path).rmdir()
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
