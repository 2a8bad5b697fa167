# SPDX-License-Identifier: Apache-2.0
"""On a cluster: the manager's role grants every right that the manager uses, and no other.

The API server's audit log has every request of the manager's service account.
pytest does not collect this module: `python -m tests.kubernetes` starts the cluster and
runs it.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from tests.e2e.cluster import Api
from tests.e2e.node_cluster import phase, until, wait
from tests.kubernetes import audit
from tests.kubernetes.cluster import MANAGER, RIGHTS

PATIENCE_SECONDS = 300.0

# Granted for admission plugins that this cluster does not have.
UNUSED = {"jobs/finalizers"}

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def api() -> Api:
    return Api(Path(os.environ["REFLOAT_TEST_KUBECONFIG"]))


def managed_job(name: str, life: str = "{}", **spec: Any) -> Object:
    managed = {"managedBy": "refloat.dev/job-controller", **spec}
    return builders.job(name, simulate=life, spec=managed)


def status(api: Api, name: str, field: str) -> Any:
    """A field of a Job's status, as soon as the status has the field."""
    return wait(
        lambda: api.get(f"{JOBS}/{name}")["status"].get(field), f"{name} has no status.{field}"
    )


def granted() -> set[str]:
    """The resources that the manager's roles name."""
    documents = yaml.safe_load_all(RIGHTS.read_text())
    rules = [rule for each in documents for rule in each.get("rules", ())]
    return {resource for rule in rules for resource in rule["resources"]}


GHOST = "/api/v1/nodes/ghost"


def zombie() -> Object:
    """A pod that opted in, on a node without an agent."""
    spec = {
        "nodeName": "ghost",
        "containers": [{"name": "main", "image": "busybox:1"}],
        "tolerations": [{"operator": "Exists"}],
    }
    annotations = {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}
    return {"metadata": {"name": "zombie", "annotations": annotations}, "spec": spec}


@pytest.fixture(scope="module")
def freed(api: Api) -> Iterator[None]:
    """The manager has freed a pod that hung on a lost node, whose lease does not change."""
    api.create("/api/v1/nodes", {"metadata": {"name": "ghost"}})
    api.create(LEASES, {"metadata": {"name": "ghost"}, "spec": {"leaseDurationSeconds": 5}})
    api.create(PODS, zombie())
    api.ask("DELETE", f"{PODS}/zombie?gracePeriodSeconds=1")
    until(api, f"{PODS}/zombie", phase("Failed"))
    yield
    api.ask("DELETE", GHOST)
    api.ask("DELETE", f"{LEASES}/ghost")
    api.ask("DELETE", f"{PODS}/zombie?gracePeriodSeconds=0")


@pytest.fixture(scope="module")
def worked(api: Api, freed: None) -> Iterator[None]:
    """The manager has created pods, counted them, recorded events and deleted one pod."""
    api.create(JOBS, managed_job("complete"))
    api.create(JOBS, managed_job("suspended", '{"main": {"seconds": null}}'))
    status(api, "suspended", "active")
    api.patch(f"{JOBS}/suspended", {"spec": {"suspend": True}})
    status(api, "complete", "completionTime")
    status(api, "suspended", "conditions")
    yield
    for name in ("complete", "suspended"):
        api.ask("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")


@pytest.mark.usefixtures("worked")
def test_the_manager_is_refused_nothing() -> None:
    assert [each for each in audit.asked(MANAGER) if each.refused] == []


@pytest.mark.usefixtures("worked")
def test_every_resource_of_its_roles_is_used() -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (unused := granted() - {each.resource for each in audit.asked(MANAGER)}) != UNUSED:
        assert time.monotonic() < deadline, unused  # events are written behind
        time.sleep(0.5)


def test_it_may_not_read_secrets(api: Api) -> None:
    about = {"verb": "list", "resource": "secrets"}
    review = {"spec": {"user": MANAGER, "resourceAttributes": about}}
    answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"]["allowed"] is False
