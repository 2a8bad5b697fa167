# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes with real nodes and Refloat's manager, in this network namespace."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from refloat.app import certificates
from refloat.bench import control_plane
from tests.e2e.cluster import Api, Object
from tests.e2e.node_cluster import is_ready, until
from tests.kubernetes import cluster, joining
from tests.kubernetes.real_nodes import network, node
from tests.kubernetes.real_nodes.node import Plan, RealNode

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass(frozen=True, slots=True)
class RealCluster:
    """A control plane, simulated nodes, `refloat manager`, and real nodes by name."""

    plane: control_plane.KubernetesControlPlane
    api: Api
    nodes: dict[str, RealNode]


@contextmanager
def running(folder: Path, binaries: Path, names: list[str]) -> Iterator[RealCluster]:
    """Start everything, wait until the real nodes are ready, and stop everything at the end."""
    network.make()
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane.running(_settings(folder, binaries)))
        kubectl = cluster.AdminKubectl(binaries / "kubectl", plane.kubeconfig)
        # Kubernetes evicts nothing where more than half of a small cluster is lost.
        cluster.start_simulated_nodes(kubectl, folder, stack, _ignore)
        cluster.start_manager(kubectl, folder, stack, _ignore)
        plans = [_plan(plane, number, name) for number, name in enumerate(names, 1)]
        nodes = {plan.name: stack.enter_context(node.running(plan)) for plan in plans}
        api = Api(plane.kubeconfig)
        for name in names:
            until(api, f"/api/v1/nodes/{name}", _takes_pods)
            # The kubelet creates its Lease some seconds after it is ready.
            until(api, f"{_LEASES}/{name}", lambda _: True)
        yield RealCluster(plane, api, nodes)


def _takes_pods(node: Object) -> bool:
    """A node keeps the taint `not-ready` for a moment after it is Ready."""
    return is_ready(node) and not joining.taints(node)


def _ignore(_: str) -> None:
    pass


def _settings(folder: Path, binaries: Path) -> control_plane.ControlPlaneSettings:
    # The certificate names the address of the bridge too, by which the nodes come.
    certificates.ensure(folder / "pki", network.API_SERVER, datetime.now(UTC))
    more = {
        control_plane.APISERVER: (
            "--bind-address=0.0.0.0",
            f"--advertise-address={network.API_SERVER}",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
        ),
        control_plane.CONTROLLER_MANAGER: cluster.QUICK,
    }
    return control_plane.ControlPlaneSettings(binaries, folder, more=more)


def _plan(plane: control_plane.KubernetesControlPlane, number: int, name: str) -> Plan:
    folder = plane.settings.folder
    authority = folder / "pki"
    kubeconfig = joining.kubeconfig(plane.kubeconfig, authority, name)
    document = yaml.safe_load(kubeconfig.read_text())
    port = plane.url.rpartition(":")[2]
    document["clusters"][0]["cluster"]["server"] = f"https://{network.API_SERVER}:{port}"
    kubeconfig.write_text(yaml.safe_dump(document))
    return Plan(
        number=number,
        name=name,
        folder=folder / "nodes" / name,
        kubelet=plane.settings.binaries / "kubelet",
        kubeconfig=kubeconfig,
        authority=certificates.Paths.below(authority).authority,
    )


def binaries() -> Path:
    """The programs of this run."""
    return Path(os.environ["REFLOAT_TEST_BINARIES"])
