# SPDX-License-Identifier: Apache-2.0
"""`examples/manager-rbac.yaml` has a part for each controller, and each part is enough for it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from refloat.app import controller_names, kubeconfig
from refloat.app.manager import ClusterManager, ClusterManagerSettings
from refloat.base.clock import RealClock
from refloat.base.rand import Rand

FILE = Path(__file__).parents[3] / "examples" / "manager-rbac.yaml"

SHARED = "refloat-manager"
PARTS = {
    controller_names.JOB: "refloat-manager-job",
    controller_names.FAILURE_RECOVERY: "refloat-manager-recovery",
    controller_names.FORCE_EVICTION: "refloat-manager-force-eviction",
}

# The administrator binds this one, to users.
EXPLAIN = ("Role", "refloat-explain", "kube-system")

Object = dict[str, Any]


def documents(*kinds: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] in kinds]


def granted(*names: str) -> set[tuple[str, str]]:
    """What the roles of these names allow: (resource, verb)."""
    return {
        (resource, verb)
        for role in documents("Role", "ClusterRole")
        if role["metadata"]["name"] in names
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def place(document: Object) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"].removesuffix("Binding"), metadata["name"], metadata.get("namespace", "")


def test_each_role_is_bound_to_the_manager_under_its_own_name() -> None:
    roles = {place(each) for each in documents("Role", "ClusterRole")} - {EXPLAIN}
    bindings = documents("RoleBinding", "ClusterRoleBinding")
    assert {place(each) for each in bindings} == roles
    assert {name for _, name, _ in roles} == {SHARED, *PARTS.values()}
    for each in bindings:
        assert (each["roleRef"]["kind"], each["roleRef"]["name"]) == place(each)[:2]
        [subject] = each["subjects"]
        assert (subject["name"], subject["namespace"]) == ("refloat-manager", "refloat-system")


def test_only_the_job_controller_creates_pods_and_sees_jobs() -> None:
    others = granted(SHARED, *(set(PARTS.values()) - {PARTS[controller_names.JOB]}))
    assert ("pods", "create") in granted(PARTS[controller_names.JOB])
    assert ("pods", "create") not in others
    assert {each for each in others if each[0].startswith("jobs")} == set()


def test_only_recovery_writes_the_status_of_pods_and_only_what_forces_changes_nodes() -> None:
    assert ("pods/status", "patch") not in granted(
        SHARED, PARTS[controller_names.JOB], PARTS[controller_names.FORCE_EVICTION]
    )
    assert ("nodes", "patch") not in granted(SHARED, PARTS[controller_names.JOB])


@pytest.mark.parametrize("controller", sorted(PARTS))
def test_a_manager_with_one_controller_watches_only_what_its_part_allows(
    controller: str, tmp_path: Path
) -> None:
    access = tmp_path / "kubeconfig"
    access.write_bytes(kubeconfig.render(server="https://192.0.2.1", authority=b"", token="t"))
    settings = ClusterManagerSettings(
        kubeconfig=access,
        controllers=(controller,),
        gate_flags={"FailureRecoveryPolicy": True, "TaintForceEviction": True},
    )
    manager = ClusterManager(settings, RealClock(), Rand(1))
    allowed = granted(SHARED, PARTS[controller])
    for kind in manager.caches():
        assert {(kind, "list"), (kind, "watch")} <= allowed, kind
