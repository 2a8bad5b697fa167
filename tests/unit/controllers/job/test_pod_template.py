# SPDX-License-Identifier: Apache-2.0
"""New pods look as Kubernetes makes them (behaviour A8.4-A8.9)."""

from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.controllers.job.pod_template import PodTemplate
from refloat.policy.job import pod_state
from refloat.policy.job.backoff import IndexFailures
from refloat.policy.job.scaling import NewPod
from tests import builders as objects
from tests.unit.policy import builders

OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "j",
    "uid": "job",
    "controller": True,
    "blockOwnerDeletion": True,
}
SOURCE = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}
    },
}


def job(metadata: dict[str, Any] | None = None, **spec: Any) -> Job:
    body = objects.job(pod_metadata=metadata, pod_spec=spec, namespace="ns", uid="job")
    return builders.decoded(body)


def test_labels_annotations_and_finalizers_are_the_templates() -> None:
    template = {
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["example.com/keep"],
        "name": "ignored",
        "generateName": "ignored-",
        "namespace": "elsewhere",
    }
    assert PodTemplate(job(template)).pod("j-abcde", NewPod())["metadata"] == {
        "name": "j-abcde",
        "generateName": "j-",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["example.com/keep", "batch.kubernetes.io/job-tracking"],
        "ownerReferences": [OWNER],
    }


def test_the_finalizer_is_not_there_twice() -> None:
    template = PodTemplate(job({"finalizers": [pod_state.TRACKING_FINALIZER]}))
    pod = template.pod("n", NewPod())
    assert pod["metadata"]["finalizers"] == [pod_state.TRACKING_FINALIZER]


def test_the_spec_is_the_templates_as_it_is() -> None:
    pod = PodTemplate(job(unknownField=[1], hostname="h")).pod("n", NewPod())
    assert pod["spec"]["unknownField"] == [1]
    assert pod["spec"]["hostname"] == "h"
    assert "env" not in pod["spec"]["containers"][0]


def test_a_pod_of_an_index_is_told_which() -> None:
    init = [{"name": "first", "env": [{"name": "A", "value": "1"}]}]
    template = PodTemplate(job({"labels": {"a": "b"}}, initContainers=init, hostname="h"))
    pod = template.pod("j-3-abcde", NewPod(3))
    key = pod_state.COMPLETION_INDEX
    assert pod["metadata"]["generateName"] == "j-3-"
    assert pod["metadata"]["labels"] == {"a": "b", key: "3"}
    assert pod["metadata"]["annotations"] == {key: "3"}
    assert pod["spec"]["hostname"] == "j-3"
    assert pod["spec"]["containers"][0]["env"] == [SOURCE]
    assert pod["spec"]["initContainers"][0]["env"] == [{"name": "A", "value": "1"}, SOURCE]


def test_a_container_that_names_its_index_itself_keeps_it() -> None:
    mine = [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]
    containers = [{"name": "main", "image": "i", "env": mine}]
    pod = PodTemplate(job(containers=containers)).pod("n", NewPod(3))
    assert pod["spec"]["containers"][0]["env"] == mine


def test_the_pods_of_one_template_share_no_changes() -> None:
    template = PodTemplate(job({"labels": {"a": "b"}}))
    first, second = template.pod("n", NewPod(0)), template.pod("m", NewPod(1))
    assert first["metadata"]["labels"][pod_state.COMPLETION_INDEX] == "0"
    assert second["metadata"]["labels"][pod_state.COMPLETION_INDEX] == "1"
    assert len(second["spec"]["containers"][0]["env"]) == 1


@pytest.mark.parametrize(
    ("failures", "want"),
    [
        (IndexFailures(), {pod_state.INDEX_FAILURES: "0"}),
        (IndexFailures(2), {pod_state.INDEX_FAILURES: "2"}),
        (
            IndexFailures(1, 3),
            {pod_state.INDEX_FAILURES: "1", pod_state.INDEX_IGNORED_FAILURES: "3"},
        ),
    ],
    ids=["the first", "after counted failures", "after ignored ones too"],
)
def test_a_pod_is_told_of_the_failures_before_it(
    failures: IndexFailures, want: dict[str, str]
) -> None:
    pod = PodTemplate(job()).pod("n", NewPod(0, failures))
    assert pod["metadata"]["annotations"] == {pod_state.COMPLETION_INDEX: "0", **want}


@pytest.mark.parametrize("labels", [None, {}], ids=["none", "empty"])
def test_a_template_without_labels_is_known(labels: dict[str, str] | None) -> None:
    assert not PodTemplate(job({"labels": labels})).has_labels
