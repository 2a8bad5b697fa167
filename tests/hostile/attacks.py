# SPDX-License-Identifier: Apache-2.0
"""The hostile requests: one small function for each way to make a server work too much."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from tests.hostile import bodies
from tests.hostile.client import AttackTarget, node

Send: TypeAlias = Callable[[AttackTarget], Awaitable[object]]

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

BODY_BYTES = 3 * 1024 * 1024
HEAD_BYTES = 900_000


# fmt: off


@dataclass(frozen=True)
class Attack:
    """Requests that go together."""

    name: str
    send: Send
    reads_all: bool = False  # the answer is everything that is stored, however large that is


def one(
    name: str,
    who: str,
    method: str,
    path: str,
    body: Callable[[], Any] | None = None,
    *,
    times: int = 1,
    reads_all: bool = False,
    stores: bool = False,
    **more: str,
) -> Attack:
    """The same request some times at once; a write is a dry run unless it `stores`.

    What is stored is memory that the server is meant to take.
    """
    if method in ("POST", "PATCH") and path != REVIEWS and not stores:
        path += ("&" if "?" in path else "?") + "dryRun=All"

    async def send(target: AttackTarget) -> None:
        raw = None if body is None else body()
        if raw is not None and not isinstance(raw, bytes):
            raw = msgspec.json.encode(raw)
        requests = (target.ask(who, method, path, raw, **more) for _ in range(times))
        await asyncio.gather(*requests)

    return Attack(f"{name} ({who})", send, reads_all)


async def prepare(target: AttackTarget) -> None:
    """Objects that the attacks are about."""
    for name, body in (
        ("wide", {"data": {f"k{number}": "v" for number in range(20_000)}}),
        ("large", {"data": {"k": "v" * 1_000_000}}),
        ("small", {}),
    ):
        code = await target.ask("admin", "POST", MAPS, {"metadata": {"name": name}, **body})
        assert code == 201, (name, code)
    for number in range(40):
        name = f"large-{number}"
        body = {"metadata": {"name": name}, "data": {"k": "v" * 900_000}}
        assert await target.ask("admin", "POST", MAPS, body) == 201
    code = await target.ask("admin", "POST", PODS, bodies.pod("many", env=8000, tolerations=4000))
    assert code == 201, code


# -- selectors and addresses ------------------------------------------------

LABELS = quote(",".join(f"!k{number}" for number in range(5000)))
VALUES = quote(f"a in ({','.join(f'v{number}' for number in range(60_000))})")
FIELDS = quote(",".join(f"metadata.name!=n{number}" for number in range(25_000)))
ONE_FIELD = "metadata.name=" + "x" * HEAD_BYTES
ESCAPES = "metadata.name=" + "%5C%5C" * (HEAD_BYTES // 6)
UNPRINTABLE = "%01" * (HEAD_BYTES // 3)

SELECTORS = [
    attack
    for who in ("admin", "readonly", "tenant", "anonymous", node(0))
    for attack in (
        one("4 x labelSelector of 5,000 terms", who, "GET", f"{PODS}?labelSelector={LABELS}", times=4),
        one("4 x fieldSelector of 25,000 terms", who, "GET", f"{PODS}?fieldSelector={FIELDS}", times=4),
    )
]

async def _many_targets(target: AttackTarget) -> None:
    """As many targets as libraries cache, all different."""
    for number in range(128):
        await target.ask("anonymous", "GET", f"/{number}/{'x' * HEAD_BYTES}")


ADDRESSES = [
    one("labelSelector with 60,000 values", "readonly", "GET", f"{PODS}?labelSelector={VALUES}"),
    one("watch with a labelSelector of 5,000 terms", "tenant", "GET", f"{PODS}?watch=1&timeoutSeconds=1&labelSelector={LABELS}"),
    one("fieldSelector of 900 KB", "readonly", "GET", f"{PODS}?fieldSelector={ONE_FIELD}"),
    one("fieldSelector of 150,000 escapes", "readonly", "GET", f"{PODS}?fieldSelector={ESCAPES}"),
    one("continue token of 900 KB", "readonly", "GET", f"{PODS}?limit=1&continue={'a' * HEAD_BYTES}"),
    one("450,000 parameters", "anonymous", "GET", "/healthz?" + "a&" * (HEAD_BYTES // 2)),
    Attack("128 targets of 900 KB (anonymous)", _many_targets),
    one("450,000 parts of a path", "anonymous", "GET", "/a" * (HEAD_BYTES // 2)),
    one("a name of 900 KB", "readonly", "GET", f"{MAPS}/{'x' * HEAD_BYTES}"),
    one("a name of 300,000 control characters", "readonly", "GET", f"{MAPS}/{UNPRINTABLE}"),
    one("fieldManager of 300,000 control characters", "admin", "POST", f"{MAPS}?fieldManager={UNPRINTABLE}", lambda: {"metadata": {"name": "x"}}),
    one("10,000 times dryRun", "admin", "POST", f"{MAPS}?{'dryRun=a&' * 9_999}", lambda: {"metadata": {"name": "x"}}),
    one("Accept of 110,000 clauses", "tenant", "POST", REVIEWS, lambda: {"spec": {}}, Accept="a/b;q=1," * 110_000),
    one("Content-Type of 80,000 parameters", "tenant", "POST", REVIEWS, lambda: {"spec": {}}, Content_Type="application/json" + "".join(f";a{number}=b" for number in range(80_000))),
    one("Authorization of 900 KB", "anonymous", "GET", "/version", Authorization="Bearer " + "x" * HEAD_BYTES),
    one("a header field of 900 KB", "anonymous", "GET", "/version", X_A="x" * HEAD_BYTES),
    one("900 KB to impersonate", "admin", "GET", "/version", Impersonate_User="a", Impersonate_Uid="\x7f" * HEAD_BYTES),
]

# -- reviews ----------------------------------------------------------------


def review(**attributes: Any) -> Any:
    return {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", **attributes}}}


REVIEWED = [
    one("review with 300,000 empty requirements", "tenant", "POST", REVIEWS, lambda: b'{"spec":{"resourceAttributes":{"labelSelector":{"requirements":[' + b",".join([b"{}"] * 300_000) + b"]}}}}"),
    one("review with 45,000 empty requirements", node(0), "POST", REVIEWS, lambda: b'{"spec":{"resourceAttributes":{"labelSelector":{"requirements":[' + b",".join([b"{}"] * 45_000) + b"]}}}}"),
    one("review with a rawSelector of 3 MB", "tenant", "POST", REVIEWS, lambda: review(labelSelector={"rawSelector": ",".join(f"!k{n}" for n in range(300_000))})),
    one("review with a raw fieldSelector of 3 MB", "readonly", "POST", REVIEWS, lambda: review(fieldSelector={"rawSelector": ",".join(f"k{n}=v" for n in range(250_000))})),
    one("review with a verb of 3 MB", "tenant", "POST", REVIEWS, lambda: review(verb="\x7f" * 2_900_000)),
    one("review with metadata of 45,000 labels", "tenant", "POST", REVIEWS, lambda: {**review(), "metadata": {"labels": {f"k{n}": "\x7f" * 10 for n in range(45_000)}}}),
]

# -- patches ----------------------------------------------------------------

MANY = f"{PODS}/many"
WIDE = f"{MAPS}/wide"


def deletions() -> Any:
    items = [{"$patch": "delete", "key": f"t{number}"} for number in range(4000)]
    return {"spec": {"tolerations": items}}


def order(count: int) -> Any:
    names = [{"name": f"E{number}"} for number in reversed(range(count))]
    return {"spec": {"$setElementOrder/containers": [{"name": "main"}], "containers": [{"name": "main", "$setElementOrder/env": names, "env": [{**each, "value": "x"} for each in names]}]}}


PATCHES = [
    one("strategic patch of 4,000 deletions", "admin", "PATCH", MANY, lambda: {"spec": {"containers": [{"name": "main", "env": [{"$patch": "delete", "name": f"E{n}"} for n in range(4000)]}]}}, Content_Type=STRATEGIC),
    one("strategic patch of 4,000 deletions of tolerations", "admin", "PATCH", MANY, deletions, Content_Type=STRATEGIC),
    one("strategic patch with the reverse order of 8,000", "admin", "PATCH", MANY, lambda: order(8000), Content_Type=STRATEGIC),
    one("strategic patch with 20,000 new finalizers", "admin", "PATCH", WIDE, lambda: {"metadata": {"finalizers": [f"a.b/f{n}" for n in range(20_000)]}}, Content_Type=STRATEGIC),
    one("strategic patch that deletes 20,000 finalizers", "admin", "PATCH", WIDE, lambda: {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"a.b/f{n}" for n in range(20_000)], "finalizers": [f"a.b/f{n}" for n in range(20_000)]}}, Content_Type=STRATEGIC),
    one("strategic patch that retains 20,000 keys", "admin", "PATCH", WIDE, lambda: {"data": {"$retainKeys": [f"x{n}" for n in range(20_000)], **{f"x{n}": "v" for n in range(20_000)}}}, Content_Type=STRATEGIC),
    one("JSON patch of 10,000 additions at the head", "admin", "PATCH", MANY, lambda: [{"op": "add", "path": "/spec/tolerations/0", "value": {"key": f"a{n}"}} for n in range(10_000)], Content_Type=JSON_PATCH),
    one("JSON patch of 10,000 copies in a wide object", "admin", "PATCH", WIDE, lambda: [{"op": "copy", "from": "/data/k1", "path": f"/data/c{n}"} for n in range(10_000)], Content_Type=JSON_PATCH),
    one("JSON patch of 30 copies of the object into itself", "admin", "PATCH", WIDE, lambda: [{"op": "copy", "from": "/data", "path": f"/data/c{n}"} for n in range(30)], Content_Type=JSON_PATCH),
    one("JSON patch of 10,000 tests", "admin", "PATCH", WIDE, lambda: [{"op": "test", "path": "/data", "value": {}}] * 10_000, Content_Type=JSON_PATCH),
    one("JSON patch of 100,000 operations", "admin", "PATCH", WIDE, lambda: [{"op": "add"}] * 100_000, Content_Type=JSON_PATCH),
    one("JSON patch of 10,000 moves", "admin", "PATCH", WIDE, lambda: [{"op": "move", "from": f"/data/{'k' if n % 2 == 0 else 'm'}1", "path": f"/data/{'m' if n % 2 == 0 else 'k'}1"} for n in range(10_000)], Content_Type=JSON_PATCH),
    one("merge patch of 45,000 keys", "admin", "PATCH", WIDE, lambda: {"data": {f"x{n}": "v" for n in range(45_000)}}, Content_Type=MERGE),
    one("merge patch with 45,000 wrong keys", "admin", "PATCH", WIDE, lambda: {"data": {f"?{n}": "v" for n in range(45_000)}}, Content_Type=MERGE),
    one("merge patch that is no object of its kind", "admin", "PATCH", WIDE, lambda: {"data": {"k": {"a": "\x7f" * 2_500_000}}}, Content_Type=MERGE),
    one("strategic patch that is no object of its kind", "admin", "PATCH", WIDE, lambda: {"data": {"k": 1, "b": "\x7f" * 2_500_000}}, Content_Type=STRATEGIC),
    one("patch without rights", "tenant", "PATCH", WIDE, deletions, Content_Type=STRATEGIC),
]

APPLIES = [
    one("apply of 40,000 keys", "admin", "PATCH", f"{MAPS}/applied?fieldManager=a", lambda: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {f"k{n}": "v" for n in range(40_000)}}, stores=True, Content_Type=APPLY),
    one("apply of 40,000 keys that another owns", "admin", "PATCH", f"{MAPS}/applied?fieldManager=b", lambda: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {f"k{n}": "w" for n in range(40_000)}}, stores=True, Content_Type=APPLY),
    one("apply that takes over 40,000 keys", "admin", "PATCH", f"{MAPS}/applied?fieldManager=b&force=true", lambda: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {f"k{n}": "w" for n in range(40_000)}}, stores=True, Content_Type=APPLY),
    one("apply of nothing where there were 40,000 keys", "admin", "PATCH", f"{MAPS}/applied?fieldManager=b", lambda: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}, stores=True, Content_Type=APPLY),
    one("apply of 9,000 environment variables", "admin", "PATCH", f"{PODS}/applied?fieldManager=a", lambda: {"apiVersion": "v1", "kind": "Pod", **bodies.pod("applied", env=9000)}, stores=True, Content_Type=APPLY),
    one("update with managedFields of 3 MB", "admin", "PATCH", f"{MAPS}/small", lambda: {"metadata": {"managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {f'k:{{"a":"{n}"}}': {} for n in range(45_000)}}}]}}, stores=True, Content_Type=MERGE),
    one("managedFields that are wide far below", "admin", "PATCH", f"{MAPS}/small?pretty=1", bodies.deep_fields, stores=True, Content_Type=MERGE),
    one("a get of them, indented", "readonly", "GET", f"{MAPS}/small?pretty=1"),
    one("an apply over them", "admin", "PATCH", f"{MAPS}/small?fieldManager=a", lambda: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}}, stores=True, Content_Type=APPLY),
]

# -- objects ----------------------------------------------------------------


def labelled(value: str, count: int = 1) -> Any:
    return {"metadata": {"name": "x", "labels": {f"k{number}": value for number in range(count)}}}


OBJECTS = [
    one("a map of 45,000 wrong keys", "admin", "POST", MAPS, lambda: {"metadata": {"name": "x"}, "data": {f"?{n}": "" for n in range(45_000)}}),
    one("a label of 2.9 MB of control characters", "admin", "POST", MAPS, lambda: labelled("\x7f" * 2_900_000)),
    one("45,000 wrong labels", "admin", "POST", MAPS, lambda: labelled("\x7f" * 20, 45_000)),
    one("9,000 owner references", "admin", "POST", MAPS, lambda: {"metadata": {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b", "uid": f"{n}"} for n in range(9_000)]}}),
    one("45,000 finalizers", "admin", "POST", MAPS, lambda: {"metadata": {"name": "x", "finalizers": [f"a.b/{n}" for n in range(45_000)]}}),
    one("a pod of 11,000 containers", "admin", "POST", PODS, lambda: bodies.pod("x", containers=11_000)),
    one("a pod of 45,000 empty containers", "admin", "POST", PODS, lambda: {"metadata": {"name": "x"}, "spec": {"containers": [{}] * 45_000}}),
    one("a pod of 20,000 ports", "admin", "POST", PODS, lambda: bodies.pod("x", ports=20_000)),
    one("a pod of 15,000 variables", "admin", "POST", PODS, lambda: bodies.pod("x", env=15_000)),
    one("a pod of 7,000 volumes and mounts", "admin", "POST", PODS, lambda: bodies.pod("x", volumes=7_000)),
    one("a pod of 11,000 tolerations", "admin", "POST", PODS, lambda: bodies.pod("x", tolerations=11_000)),
    one("a pod of 11,000 host aliases", "admin", "POST", PODS, lambda: bodies.pod("x", aliases=11_000)),
    one("a Job of 6,000 rules", "admin", "POST", JOBS, lambda: bodies.job("x", rules=6_000)),
    one("a Job of 45,000 exit codes", "admin", "POST", JOBS, lambda: bodies.job("x", codes=45_000)),
    one("a node of 15,000 taints", "admin", "POST", "/api/v1/nodes", lambda: {"metadata": {"name": "x"}, "spec": {"taints": [{"key": f"a{n}", "effect": "NoSchedule"} for n in range(15_000)]}}),
    one("node status of 15,000 images", node(1), "PATCH", f"/api/v1/nodes/{node(1)}/status", lambda: {"status": {"images": [{"names": ["a"]}] * 15_000}}, Content_Type=MERGE),
    one("a lease with a holder of 2.9 MB", node(1), "PATCH", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node(1)}", lambda: {"metadata": {"annotations": {"a": "x" * 2_900_000}}}, Content_Type=MERGE),
    one("quantities of a million digits", "admin", "POST", PODS, lambda: bodies.pod("x", cpu="1" * 1_000_000)),
    one("quantities with huge exponents", "admin", "POST", PODS, lambda: bodies.pod("x", cpu="1e999999999")),
    one("numbers of a million digits", "admin", "POST", JOBS, lambda: b'{"metadata":{"name":"x"},"spec":{"parallelism":' + b"1" * 2_900_000 + b"}}"),
    one("a body of 1,000,000 empty objects", "admin", "POST", MAPS, lambda: b'{"x":[' + b",".join([b"{}"] * 1_000_000) + b"]}"),
    one("a body of nested lists", "admin", "POST", MAPS, lambda: b"[" * 3_000_000),
    one("a body of nested objects", "admin", "POST", MAPS, lambda: b'{"a":' * 500_000),
    one("a body of 45,000 unknown fields", "admin", "POST", MAPS, lambda: {f"u{n}": 1 for n in range(45_000)}),
    one("a body that repeats keys", "admin", "POST", MAPS, lambda: b'{"metadata":{"name":"x"},"data":{' + b",".join([b'"a":"b"'] * 45_000) + b"}}"),
    one("a body of 3 MB of escapes", "admin", "POST", MAPS, lambda: b'{"metadata":{"name":"x"},"data":{"a":"' + b"\\u003a" * 480_000 + b'"}}'),
    one("binary data that is no base64", "admin", "POST", MAPS, lambda: {"metadata": {"name": "x"}, "binaryData": {"a": "A" * 2_900_001}}),
    one("a body without rights", "tenant", "POST", MAPS, lambda: b'{"x":[' + b",".join([b"{}"] * 1_000_000) + b"]}"),
    one("a body of an unknown version", "admin", "POST", MAPS, lambda: {"apiVersion": "foo/", "x": "\x01" * 480_000}),
    one("delete options of 3 MB", "admin", "DELETE", f"{MAPS}/none", lambda: {"dryRun": ["\x7f"] * 700_000}),
]

FORMATS = [
    one("YAML with nested aliases", "admin", "POST", MAPS, bodies.laughs, Content_Type=YAML),
    one("YAML of 900,000 values", "admin", "POST", MAPS, lambda: b"a: [" + b"1," * 900_000 + b"]", Content_Type=YAML),
    one("YAML of 45,000 values", "admin", "POST", MAPS, lambda: b"a: [" + b"1," * 45_000 + b"]", Content_Type=YAML),
    one("YAML of nested lists", "admin", "POST", MAPS, lambda: b"[" * 100_000, Content_Type=YAML),
    one("YAML with nested aliases, applied", "admin", "PATCH", f"{MAPS}/yaml?fieldManager=a", bodies.laughs, Content_Type=APPLY),
    one("YAML of one scalar of 3 MB", "admin", "POST", MAPS, lambda: b"a: " + b"1" * 2_900_000, Content_Type=YAML),
    one("protobuf of 380,000 labels", "admin", "POST", MAPS, bodies.protobuf, Content_Type=PROTOBUF),
    one("protobuf of zeros", "admin", "POST", MAPS, lambda: b"k8s\0" + b"\0" * 3_000_000, Content_Type=PROTOBUF),
    one("gzip", "admin", "POST", MAPS, bodies.gzipped, Content_Encoding="gzip"),
]

# -- answers ----------------------------------------------------------------

READS = [
    one("a wide object as YAML", "readonly", "GET", WIDE, Accept=YAML),
    one("a wide object, indented", "readonly", "GET", f"{WIDE}?pretty=1"),
    one("an object of 1 MB as YAML", "readonly", "GET", f"{MAPS}/large", Accept=YAML),
    one("a pod of 8,000 variables as a table", "readonly", "GET", MANY, Accept=TABLE),
    one("a pod of 8,000 variables as YAML", "readonly", "GET", MANY, Accept=YAML),
    one("a list of large objects", "readonly", "GET", MAPS, reads_all=True),
    one("a list of large objects as a table", "readonly", "GET", MAPS, Accept=TABLE),
    one("a list of large objects as YAML", "readonly", "GET", MAPS, Accept=YAML, reads_all=True),
    one("a list of large objects, indented", "readonly", "GET", f"{MAPS}?pretty=1", reads_all=True),
    one("4 lists of large objects, 5 at a time", "readonly", "GET", f"{MAPS}?limit=5", times=4),
    one("OpenAPI as YAML", "readonly", "GET", "/openapi/v3/api/v1", Accept=YAML),
    one("OpenAPI, indented", "readonly", "GET", "/openapi/v3/api/v1?pretty=1"),
    one("OpenAPI as protobuf", "readonly", "GET", "/openapi/v2", Accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
    one("20 x discovery", "readonly", "GET", "/apis", times=20),
    one("metrics", "readonly", "GET", "/metrics"),
]


async def _held(target: AttackTarget, send: Callable[[Any], object], count: int, seconds: float) -> None:
    """Connections that send something and then neither read nor send."""
    wires = await asyncio.gather(*(target.connect() for _ in range(count)))
    for wire in wires:
        wire.stop_reading()
        send(wire)
    await asyncio.sleep(seconds)
    for wire in wires:
        wire.close()


def unread(name: str, count: int, path: str, *, pipelined: int = 1, **more: str) -> Attack:
    """Clients that send requests and read no answer."""

    async def send(target: AttackTarget) -> None:
        def ask(wire: Any) -> None:
            for _ in range(pipelined):
                wire.send("readonly", "GET", path, **more)

        await _held(target, ask, count, 5.0)

    return Attack(f"{name} (readonly)", send)


async def _many_headers(target: AttackTarget) -> None:
    fields = {f"X_{number}": "x" * 3000 for number in range(240)}
    await target.ask("anonymous", "GET", "/version", None, **fields)


async def _slow_bodies(target: AttackTarget) -> None:
    def ask(wire: Any) -> None:
        wire.send("admin", "POST", MAPS, None, Content_Length=str(BODY_BYTES))
        wire.writer.write(b"x" * (BODY_BYTES - 1))

    await _held(target, ask, 60, 5.0)


async def _idle(target: AttackTarget) -> None:
    await _held(target, lambda wire: wire.send("anonymous", "GET", "/version"), 300, 3.0)


async def _unread_watches(target: AttackTarget) -> None:
    """Watches that are not read while objects change."""
    wires = await asyncio.gather(*(target.connect() for _ in range(60)))
    for wire in wires:
        wire.stop_reading()
        wire.send("readonly", "GET", f"{MAPS}?watch=1&resourceVersion=0", Accept=TABLE)
    for number in range(10):
        body = {"metadata": {"annotations": {"a": str(number) * 100_000}}}
        await target.ask("admin", "PATCH", f"{MAPS}/large", body, Content_Type=MERGE)
    for wire in wires:
        wire.close()


async def _flood(target: AttackTarget) -> None:
    """One identity that asks through many connections without a pause."""
    wires = await asyncio.gather(*(target.connect() for _ in range(150)))

    async def ask(wire: Any) -> None:
        for _ in range(10):
            wire.send("tenant", "POST", REVIEWS, review())
            await wire.answer()

    await asyncio.gather(*map(ask, wires))
    for wire in wires:
        wire.close()


HELD = [
    Attack("250 header fields of 3 KB (anonymous)", _many_headers),
    unread("120 unread lists of 36 MB", 120, MAPS),
    unread("120 unread objects of 1 MB", 120, f"{MAPS}/large"),
    unread("20 connections with 20 unread objects of 1 MB", 20, f"{MAPS}/large", pipelined=20),
    unread("60 unread watches with 36 MB of state", 60, f"{MAPS}?watch=1"),
    Attack("60 unread watches of changes (readonly)", _unread_watches),
    Attack("60 bodies of 3 MB that do not end (admin)", _slow_bodies),
    Attack("300 connections that are not used (anonymous)", _idle),
    Attack("1,500 requests over 150 connections (tenant)", _flood),
]

ALL = [*SELECTORS, *ADDRESSES, *REVIEWED, *PATCHES, *APPLIES, *OBJECTS, *FORMATS, *READS, *HELD]
