# SPDX-License-Identifier: Apache-2.0
"""Objects of every kind that a server accepts, for the generators to start from."""

from typing import Any

Object = dict[str, Any]

CONTAINER: Object = {"name": "c", "image": "i:1"}
TEMPLATE: Object = {
    "metadata": {"labels": {"q": "r"}},
    "spec": {"restartPolicy": "Never", "containers": [CONTAINER]},
}
TIME = "2019-01-01T00:00:00Z"
EXACT = "2019-01-01T00:00:00.123456Z"
SERIES: Object = {"count": 3, "lastObservedTime": "2019-01-01T00:00:00.5Z"}
SELECTED: Object = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}]
}
AFFINITY: Object = {"requiredDuringSchedulingIgnoredDuringExecution": SELECTED}


def _secret(kind: str, **data: str) -> Object:
    return {"type": kind, "data": data}


_SECRETS: list[Object] = [
    {"data": {"a": "Yg=="}},
    {"stringData": {"a": "b"}, "type": "Opaque"},
    {"immutable": True},
    _secret("kubernetes.io/tls", **{"tls.crt": "", "tls.key": ""}),
    _secret("kubernetes.io/basic-auth", username="Yg=="),
    _secret("kubernetes.io/dockerconfigjson", **{".dockerconfigjson": "e30="}),
    _secret("kubernetes.io/ssh-auth", **{"ssh-privatekey": "e30="}),
]

_RICH_POD = {
    "metadata": {
        "labels": {"app": "x"},
        "finalizers": ["a.b/c"],
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        ],
    },
    "spec": {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 5,
        "nodeName": "n1",
        "activeDeadlineSeconds": 10,
        "tolerations": [
            {
                "key": "k",
                "operator": "Equal",
                "value": "v",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            }
        ],
        "initContainers": [{"name": "i", "image": "x:1"}],
        "containers": [
            {
                **CONTAINER,
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "ports": [{"containerPort": 80, "name": "http"}],
                "resources": {
                    "limits": {"cpu": "1", "memory": "1Gi"},
                    "requests": {"cpu": "500m"},
                },
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
            },
            {"name": "d", "image": "x"},
        ],
        "volumes": [
            {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "s", "secret": {"secretName": "s"}},
        ],
    },
}

_GATED_POD = {
    "spec": {
        "schedulingGates": [{"name": "a/b"}, {"name": "c/d"}],
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": AFFINITY},
        "containers": [CONTAINER],
        "priorityClassName": "system-node-critical",
    }
}

_RICH_JOB = {
    "spec": {
        "parallelism": 2,
        "completions": 3,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 1,
        "maxFailedIndexes": 1,
        "activeDeadlineSeconds": 5,
        "ttlSecondsAfterFinished": 3,
        "suspend": True,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "c", "operator": "In", "values": [1, 2]},
                },
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
        "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
        "template": TEMPLATE,
    }
}

_NODES: list[Object] = [
    {},
    {
        "spec": {
            "taints": [{"key": "a", "effect": "NoExecute"}],
            "providerID": "x://y",
            "podCIDR": "10.0.0.0/24",
            "podCIDRs": ["10.0.0.0/24"],
            "unschedulable": True,
        }
    },
    {
        "status": {
            "capacity": {"cpu": "4", "memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "h"}],
        }
    },
]

_VOLUMES: list[Object] = [
    {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/a"},
        }
    },
    {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "s",
            "csi": {"driver": "d.e", "volumeHandle": "h"},
            "claimRef": {"namespace": "x", "name": "y"},
            "nodeAffinity": {"required": SELECTED},
        }
    },
]

_CLAIMS: list[Object] = [
    {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    {
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": "v",
            "volumeMode": "Block",
            "selector": {"matchLabels": {"a": "b"}},
            "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
        }
    },
]

_ATTACHMENT = {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
_ATTACHED = {
    "attached": True,
    "attachmentMetadata": {"a": "b"},
    "attachError": {"message": "m", "time": TIME},
}

_BUDGETS: list[Object] = [
    {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}},
    {
        "spec": {
            "maxUnavailable": "50%",
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {
                "matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]
            },
        }
    },
    {"spec": {"selector": {}}},
]

_LEASES: list[Object] = [
    {
        "spec": {
            "holderIdentity": "x",
            "leaseDurationSeconds": 40,
            "renewTime": EXACT,
            "acquireTime": "2019-01-01T00:00:00.000000Z",
            "leaseTransitions": 1,
        }
    },
    {},
    {"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "y"}},
]


def _core_events(namespace: str) -> list[Object]:
    about = {"kind": "Pod", "namespace": namespace, "name": "a"}
    return [
        {
            "involvedObject": {**about, "apiVersion": "v1"},
            "reason": "R",
            "message": "m",
            "type": "Normal",
            "count": 1,
            "source": {"component": "x", "host": "h"},
            "firstTimestamp": TIME,
            "lastTimestamp": TIME,
        },
        {
            "involvedObject": about,
            "reason": "R",
            "eventTime": EXACT,
            "action": "A",
            "type": "Warning",
            "reportingComponent": "x.y/z",
            "reportingInstance": "i",
            "series": SERIES,
            "related": {"kind": "Node", "name": "n"},
        },
    ]


def _new_events(namespace: str) -> list[Object]:
    plain = {
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "a"},
        "reason": "R",
        "note": "n",
        "eventTime": EXACT,
        "action": "A",
        "type": "Warning",
        "reportingController": "x.y/z",
        "reportingInstance": "i",
    }
    return [plain, {**plain, "series": SERIES}]


_BASES: dict[str, list[Object]] = {
    "configmaps": [
        {"data": {"a": "b"}},
        {"data": {"a": "b"}, "binaryData": {"x": "Yg=="}},
        {"immutable": True, "data": {"k": "v"}},
        {},
    ],
    "secrets": _SECRETS,
    "namespaces": [{}, {"metadata": {"labels": {"a": "b"}}}, {"spec": {"finalizers": ["a.b/c"]}}],
    "nodes": _NODES,
    "persistentvolumeclaims": _CLAIMS,
    "persistentvolumes": _VOLUMES,
    "pods": [
        {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [CONTAINER]}},
        {"spec": {"nodeName": "n1", "containers": [CONTAINER]}},
        _RICH_POD,
        _GATED_POD,
    ],
    "serviceaccounts": [
        {},
        {
            "secrets": [{"name": "x"}],
            "imagePullSecrets": [{"name": "y"}],
            "automountServiceAccountToken": False,
        },
    ],
    "services": [
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}},
        {"spec": {"type": "ExternalName", "externalName": "a.b"}},
    ],
    "jobs": [
        {"spec": {"template": TEMPLATE}},
        _RICH_JOB,
        {
            "metadata": {"finalizers": ["a.b/c"]},
            "spec": {
                "managedBy": "x.y/z",
                "podReplacementPolicy": "Failed",
                "backoffLimit": 0,
                "template": TEMPLATE,
            },
        },
        {
            "spec": {
                "suspend": True,
                "template": TEMPLATE,
                "manualSelector": True,
                "selector": {"matchLabels": {"q": "r"}},
            }
        },
    ],
    "leases": _LEASES,
    "poddisruptionbudgets": _BUDGETS,
    "priorityclasses": [
        {"value": 5},
        {"value": 100, "preemptionPolicy": "Never", "description": "d"},
    ],
    "volumeattachments": [{"spec": _ATTACHMENT}, {"spec": _ATTACHMENT, "status": _ATTACHED}],
}


def bases(group: str, plural: str, namespace: str) -> list[Object]:
    """Valid objects of a kind, without kind and name."""
    if plural == "events":
        return _new_events(namespace) if group else _core_events(namespace)
    return _BASES[plural]
