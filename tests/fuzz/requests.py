# SPDX-License-Identifier: Apache-2.0
"""Requests that are HTTP, with anything in their addresses, headers and bodies."""

import json
from random import Random
from typing import Any
from urllib.parse import quote

import yaml

from tests import builders
from tests.e2e import objects
from tests.fuzz import values

NAMESPACE = "fuzz"

# Few names, so that requests meet each other's objects and nothing piles up.
NAMES = ("a", "b", "c")

_META: dict[str, Any] = {"metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"k": "v"}}}


def _kind(api_version: str, kind: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, **_META, **rest}


_CLAIM_SPEC = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}

# By the path of their collection.
OBJECTS: dict[str, dict[str, Any]] = {
    f"/api/v1/namespaces/{NAMESPACE}/pods": builders.pod("a", node="n", labels={"x": "y"}),
    f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs": builders.job(
        "a",
        spec={
            "backoffLimit": 3,
            "completions": 3,
            "completionMode": "Indexed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": [42]},
                    }
                ]
            },
        },
    ),
    f"/api/v1/namespaces/{NAMESPACE}/configmaps": builders.config_map("a", data={"k": "v"}),
    f"/api/v1/namespaces/{NAMESPACE}/secrets": _kind("v1", "Secret", data={"k": "dg=="}),
    f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts": _kind("v1", "ServiceAccount"),
    f"/api/v1/namespaces/{NAMESPACE}/services": _kind(
        "v1", "Service", spec={"ports": [{"port": 80}], "selector": {"x": "y"}}
    ),
    f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims": _kind(
        "v1", "PersistentVolumeClaim", spec=_CLAIM_SPEC
    ),
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases": _kind(
        "coordination.k8s.io/v1", "Lease", spec={"leaseDurationSeconds": 10}
    ),
    f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets": objects.budget(
        "a", {"x": "y"}, min_available=1
    ),
    f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events": _kind(
        "events.k8s.io/v1",
        "Event",
        eventTime="2026-01-02T03:04:05.000000Z",
        reportingController="x/y",
        reportingInstance="z",
        action="Test",
        reason="Because",
        type="Normal",
        regarding={"kind": "Pod", "namespace": NAMESPACE, "name": "a"},
    ),
    f"/api/v1/namespaces/{NAMESPACE}/events": _kind(
        "v1",
        "Event",
        involvedObject={"kind": "Pod", "namespace": NAMESPACE, "name": "a"},
        reason="Because",
    ),
    "/api/v1/nodes": builders.node("a", taints=[{"key": "k", "effect": "NoExecute"}]),
    "/api/v1/persistentvolumes": _kind(
        "v1",
        "PersistentVolume",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/x"},
        },
    ),
    "/apis/scheduling.k8s.io/v1/priorityclasses": _kind(
        "scheduling.k8s.io/v1", "PriorityClass", value=1
    ),
    "/apis/storage.k8s.io/v1/volumeattachments": _kind(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        spec={"attacher": "x", "nodeName": "n", "source": {"persistentVolumeName": "p"}},
    ),
}

_OF_PODS = ("/status", "/eviction", "/binding", "/ephemeralcontainers", "/resize", "/log", "/exec")

_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)

_MEDIA = (
    "application/json",
    "application/json",
    "application/json; charset=utf-8",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "*/*",
    "",
    ";;;",
    "application/json, application/yaml",
)

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_ACCEPTS = (
    "application/json",
    "application/json",
    "*/*",
    "application/yaml",
    _TABLE,
    f"{_TABLE}, application/json",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Nothing;v=v9;g=x",
    "text/html",
    ";q=,,;=",
    "",
)

_SELECTORS = (
    "x=y",
    "x in (y,z)",
    "x notin (",
    "!x",
    "x=y,,",
    "=",
    "x==y=z",
    "metadata.name=a",
    "metadata.name!=a,metadata.namespace=fuzz",
    "spec.nodeName=n",
    "status.phase=",
    "nothing=1",
    "x>1",
    "x<y",
    "((((",
    "\\",
    "x=\\",
    "a" * 70 + "=b",
)

_PARAMETERS = (
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "watch",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "propagationPolicy",
    "orphanDependents",
    "pretty",
    "includeObject",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
)


def request(random: Random, token: str) -> bytes:
    """One request, as bytes."""
    act = random.choice((_write, _write, _write, _patch, _patch, _read, _read, _delete, _odd))
    method, path, headers, body = act(random)
    query = _query(random, path)
    headers = {**_headers(random, token), **headers}
    if body or method in ("POST", "PUT", "PATCH"):
        headers["Content-Length"] = str(len(body))
    lines = [f"{method} {quote(path, safe='/%')}{query} HTTP/1.1", "Host: fuzz"]
    lines += [f"{name}: {text}" for name, text in headers.items()]
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body


def _name(random: Random) -> str:
    return random.choice(NAMES) if random.random() < 0.85 else random.choice(values.TEXTS)


def _object(random: Random) -> tuple[str, str, dict[str, Any]]:
    """A collection's path, a name, and an object for them."""
    path = random.choice(list(OBJECTS))
    name = _name(random)
    obj = {**OBJECTS[path], "metadata": {**OBJECTS[path]["metadata"], "name": name}}
    return path, name, values.spoiled(random, obj)


def _write(random: Random) -> tuple[str, str, dict[str, str], bytes]:
    path, name, obj = _object(random)
    media = "application/json" if random.random() < 0.7 else random.choice(_MEDIA)
    if media == "application/yaml" and random.random() < 0.7:
        body = _yaml(random, obj)
    else:
        body = values.body(random, obj)
    headers = {"Content-Type": media}
    if random.random() < 0.6:
        return "POST", path, headers, body
    where = f"{path}/{name}{_subresource(random, path)}"
    if random.random() < 0.1:
        return "POST", where, headers, body
    return "PUT", where, headers, body


def _subresource(random: Random, path: str) -> str:
    if random.random() < 0.7:
        return ""
    return random.choice(_OF_PODS) if path.endswith("/pods") else "/status"


def _yaml(random: Random, obj: Any) -> bytes:
    raw = yaml.safe_dump(json.loads(json.dumps(obj)), allow_unicode=True).encode()
    odd = (
        b"",
        b"---\n",
        b"&a [*a]\n",
        b"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n",
        b"? {}\n: 1\n",
        b"\t- a\n",
        b"!!python/object:os.system x\n",
        b"<<: {a: 1}\n",
        b"%YAML 9.9\n---\n",
    )
    return random.choice(odd) + raw if random.random() < 0.5 else raw


def _patch(random: Random) -> tuple[str, str, dict[str, str], bytes]:
    path, name, obj = _object(random)
    media = random.choice(_PATCHES) if random.random() < 0.95 else random.choice(_MEDIA)
    patch = _operations(random, obj) if "json-patch" in media else _directives(random, obj)
    where = f"{path}/{name}{_subresource(random, path)}"
    return "PATCH", where, {"Content-Type": media}, values.body(random, patch)


def _operations(random: Random, obj: dict[str, Any]) -> Any:
    paths = ("", "/", "/metadata", "/metadata/labels/x", "/spec", "/spec/-", "/metadata/name")
    verbs = ("add", "remove", "replace", "move", "copy", "test", "nothing", "")
    operations: list[Any] = [
        {
            "op": random.choice(verbs),
            "path": random.choice((*paths, *values.TEXTS)),
            "from": random.choice(paths),
            "value": values.value(random),
        }
        for _ in range(random.choice((0, 1, 2, 5, 50)))
    ]
    if random.random() < 0.02:
        operations = [{"op": "add", "path": "/metadata/labels/x", "value": "y"}] * 10_001
    return values.spoiled(random, operations)


def _directives(random: Random, obj: dict[str, Any]) -> Any:
    """A merge patch, at times with the directives of a strategic one."""
    names = ("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/x")
    if random.random() < 0.4:
        spot = obj.get("spec") if isinstance(obj.get("spec"), dict) else obj
        assert isinstance(spot, dict)
        spot[random.choice(names)] = random.choice(("delete", "replace", "merge", [], ["a"], 1))
    return obj


def _read(random: Random) -> tuple[str, str, dict[str, str], bytes]:
    path = random.choice(list(OBJECTS))
    if random.random() < 0.4:
        return "GET", f"{path}/{_name(random)}{_subresource(random, path)}", {}, b""
    if random.random() < 0.2:
        path = path.replace("/v1/", "/v1/watch/", 1)
    return "GET", path, {}, b""


def _delete(random: Random) -> tuple[str, str, dict[str, str], bytes]:
    path = random.choice(list(OBJECTS))
    wish = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": random.choice(values.NUMBERS),
        "propagationPolicy": random.choice(("Foreground", "Orphan", "Background", "x")),
        "preconditions": {"uid": random.choice(values.TEXTS)},
    }
    body = values.body(random, values.spoiled(random, wish)) if random.random() < 0.5 else b""
    name = f"/{_name(random)}" if random.random() < 0.9 else ""
    return "DELETE", path + name, {"Content-Type": random.choice(_MEDIA)}, body


def _odd(random: Random) -> tuple[str, str, dict[str, str], bytes]:
    paths = [*OBJECTS, "/api", "/apis", "/apis/batch", "/version", "/openapi/v3", "/metrics", "/"]
    parts = random.choice(paths).split("/")
    for _ in range(random.randrange(3)):
        parts.insert(random.randrange(1, len(parts) + 1), random.choice(values.TEXTS))
    method = random.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"))
    path = "/".join(parts)
    return method, path if path.startswith("/") else "/" + path, {}, b""


def _query(random: Random, path: str) -> str:
    if random.random() < 0.4:
        # A watch without an end would be waited for.
        return "?timeoutSeconds=1" if "/watch" in path else ""
    pairs = [_parameter(random) for _ in range(random.randrange(1, 4))]
    if "/watch" in path or any(pair.startswith("watch") for pair in pairs):
        pairs.insert(0, "timeoutSeconds=1")
    if random.random() < 0.05:
        pairs.append(random.choice(("%zz", "=", "&&", "a;b", "\u00e4=1", "limit=%", "+")))
    return "?" + "&".join(pairs)


def _parameter(random: Random) -> str:
    name = random.choice(_PARAMETERS)
    if name.endswith("Selector") and random.random() < 0.7:
        text = random.choice(_SELECTORS)
    elif random.random() < 0.5:
        text = random.choice(("true", "false", "1", "0", "All", "Strict", "Exact", "10", "-1"))
    else:
        text = random.choice(values.TEXTS)
    return f"{name}={quote(text, safe='')}"


def _headers(random: Random, token: str) -> dict[str, str]:
    accept = _ACCEPTS[0] if random.random() < 0.8 else random.choice(_ACCEPTS)
    headers = {"Authorization": f"Bearer {token}", "Accept": accept}
    if random.random() < 0.05:
        headers["Authorization"] = random.choice(
            ("Bearer", "Bearer  x", "Basic eDp5", "bearer x y", "Bearer \u00e4", ",", "x" * 3000)
        )
    if random.random() < 0.05:
        name = random.choice(
            ("User-Agent", "Impersonate-User", "Impersonate-Group", "Audit-ID", "X-Forwarded-For")
        )
        headers[name] = _header_text(random)
    if random.random() < 0.03:
        headers |= {"Connection": "Upgrade", "Upgrade": random.choice(("websocket", "h2c", "x"))}
    return headers


def _header_text(random: Random) -> str:
    text = random.choice(values.TEXTS)
    return "".join(char for char in text if char.isprintable() or char == " ")
