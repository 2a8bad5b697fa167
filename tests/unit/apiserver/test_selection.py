# SPDX-License-Identifier: Apache-2.0
"""What selectors select; the selectable fields are those of Kubernetes."""

from typing import Any

import msgspec
import pytest

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver import selection, storage_codec
from refloat.store.contract import Entry
from tests import builders
from tests.apiserver_fixture import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
)
from tests.refusals import refusal

NEW_EVENTS = kinds.of("events", "events.k8s.io")
SECRETS = kinds.of("secrets")
SERVICES = kinds.of("services")


def picks(resource: kinds.Resource, obj: Object, *, labels: str = "", fields: str = "") -> bool:
    selected = selection.select(resource, "default", label_text=labels, field_text=fields)
    return selected.matches(Entry("k", storage_codec.pack(resource, obj), 1, 1))


def pod(**status: Any) -> Object:
    pod = builders.pod(node="n", namespace="default", spec={"restartPolicy": "Never"})
    return {**pod, "status": {"phase": "Running", **status}}


EVENT = {
    **builders.event(),
    "source": {"component": "kubelet"},
    "reason": "Started",
    "type": "Normal",
}


@pytest.mark.parametrize(
    ("resource", "obj", "fields"),
    [
        (PODS, pod(), "metadata.name=p"),
        (PODS, pod(), "metadata.name=p,metadata.namespace=default"),
        (PODS, pod(), "spec.nodeName=n"),
        (PODS, pod(), "spec.host=n"),
        (PODS, pod(), "status.phase!=Pending"),
        (PODS, pod(), "spec.restartPolicy=Never"),
        (PODS, pod(), "spec.hostNetwork=false"),
        (PODS, pod(podIP="10.0.0.1"), "status.podIP=10.0.0.1"),
        (PODS, pod(podIPs=[{"ip": "10.0.0.1"}]), "status.podIPs="),
        (NODES, builders.node(), "spec.unschedulable=false"),
        (NODES, {**builders.node(), "spec": {"unschedulable": True}}, "spec.unschedulable=true"),
        (
            NAMESPACES,
            {**builders.namespace(), "status": {"phase": "Active"}},
            "status.phase=Active",
        ),
        (JOBS, {**builders.job(), "status": {}}, "status.successful=0"),
        (JOBS, {**builders.job(), "status": {"succeeded": 2}}, "status.successful=2"),
        (SECRETS, {**builders.config_map(), "type": "Opaque"}, "type=Opaque"),
        (SERVICES, {**builders.config_map(), "spec": {"type": "ClusterIP"}}, "spec.type=ClusterIP"),
        (EVENTS, EVENT, "involvedObject.kind=Pod,reason=Started,type=Normal"),
        (EVENTS, EVENT, "source=kubelet"),
        (PRIORITY_CLASSES, builders.priority_class(), "metadata.namespace="),
    ],
)
def test_object_is_picked(resource: kinds.Resource, obj: Object, fields: str) -> None:
    assert picks(resource, obj, fields=fields)


@pytest.mark.parametrize(
    ("resource", "obj", "fields"),
    [
        (PODS, pod(), "metadata.name!=p"),
        (PODS, pod(), "spec.nodeName="),
        (PODS, pod(podIPs=[{"ip": "10.0.0.1"}]), "status.podIPs=10.0.0.1"),
        (JOBS, {**builders.job(), "status": {}}, "status.successful="),
        (EVENTS, EVENT, "source="),
    ],
)
def test_object_is_not_picked(resource: kinds.Resource, obj: Object, fields: str) -> None:
    assert not picks(resource, obj, fields=fields)


def test_event_is_selected_by_its_newer_names() -> None:
    selected = selection.select(
        NEW_EVENTS, "default", label_text="", field_text="regarding.kind=Pod"
    )
    assert selected.matches(Entry("k", storage_codec.pack(EVENTS, EVENT), 1, 1))


def test_labels_and_fields_must_both_match() -> None:
    obj = {**pod(), "metadata": {"name": "p", "labels": {"a": "b"}}}
    assert picks(PODS, obj, labels="a=b", fields="spec.nodeName=n")
    assert not picks(PODS, obj, labels="a=c", fields="spec.nodeName=n")
    assert not picks(PODS, obj, labels="a=b", fields="spec.nodeName=m")


@pytest.mark.parametrize(
    ("resource", "label", "message"),
    [
        (PODS, "spec.podIP", "field label not supported: spec.podIP"),
        (NODES, "metadata.namespace", "field label not supported: metadata.namespace"),
        (JOBS, "status.phase", 'field label "status.phase" not supported for Job'),
        (EVENTS, "regarding.kind", "field label not supported: regarding.kind"),
        (NEW_EVENTS, "involvedObject.kind", "field label not supported: involvedObject.kind"),
        (
            CONFIG_MAPS,
            "data",
            '"data" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_field_cannot_be_selected_on(resource: kinds.Resource, label: str, message: str) -> None:
    with refusal(400, message):
        selection.select(resource, "", label_text="", field_text=f"{label}=x")


@pytest.mark.parametrize(
    ("resource", "namespace", "fields", "want"),
    [
        (PODS, "d", "metadata.name=p", "pods/d/p"),
        (PODS, "", "metadata.name=p", ""),
        (PODS, "d", "metadata.name!=p", ""),
        (NODES, "", "metadata.name=n", "nodes/n"),
    ],
)
def test_one_object_is_found_by_its_key(
    resource: kinds.Resource, namespace: str, fields: str, want: str
) -> None:
    selected = selection.select(resource, namespace, label_text="", field_text=fields)
    assert selected.key == want


def test_attributes_are_derived_once() -> None:
    entry = Entry("k", storage_codec.pack(PODS, pod()), 1, 1)
    first = selection.attributes(PODS, entry)
    entry.value = msgspec.json.encode({})
    assert selection.attributes(PODS, entry) is first
