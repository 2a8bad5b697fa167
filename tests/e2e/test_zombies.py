# SPDX-License-Identifier: Apache-2.0
"""Zombie recovery for users: a configuration file, `refloat manager`, `refloat up`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.scenario.cluster import connected
from refloat.scenario.namespace import opened
from tests.e2e.cluster import Api, NodeCommands, run, serving
from tests.e2e.node_cluster import wait
from tests.e2e.test_manager import managing
from tests.scenarios import lost_node

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SAFE = {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}

CONFIG = """
apiVersion: config.refloat.dev/v1alpha1
kind: Configuration
featureGates: {{FailureRecoveryPolicy: {gate}}}
failureRecoveryPolicy:
  nodeGracePeriod: 1s
  annotated: {{forcefulTerminationGracePeriod: {period}}}
  rules:
  - terminatePod:
      podLabelSelector: {{matchLabels: {{safe: "true"}}}}
      forcefulTerminationGracePeriod: 1s
      deleteAfter: 1s
"""


def until(what: Callable[[], Any]) -> Any:
    return wait(what, "it did not come to be")


def lose_node(api: Api, name: str) -> None:
    """A node with all evidence of being down: taint, Ready not True, an unchanged Lease."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    api.create(NODES, {"metadata": {"name": name}, "spec": {"taints": [taint]}})
    silent = {"type": "Ready", "status": "Unknown"}
    api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [silent]}})
    api.create(LEASES, {"metadata": {"name": name}, "spec": {"leaseDurationSeconds": 1}})


def zombie(api: Api, name: str, **metadata: Any) -> None:
    """A pod on a lost node that hangs in Terminating."""
    container = {"name": "c", "image": "busybox:1"}
    spec = {"nodeName": "lost", "terminationGracePeriodSeconds": 1, "containers": [container]}
    api.create(PODS, {"metadata": {"name": name, **metadata}, "spec": spec})
    api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    api.done("DELETE", f"{PODS}/{name}")


def test_a_manager_frees_zombies_by_a_file_that_changes_while_it_runs(tmp_path: Path) -> None:
    config, log = tmp_path / "refloat.yaml", tmp_path / "manager.stderr"
    config.write_text(CONFIG.format(gate="false", period="1s"))
    with serving(tmp_path / "data") as server:
        api = Api(server.kubeconfig)
        lose_node(api, "lost")
        zombie(api, "annotated", annotations=SAFE)
        zombie(api, "labelled", labels={"safe": "true"})
        zombie(api, "neither")

        def phase(name: str) -> str:
            answer = api.ask("GET", f"{PODS}/{name}")
            return answer.object["status"].get("phase", "") if answer.status == 200 else "gone"

        flags = ("--config", str(config), "--log-format", "json")
        with managing(server.kubeconfig, log, *flags) as manager:
            until(lambda: manager.page("health", "/readyz")[0] == 200)
            until(lambda: "the feature gate FailureRecoveryPolicy is off" in log.read_text())
            assert {phase(name) for name in ("annotated", "labelled", "neither")} == {"Running"}
            config.write_text(CONFIG.format(gate="true", period="soon"))
            until(lambda: "the old configuration stays in force" in log.read_text())
            assert "forcefulTerminationGracePeriod: 'soon': expected a duration" in log.read_text()
            config.write_text(CONFIG.format(gate="true", period="1s"))
            until(lambda: phase("annotated") == "Failed")
            until(lambda: phase("labelled") == "gone")
            assert phase("neither") == "Running"
            event = until(lambda: _event(api, "annotated"))
            metrics = manager.page("metrics", "/metrics")[1]
        assert event["source"] == {"component": "pod-termination-controller"}
        assert event["reportingComponent"] == "pod-termination-controller"
        assert event["type"] == "Warning"
        assert event["message"] == (
            "Pod forcefully terminated after 2s grace period due to unreachable node `lost` "
            "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
        )
        assert (
            'refloat_failure_recovery_pod_decisions_total{outcome="deleted",reason="Rule"} 1.0'
            in metrics
        )
        assert '"action": "terminated"' in log.read_text()
    assert "Traceback" not in log.read_text()


def _event(api: Api, pod: str) -> Any:
    for each in api.get(EVENTS)["items"]:
        about = each["involvedObject"]["name"]
        if (about, each["reason"]) == (pod, "KueueForcefullyTerminated"):
            return each
    return None


async def test_a_job_of_an_embedded_cluster_goes_on_after_its_node_froze(tmp_path: Path) -> None:
    config = tmp_path / "refloat.yaml"
    config.write_text(CONFIG.format(gate="true", period="1s"))
    flags = ("--simulated-nodes", "3", "--fast", "--config", str(config))
    with serving(tmp_path / "data", *flags) as server:
        faults = NodeCommands(server.data_dir)
        cluster = connected(server.kubeconfig, RealClock(), Rand(), faults=faults)
        async with cluster as on, opened(on, "zombie") as ns:
            await lost_node.a_job_goes_on_after_its_node_froze(ns)


def test_a_mistake_in_the_file_stops_the_start_with_its_path(tmp_path: Path) -> None:
    config = tmp_path / "refloat.yaml"
    config.write_text(CONFIG.format(gate="true", period="0s"))
    result = run("up", "--data-dir", tmp_path / "data", "--config", config)
    assert result.returncode == 2
    assert (
        f"{config}: failureRecoveryPolicy.annotated.forcefulTerminationGracePeriod: '0s': "
        "expected a duration above zero" in result.stderr
    )
