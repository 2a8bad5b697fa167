# SPDX-License-Identifier: Apache-2.0
"""Refloat's own effect of taints and tolerations, behind a gate (KEP-36)."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from refloat.api.defaults import job as job_defaults
from refloat.api.defaults import pod as pod_defaults
from refloat.api.meta import Object
from refloat.api.validation import job, node, pod
from tests import builders
from tests.cases import cases
from tests.unit.api import corpus

FORCE: Object = {"key": "k", "value": "v", "effect": "ForceEviction"}
UNKNOWN = (
    'effect: Unsupported value: "ForceEviction": '
    'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
)
SECONDS = (
    'effect: Invalid value: "ForceEviction": '
    "effect must be 'NoExecute' when `tolerationSeconds` is set"
)
STORED: Object = {"uid": corpus.UID, "resourceVersion": "1", "namespace": "default"}


def node_with(*taints: Object) -> Object:
    stored = {"uid": corpus.UID, "resourceVersion": "1"}
    return {"metadata": {"name": "n", **stored}, "spec": {"taints": list(taints)}}


def pod_with(*tolerations: Object) -> Object:
    pod = builders.pod("p", spec={"tolerations": list(tolerations)}, **STORED)
    pod_defaults.apply(pod)
    return pod


def job_with(*tolerations: Object) -> Object:
    job = builders.job("j", **STORED)
    job["spec"]["template"]["spec"]["tolerations"] = list(tolerations)
    job_defaults.apply(job)
    job_defaults.prepare_create(job)
    return job


KINDS: dict[str, tuple[Any, Callable[..., Object]]] = {
    "metadata.taints[0].": (node, node_with),
    "spec.tolerations[0].": (pod, pod_with),
    "spec.template.spec.tolerations[0].": (job, job_with),
}


def said(mistakes: list[Any]) -> list[str]:
    """Each once: a Job's are listed twice on an update, as by Kubernetes."""
    return list(dict.fromkeys(str(each) for each in mistakes))


@pytest.mark.parametrize("path", KINDS)
def test_a_new_one_needs_the_gate(path: str) -> None:
    kind, obj = KINDS[path]
    assert kind.validate_create(obj(FORCE), force_eviction=True) == []
    assert said(kind.validate_create(obj(FORCE), force_eviction=False)) == [path + UNKNOWN]


@pytest.mark.parametrize("path", KINDS)
def test_the_gate_lists_it_where_another_is_wrong(path: str) -> None:
    kind, obj = KINDS[path]
    (mistake,) = said(kind.validate_create(obj({**FORCE, "effect": "No"}), force_eviction=True))
    assert mistake.endswith('"NoSchedule", "PreferNoSchedule", "NoExecute", "ForceEviction"')


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("on", [True, False])
def test_what_is_stored_may_stay_and_go_whatever_the_gate_says(path: str, *, on: bool) -> None:
    kind, obj = KINDS[path]
    old, new = obj(FORCE), obj(FORCE)
    new["metadata"]["labels"] = {"a": "b"}
    assert kind.validate_update(new, copy.deepcopy(old), force_eviction=on) == []


def test_a_stored_taint_may_go_without_the_gate() -> None:
    assert node.validate_update(node_with(), node_with(FORCE), force_eviction=False) == []


@cases("taint", {"another value": {**FORCE, "value": "w"}, "another key": {**FORCE, "key": "l"}})
def test_a_stored_taint_does_not_open_the_door_to_others(taint: Object) -> None:
    other = {"key": "x", "effect": "NoSchedule"}
    errors = node.validate_update(node_with(other, taint), node_with(FORCE), force_eviction=False)
    assert said(errors) == ["metadata.taints[1]." + UNKNOWN]


def test_a_stored_toleration_does_not_open_the_door_to_others() -> None:
    new = pod_with(FORCE, {**FORCE, "key": "l"})
    errors = pod.validate_update(new, pod_with(FORCE), force_eviction=False)
    assert said(errors) == ["spec.tolerations[1]." + UNKNOWN]


def test_a_status_may_be_written_without_the_gate() -> None:
    old = node_with(FORCE)
    assert node.validate_status_update(old, copy.deepcopy(old), force_eviction=False) == []


def test_nobody_tolerates_it_for_some_seconds() -> None:
    patient = {**FORCE, "tolerationSeconds": 60}
    errors = pod.validate_create(pod_with(patient), force_eviction=True)
    assert said(errors) == ["spec.tolerations[0]." + SECONDS]
