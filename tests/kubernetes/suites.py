# SPDX-License-Identifier: Apache-2.0
"""The commands that run against the clusters, each a separate process.

A suite is a command that ends with 0 when all is well. The command prints what
went wrong; this module lists the suites, where they run, and how each ended.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tests import sessions
from tests.kubernetes.cluster import ROOT, Clusters
from tests.scenarios import setting

Stage: TypeAlias = Literal["api", "cluster", "real nodes"]
"""Two API servers on which nothing acts, two whole clusters, or none: the suite makes its own."""

JOBS = os.environ.get("JOBS", "2")


@dataclass(frozen=True, slots=True)
class Suite:
    """One command."""

    name: str
    stage: Stage
    about: str
    command: Callable[[Clusters], list[str]]
    variables: tuple[str, ...] = ()
    """The environment variables in which the suite expects the kubeconfig of Kubernetes."""
    anywhere: bool = False
    """Whether the suite can run on a cluster with other users and controllers."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a suite ended."""

    name: str
    code: int
    seconds: float


def _pytest(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]


def _contract(_: Clusters) -> list[str]:
    return _pytest(
        *("tests/contract/test_client.py", "tests/contract/test_client_watch.py"),
        *("-k", "kubernetes"),
    )


def _kubectl(_: Clusters) -> list[str]:
    files = sorted((ROOT / "tests" / "e2e").glob("test_kubectl*.py"))
    return _pytest("-n", JOBS, *(str(each.relative_to(ROOT)) for each in files))


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


def _differential_api(on: Clusters) -> list[str]:
    servers = (f"--server=kubernetes={on.kubernetes}", f"--server=refloat={on.embedded}")
    return _module("tests.differential", "api", *servers)


def _settings(on: Clusters) -> list[str]:
    """One cluster is two settings: the Job names the controller."""
    settings = {"reference": on.kubernetes, "managed": on.kubernetes, "embedded": on.embedded}
    return [f"--setting={name}={kubeconfig}" for name, kubeconfig in settings.items()]


def _scenarios(on: Clusters) -> list[str]:
    return _module("tests.scenarios", *_settings(on))


def _differential_jobs(on: Clusters) -> list[str]:
    return _module("tests.differential", "jobs", *_settings(on))


def _force_eviction(_: Clusters) -> list[str]:
    return _pytest("tests/kubernetes/force_eviction.py")


def _rights(_: Clusters) -> list[str]:
    return _pytest("tests/kubernetes/manager_rights.py")


def _backoff_policy(_: Clusters) -> list[str]:
    return _pytest("tests/kubernetes/backoff_policy.py")


def _agents(_: Clusters) -> list[str]:
    return _pytest("tests/kubernetes/agents.py")


def _explain(_: Clusters) -> list[str]:
    return _pytest("tests/kubernetes/explain.py")


def _faults(_: Clusters) -> list[str]:
    return _pytest("tests/kubernetes/faults.py")


def _kubelets(_: Clusters) -> list[str]:
    plugin = ("-p", "tests.kubernetes.real_nodes.fixtures")
    files = ("tests/kubernetes/kubelets.py", "tests/kubernetes/kubelet_failures.py")
    return ["unshare", "--net", *_pytest(*plugin, "-s", *files)]


SUITES = (
    Suite(
        "contract",
        "api",
        "the client's contract, as of the embedded server",
        _contract,
        ("REFLOAT_TEST_KUBECONFIG",),
    ),
    Suite(
        "kubectl",
        "api",
        "the tests of kubectl, as of the embedded server",
        _kubectl,
        ("REFLOAT_E2E_KUBECONFIG",),
    ),
    Suite(
        "differential-api",
        "api",
        "random calls, answers compared with those of the embedded server",
        _differential_api,
    ),
    Suite(
        "scenarios",
        "cluster",
        "the same Jobs on Kubernetes, on Kubernetes with Refloat, and on Refloat alone",
        _scenarios,
        anywhere=True,
    ),
    Suite(
        "differential-jobs",
        "cluster",
        "random Jobs, their ends compared: Kubernetes, Refloat on it, Refloat alone",
        _differential_jobs,
        anywhere=True,
    ),
    Suite(
        "agents",
        "cluster",
        "nodes that run processes: Jobs, logs, limits, and agents that die and freeze",
        _agents,
        ("REFLOAT_TEST_KUBECONFIG",),
    ),
    Suite(
        "backoff-policy",
        "cluster",
        "a backoffPolicy in an annotation, and deletes that say why",
        _backoff_policy,
        ("REFLOAT_TEST_KUBECONFIG",),
    ),
    Suite(
        "explain",
        "cluster",
        "what `refloat explain` says of some fifty situations, also to a reader of a namespace",
        _explain,
        ("REFLOAT_TEST_KUBECONFIG",),
    ),
    Suite(
        "force-eviction",
        "cluster",
        "nodes with the request taint, evicted by Kubernetes' own controllers",
        _force_eviction,
        ("REFLOAT_TEST_KUBECONFIG",),
    ),
    Suite(
        "faults",
        "api",
        "etcd stops, and answers are lost: pods run on, and each is counted once",
        _faults,
    ),
    Suite(
        "rights",
        "cluster",
        "the manager has the rights that it needs, and uses what it has",
        _rights,
        ("REFLOAT_TEST_KUBECONFIG",),
    ),
    Suite(
        "kubelets",
        "real nodes",
        "real kubelets that fall silent, and what returns with them",
        _kubelets,
    ),
)


def chosen(names: Iterable[str]) -> list[Suite]:
    """Those that are named, or all, in their order."""
    selection = list(names)
    return [each for each in SUITES if not selection or each.name in selection]


def run(suite: Suite, clusters: Clusters) -> Ended:
    """Run the suite to the end."""
    environment = {
        **os.environ,
        "PATH": f"{clusters.binaries}{os.pathsep}{os.environ['PATH']}",
        **dict.fromkeys(suite.variables, str(clusters.kubernetes)),
    }
    environment["REFLOAT_TEST_BINARIES"] = str(clusters.binaries)
    paths = {"REFLOAT_TEST_AUDIT": clusters.audit, "REFLOAT_TEST_AUTHORITY": clusters.authority}
    environment |= {name: str(path) for name, path in paths.items() if path is not None}
    if clusters.audit is not None:
        environment[setting.ENDS] = "with the run"
    started = time.monotonic()
    with sessions.running(suite.command(clusters), cwd=ROOT, env=environment) as process:
        code = process.wait()
    return Ended(suite.name, code, time.monotonic() - started)


def table(results: Iterable[Ended]) -> list[str]:
    """How all of them ended."""
    lines = [f"{'suite':20} {'result':10} {'seconds':>8}"]
    for each in results:
        result = "passed" if each.code == 0 else f"FAILED ({each.code})"
        lines.append(f"{each.name:20} {result:10} {each.seconds:8.0f}")
    return lines
