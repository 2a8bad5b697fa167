# SPDX-License-Identifier: Apache-2.0
"""The rows of all kinds but pods: cells that a Kubernetes 1.36 API server gives."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver.tables import render
from tests.cases import cases

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HOUR_AGO = "2026-01-01T11:00:00Z"

JOBS = kinds.of("jobs", "batch")
NODES = kinds.of("nodes")
SERVICES = kinds.of("services")
CORE_EVENTS = kinds.of("events")
EVENTS = kinds.of("events", "events.k8s.io")


def obj(deleted: bool = False, **fields: Any) -> Object:
    """An object named `x` that is one hour old."""
    metadata = {"name": "x", "creationTimestamp": HOUR_AGO, **fields.pop("metadata", {})}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T11:59:00Z"
    return {"metadata": metadata, **fields}


def job(*conditions: str, deleted: bool = False, status: Any = None, **spec: Any) -> Object:
    entries = [{"type": each, "status": "True"} for each in conditions]
    return obj(deleted, spec=spec, status={"conditions": entries, **(status or {})})


@cases(
    "subject want",
    {
        "nothing said": (job(), "Running"),
        "complete": (job("SuccessCriteriaMet", "Complete"), "Complete"),
        "failed": (job("FailureTarget", "Failed"), "Failed"),
        "an end outlasts a deletion": (job("Failed", deleted=True), "Failed"),
        "deleted": (job("Suspended", deleted=True), "Terminating"),
        "suspended": (job("Suspended"), "Suspended"),
        "about to fail": (job("FailureTarget"), "FailureTarget"),
        "about to complete": (job("SuccessCriteriaMet"), "SuccessCriteriaMet"),
    },
)
def test_a_jobs_conditions_name_its_state(subject: Object, want: str) -> None:
    assert render.row(JOBS, subject, NOW)[1] == want


def test_a_condition_that_no_longer_holds_does_not_name_a_jobs_state() -> None:
    resumed = [{"type": "Suspended", "status": "False"}]
    assert render.row(JOBS, job(status={"conditions": resumed}), NOW)[1] == "Running"


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        (job(completions=3), "0/3"),
        (job(completions=3, status={"succeeded": 2}), "2/3"),
        (job(completions=0), "0/0"),
        (job(parallelism=3), "0/1 of 3"),
        (job(parallelism=1, status={"succeeded": 1}), "1/1"),
        (job(parallelism=0), "0/1"),
    ],
)
def test_completions_are_of_those_wanted(subject: Object, want: str) -> None:
    assert render.row(JOBS, subject, NOW)[2] == want


@cases(
    "status want",
    {
        "not started": ({}, ""),
        "until now": ({"startTime": "2026-01-01T11:59:00Z"}, "60s"),
        "until its completion": (
            {"startTime": HOUR_AGO, "completionTime": "2026-01-01T11:02:01Z"},
            "2m1s",
        ),
    },
)
def test_a_job_shows_how_long_it_took(status: Any, want: str) -> None:
    assert render.row(JOBS, job(status=status), NOW)[3] == want


def test_a_job_shows_what_it_runs() -> None:
    containers = [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}]
    subject = job(
        template={"spec": {"containers": containers}}, selector={"matchLabels": {"k": "v"}}
    )
    assert render.row(JOBS, subject, NOW)[4:] == ["60m", "a,b", "i:1,j", "k=v"]


def node(*ready: str, **fields: Any) -> Object:
    entries = [{"type": "Ready", "status": each} for each in ready]
    return obj(status={"conditions": entries}, **fields)


@cases(
    "subject want",
    {
        "no condition": (node(), "Unknown"),
        "ready": (node("True"), "Ready"),
        "not ready": (node("False"), "NotReady"),
        "silent": (node("Unknown"), "NotReady"),
        "the last condition counts": (node("False", "True"), "Ready"),
        "cordoned": (node("True", spec={"unschedulable": True}), "Ready,SchedulingDisabled"),
        "new and cordoned": (node(spec={"unschedulable": True}), "Unknown,SchedulingDisabled"),
    },
)
def test_a_nodes_state(subject: Object, want: str) -> None:
    assert render.row(NODES, subject, NOW)[1] == want


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({}, "<none>"),
        ({"node-role.kubernetes.io/worker": ""}, "worker"),
        ({"node-role.kubernetes.io/b": "", "node-role.kubernetes.io/a": "x"}, "a,b"),
        ({"kubernetes.io/role": "b", "node-role.kubernetes.io/b": ""}, "b"),
        ({"kubernetes.io/role": ""}, "<none>"),
        ({"node-role.kubernetes.io": "z", "kubernetes.io/rolex": "q"}, "<none>"),
    ],
)
def test_a_nodes_labels_give_its_roles(labels: dict[str, str], want: str) -> None:
    assert render.row(NODES, obj(metadata={"labels": labels}), NOW)[2] == want


def test_a_node_shows_what_it_reported() -> None:
    info = {
        "kubeletVersion": "v1",
        "osImage": "Debian",
        "kernelVersion": "6.1",
        "architecture": "amd64",
        "containerRuntimeVersion": "process://1",
    }
    addresses = [
        {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "InternalIP", "address": "10.0.0.2"},
    ]
    subject = obj(status={"nodeInfo": info, "addresses": addresses})
    want = ["60m", "v1", "10.0.0.1", "<none>", "Debian", "6.1 (amd64)", "process://1"]
    assert render.row(NODES, subject, NOW)[3:] == want


def test_a_node_that_reported_nothing_is_unknown() -> None:
    want = ["", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]
    assert render.row(NODES, obj(), NOW)[4:] == want


OLD_EVENT: Object = {
    "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
    "type": "Warning",
    "reason": "Killing",
    "message": "\n gone \u3000",
    "source": {"component": "kubelet", "host": "n1"},
    "firstTimestamp": "2026-01-01T11:00:00Z",
    "lastTimestamp": "2026-01-01T11:59:00Z",
    "count": 4,
}

NEW_EVENT: Object = {
    "regarding": {"kind": "Job"},
    "type": "Normal",
    "reason": "Done",
    "note": "done",
    "reportingController": "x/c",
    "reportingInstance": "c-0",
    "eventTime": "2026-01-01T11:00:00.123456Z",
}


@cases(
    "resource subject want",
    {
        "the core kind": (
            CORE_EVENTS,
            obj(**OLD_EVENT),
            [
                *("60s", "Warning", "Killing", "pod/p", "spec.containers{c}", "kubelet, n1"),
                *("gone", "60m", 4, "x"),
            ],
        ),
        "the newer kind, once": (
            EVENTS,
            obj(**NEW_EVENT),
            ["59m", "Normal", "Done", "job", "", "x/c, c-0", "done", "59m", 1, "x"],
        ),
        "the newer kind, in a series": (
            EVENTS,
            obj(
                **NEW_EVENT, series={"count": 7, "lastObservedTime": "2026-01-01T11:58:59.500000Z"}
            ),
            ["60s", "Normal", "Done", "job", "", "x/c, c-0", "done", "59m", 7, "x"],
        ),
        "seen once, by a component without a host": (
            CORE_EVENTS,
            obj(message="\x1cm", firstTimestamp=HOUR_AGO, reportingComponent="c"),
            ["60m", "", "", "", "", "c", "\x1cm", "60m", 1, "x"],
        ),
        "without any time": (
            CORE_EVENTS,
            obj(eventTime=None, firstTimestamp=None, lastTimestamp=None),
            ["<unknown>", "", "", "", "", "", "", "<unknown>", 1, "x"],
        ),
        "an old event read as the newer kind": (
            EVENTS,
            obj(
                note="n",
                deprecatedSource={"host": "h"},
                deprecatedFirstTimestamp=HOUR_AGO,
                deprecatedLastTimestamp="2026-01-01T11:59:00Z",
                deprecatedCount=2,
            ),
            ["60s", "", "", "", "", ", h", "n", "60m", 2, "x"],
        ),
    },
)
def test_events(resource: kinds.Resource, subject: Object, want: list[Any]) -> None:
    assert render.row(resource, subject, NOW) == want


def service(kind: str = "ClusterIP", ingress: Any = (), **spec: Any) -> Object:
    status = {"loadBalancer": {"ingress": list(ingress)}}
    return obj(spec={"type": kind, **spec}, status=status)


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        (service(), "<none>"),
        (service(externalIPs=["9.9.9.9", "8.8.8.8"]), "9.9.9.9,8.8.8.8"),
        (service("NodePort"), "<none>"),
        (service("LoadBalancer"), "<pending>"),
        (
            service(
                "LoadBalancer",
                [{"ip": "3.3.3.3"}, {"hostname": "a"}, {"ip": "1.1.1.1"}, {"ip": "3.3.3.3"}],
                externalIPs=["2.2.2.2"],
            ),
            "1.1.1.1,3.3.3.3,a,2.2.2.2",
        ),
        (service("ExternalName", externalName="x.example"), "x.example"),
        (service(""), "<unknown>"),
    ],
)
def test_where_a_service_is_reached_from_outside(subject: Object, want: str) -> None:
    assert render.row(SERVICES, subject, NOW)[3] == want


def test_a_service_shows_address_ports_and_selector() -> None:
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "nodePort": 30053}]
    subject = service(clusterIPs=["10.0.0.9"], ports=ports, selector={"b": "2", "a": "1"})
    want = ["x", "ClusterIP", "10.0.0.9", "<none>", "80/TCP,53:30053/UDP", "60m", "a=1,b=2"]
    assert render.row(SERVICES, subject, NOW) == want


def test_a_service_without_ports_shows_none() -> None:
    assert render.row(SERVICES, service(), NOW)[4] == "<none>"


VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"],
    "persistentVolumeReclaimPolicy": "Retain",
    "claimRef": {"namespace": "a", "name": "b"},
    "storageClassName": "fast",
    "volumeMode": "Filesystem",
}

OLD_CLASS = {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}


@pytest.mark.parametrize(
    ("plural", "group", "subject", "want"),
    [
        ("configmaps", "", obj(), ["x", 0, "60m"]),
        ("configmaps", "", obj(data={"a": "", "b": ""}, binaryData={"c": ""}), ["x", 3, "60m"]),
        ("secrets", "", obj(type="Opaque", data={"a": ""}), ["x", "Opaque", 1, "60m"]),
        ("serviceaccounts", "", obj(), ["x", "60m"]),
        ("namespaces", "", obj(status={"phase": "Active"}), ["x", "Active", "60m"]),
        ("leases", "coordination.k8s.io", obj(spec={}), ["x", "", "60m"]),
        ("leases", "coordination.k8s.io", obj(spec={"holderIdentity": "me"}), ["x", "me", "60m"]),
        (
            "poddisruptionbudgets",
            "policy",
            obj(spec={"minAvailable": 0}, status={"disruptionsAllowed": 2}),
            ["x", "0", "N/A", 2, "60m"],
        ),
        (
            "poddisruptionbudgets",
            "policy",
            obj(spec={"maxUnavailable": "10%"}, status={}),
            ["x", "N/A", "10%", 0, "60m"],
        ),
        (
            "priorityclasses",
            "scheduling.k8s.io",
            obj(value=-5, globalDefault=True, preemptionPolicy="Never"),
            ["x", -5, True, "60m", "Never"],
        ),
        ("priorityclasses", "scheduling.k8s.io", obj(value=0), ["x", 0, False, "60m", ""]),
        (
            "persistentvolumes",
            "",
            obj(spec=VOLUME, status={"phase": "Failed", "reason": "Why"}),
            [
                *("x", "1Gi", "RWO,ROX,RWX,RWOP", "Retain", "Failed", "a/b", "fast", "<unset>"),
                *("Why", "60m", "Filesystem"),
            ],
        ),
        (
            "persistentvolumes",
            "",
            obj(deleted=True, spec={"storageClassName": "new"}, metadata=OLD_CLASS),
            ["x", "0", "", "", "Terminating", "", "old", "<unset>", "", "60m", "<unset>"],
        ),
        (
            "persistentvolumeclaims",
            "",
            obj(
                spec={"resources": {"requests": {"storage": "2Gi"}}, "volumeMode": "Block"},
                status={"phase": "Pending", "accessModes": ["ReadWriteOnce"]},
            ),
            ["x", "Pending", "", "", "", "", "<unset>", "60m", "Block"],
        ),
        (
            "persistentvolumeclaims",
            "",
            obj(
                spec={"volumeName": "v", "volumeAttributesClassName": "gold"},
                status={"phase": "Bound", "accessModes": ["ReadOnlyMany", "ReadWriteOnce"]},
            ),
            ["x", "Bound", "v", "0", "RWO,ROX", "", "gold", "60m", "<unset>"],
        ),
        (
            "volumeattachments",
            "storage.k8s.io",
            obj(
                spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
                status={"attached": True},
            ),
            ["x", "d", "v", "n", True, "60m"],
        ),
    ],
)
def test_the_other_kinds(plural: str, group: str, subject: Object, want: list[Any]) -> None:
    assert render.row(kinds.of(plural, group), subject, NOW) == want


BOOKMARKS: dict[str, list[Any]] = {
    "configmaps": ["", 0, "<unknown>"],
    "events": ["<unknown>", "", "", "", "", "", "", "<unknown>", 1, ""],
    "jobs": ["", "Running", "0/1", "", "<unknown>", "", "", "<none>"],
    "leases": ["", "", "<unknown>"],
    "namespaces": ["", "", "<unknown>"],
    "nodes": [
        *("", "Unknown", "<none>", "<unknown>", "", "<none>", "<none>"),
        *("<unknown>", "<unknown>", "<unknown>"),
    ],
    "persistentvolumeclaims": ["", "", "", "", "", "", "<unset>", "<unknown>", "<unset>"],
    "persistentvolumes": ["", "0", "", "", "", "", "", "<unset>", "", "<unknown>", "<unset>"],
    "poddisruptionbudgets": ["", "N/A", "N/A", 0, "<unknown>"],
    "pods": ["", "0/0", "", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"],
    "priorityclasses": ["", 0, False, "<unknown>", ""],
    "secrets": ["", "", 0, "<unknown>"],
    "serviceaccounts": ["", "<unknown>"],
    "services": ["", "", "<none>", "<unknown>", "<none>", "<unknown>", "<none>"],
    "volumeattachments": ["", "", "", "", False, "<unknown>"],
}


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda of: f"{of.group}/{of.plural}")
def test_a_bookmark_of_any_kind_has_a_row(resource: kinds.Resource) -> None:
    bookmark = {"kind": resource.kind, "metadata": {"resourceVersion": "7"}}
    assert render.row(resource, bookmark, NOW) == BOOKMARKS[resource.plural]
