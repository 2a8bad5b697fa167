# SPDX-License-Identifier: Apache-2.0
"""Pods like those of large clusters, for measurements of caches.

A pod has about 6 KB: two containers with probes, environment and mounts, volumes,
tolerations, five conditions, and managed fields. The hundred pods of an Indexed Job
differ only in the fields that differ in a real cluster.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from refloat.api import times
from refloat.api.meta import Object
from refloat.base.rand import Rand

PODS_PER_JOB = 100
NODES = 500
NAMESPACES = 20

SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
"""The fields of metadata that the server sets."""

_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

_CONTAINERS = ("main", "metrics")

# By manager; no controller reads managed fields.
_CONTAINER_FIELDS: Object = {
    f"f:{name}": {".": {}} for name in ("env", "image", "name", "resources")
}
_SPEC_FIELDS = {f'k:{{"name":"{name}"}}': _CONTAINER_FIELDS for name in _CONTAINERS}
_STATUS = ("podIP", "podIPs", "hostIP", "phase", "startTime", "containerStatuses", "conditions")
_MANAGED_FIELDS: dict[str, Object] = {
    "kube-controller-manager": {
        "f:metadata": {"f:labels": {".": {}}},
        "f:spec": {"f:containers": _SPEC_FIELDS},
    },
    "kubelet": {"f:status": {f"f:{name}": {} for name in _STATUS}},
}


class PodMaker:
    """Makes pods in order; the same seed gives the same pods."""

    def __init__(self, seed: int = 1) -> None:
        self._rand = Rand(seed)
        self._job_uid = ""

    def pod(self, number: int) -> Object:
        """The pod of this number; call in order."""
        job, index = divmod(number, PODS_PER_JOB)
        if index == 0 or not self._job_uid:
            self._job_uid = self._rand.uid()
        node = f"node-{self._rand.below(NODES):04d}.example.internal"
        created = _START + timedelta(seconds=number // 20)
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": self._metadata(job, index, number, times.format_time(created)),
            "spec": _spec(node, job, self._rand.suffix()),
            "status": self._status(created),
        }

    def _metadata(self, job: int, index: int, number: int, created: str) -> Object:
        name = f"training-run-{job:04d}"
        marks = {"batch.kubernetes.io/job-completion-index": str(index)}
        return {
            "name": f"{name}-{index}-{self._rand.suffix()}",
            "generateName": f"{name}-{index}-",
            "namespace": f"team-{job % NAMESPACES:02d}",
            "uid": self._rand.uid(),
            "resourceVersion": str(1_000_000 + 7 * number),
            "generation": 1,
            "creationTimestamp": created,
            "labels": {
                "app.kubernetes.io/name": "training",
                "batch.kubernetes.io/controller-uid": self._job_uid,
                **marks,
                "batch.kubernetes.io/job-name": name,
                "controller-uid": self._job_uid,
                "job-name": name,
            },
            "annotations": {
                **marks,
                "batch.kubernetes.io/job-index-failure-count": "0",
                "example.com/submitted-by": "somebody@example.com",
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": name,
                    "uid": self._job_uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": created,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
                for manager, fields in _MANAGED_FIELDS.items()
            ],
        }

    def _status(self, created: datetime) -> Object:
        started = created + timedelta(seconds=1 + self._rand.below(5))
        ready = started + timedelta(seconds=1 + self._rand.below(30))
        address = f"10.{self._rand.below(256)}.{self._rand.below(256)}.{self._rand.below(256)}"
        digests = {name: f"{self._rand.below(1 << 62):064x}" for name in _CONTAINERS}
        stamps = {
            "PodReadyToStartContainers": started,
            "Initialized": started,
            "Ready": ready,
            "ContainersReady": ready,
            "PodScheduled": created,
        }
        return {
            "phase": "Running",
            "conditions": [_condition(kind, when) for kind, when in stamps.items()],
            "hostIP": "10.0.0.7",
            "hostIPs": [{"ip": "10.0.0.7"}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": times.format_time(created),
            "containerStatuses": [
                {
                    "name": name,
                    "state": {"running": {"startedAt": times.format_time(ready)}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": f"images.example.com/training/{name}:v1.2.3",
                    "imageID": f"images.example.com/training/{name}@sha256:{digest}",
                    "containerID": f"containerd://{digest}",
                    "started": True,
                }
                for name, digest in digests.items()
            ],
            "qosClass": "Burstable",
        }


def _condition(kind: str, when: datetime) -> Object:
    return {
        "type": kind,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": times.format_time(when),
        "observedGeneration": 1,
    }


def _spec(node: str, job: int, suffix: str) -> Object:
    token = f"kube-api-access-{suffix}"
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources: list[Any] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": root},
    ]
    tolerations = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for condition in ("not-ready", "unreachable")
    ]
    return {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{job}"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": token, "projected": {"defaultMode": 420, "sources": sources}},
        ],
        "containers": [_container(name, job, token) for name in _CONTAINERS],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "nodeSelector": {"pool": "batch"},
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": node,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": tolerations,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _container(name: str, job: int, token: str) -> Object:
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    index = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    return {
        "name": name,
        "image": f"images.example.com/training/{name}:v1.2.3",
        "command": ["/bin/sh", "-c", "exec python -m training --data /data --shard $(INDEX)"],
        "env": [
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "DATA", "value": "/data"},
            {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": index}},
            },
        ],
        "resources": {
            "limits": {"memory": "4Gi"},
            "requests": {"cpu": f"{500 + job}m", "memory": "2Gi"},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "scratch", "mountPath": "/scratch"},
            {
                "name": token,
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "readinessProbe": probe,
        "livenessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
