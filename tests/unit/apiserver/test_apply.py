# SPDX-License-Identifier: Apache-2.0
"""Server-side apply in sequences of writes; the answers are a Kubernetes API server's.

Each sequence starts without an object. A step is a write by a manager, and
lists what every manager owns afterwards, or why the server refuses.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refloat.api import schema
from refloat.api.errors import StatusError
from refloat.apiserver import apply
from refloat.apiserver.apply import field_sets, managed_fields

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """One write: `Apply` merges the body into the object, `Update` replaces the object."""

    manager: str
    body: dict[str, Any]
    owners: dict[str, str] = field(default_factory=dict)
    want: dict[str, Any] | None = None  # parts of the object afterwards
    refused: str = ""
    force: bool = False
    operation: str = "Apply"
    subresource: str = ""


def update(manager: str, body: dict[str, Any], owners: dict[str, str], **more: Any) -> ApplyStep:
    return ApplyStep(manager, body, owners, operation="Update", **more)


def data(**values: Any) -> dict[str, Any]:
    return {"data": values}


def conflict(*lines: str) -> str:
    if len(lines) == 1:
        return f"Apply failed with 1 conflict: conflict with {lines[0]}"
    count = sum(line.startswith("- ") for line in lines)
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def image(name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": version, **more}


def template(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": list(containers), **spec}}}


C = ".template.spec.containers"
X = f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name'

CONFIG_MAPS: dict[str, list[ApplyStep]] = {
    "a manager owns what it applied": [
        ApplyStep("a", data(x="1", y="2"), {"a": ".data.x .data.y"}, data(x="1", y="2"))
    ],
    "an empty configuration owns nothing": [ApplyStep("a", {}, {}, {})],
    "an empty map is owned itself": [ApplyStep("a", data(), {"a": ".data"})],
    "null is owned": [ApplyStep("a", data(x=None), {"a": ".data.x"})],
    "two managers own what is theirs": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        ApplyStep("b", data(y="2"), {"a": ".data.x", "b": ".data.y"}, data(x="1", y="2")),
    ],
    "two managers share what they agree on": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        ApplyStep("b", data(x="1"), {"a": ".data.x", "b": ".data.x"}),
        ApplyStep("a", data(), {"a": ".data", "b": ".data.x"}, data(x="1")),
    ],
    "what nobody applies any more goes": [
        ApplyStep("a", data(x="1", y="2"), {"a": ".data.x .data.y"}),
        ApplyStep("a", data(y="2"), {"a": ".data.y"}, data(y="2")),
    ],
    "a manager that leaves takes its fields along": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        ApplyStep("b", data(y="2"), {"a": ".data.x", "b": ".data.y"}),
        ApplyStep("b", {}, {"a": ".data.x"}, data(x="1")),
    ],
    "another's value is a conflict": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        ApplyStep("b", data(x="2"), refused=conflict('"a": .data.x')),
    ],
    "force takes over": [
        ApplyStep("a", data(x="1", y="1"), {"a": ".data.x .data.y"}),
        ApplyStep(
            "b", data(x="2"), {"a": ".data.y", "b": ".data.x"}, data(x="2", y="1"), force=True
        ),
    ],
    "who loses everything is forgotten": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        ApplyStep("b", data(x="2"), {"b": ".data.x"}, force=True),
    ],
    "several conflicts are listed by manager": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        update("u", data(x="1", y="1", z="1"), {"a": ".data.x", "u Update": ".data.y .data.z"}),
        ApplyStep(
            "b",
            data(x="2", y="2", z="2"),
            refused=conflict(
                'conflicts with "a":',
                "- .data.x",
                'conflicts with "u" using v1:',
                "- .data.y",
                "- .data.z",
            ),
        ),
    ],
    "an update takes over what it changes": [
        ApplyStep("a", data(x="1", y="1"), {"a": ".data.x .data.y"}),
        update("u", data(x="1", y="2"), {"a": ".data.x", "u Update": ".data.y"}),
    ],
    "an update that removes ends the ownership": [
        ApplyStep("a", data(x="1", y="1"), {"a": ".data.x .data.y"}),
        update("u", data(x="1"), {"a": ".data.x"}),
    ],
    "an update that changes nothing owns nothing": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        update("u", data(x="1"), {"a": ".data.x"}),
    ],
    "an updated map is owned itself where it was absent": [
        ApplyStep("a", {"metadata": {"labels": {"l": "1"}}}, {"a": ".metadata.labels.l"}),
        update(
            "u",
            {"metadata": {"labels": {"l": "1"}}, **data(x="1")},
            {"a": ".metadata.labels.l", "u Update": ".data .data.x"},
        ),
    ],
    "one manager may apply and update": [
        ApplyStep("a", data(x="1"), {"a": ".data.x"}),
        update("a", data(x="1", y="1"), {"a": ".data.x", "a Update": ".data.y"}),
        ApplyStep("a", data(x="1", y="2"), refused=conflict('"a" using v1: .data.y')),
    ],
    "names, uids and versions have no owner": [
        ApplyStep(
            "a",
            {"metadata": {"generateName": "g", "namespace": "ns", "annotations": {"k": "v"}}},
            {"a": ".metadata.generateName .metadata.annotations.k"},
        )
    ],
    "finalizers are a set": [
        ApplyStep(
            "a",
            {"metadata": {"finalizers": ["f/a", "f/b"]}},
            {"a": '.metadata.finalizers[="f/a"] .metadata.finalizers[="f/b"]'},
        ),
        ApplyStep(
            "b",
            {"metadata": {"finalizers": ["f/c", "f/b"]}},
            {
                "a": '.metadata.finalizers[="f/a"] .metadata.finalizers[="f/b"]',
                "b": '.metadata.finalizers[="f/b"] .metadata.finalizers[="f/c"]',
            },
            {"metadata": {"finalizers": ["f/a", "f/c", "f/b"]}},
        ),
        ApplyStep(
            "a",
            {"metadata": {"finalizers": []}},
            {"b": '.metadata.finalizers[="f/b"] .metadata.finalizers[="f/c"]'},
            {"metadata": {"finalizers": ["f/c", "f/b"]}},
        ),
    ],
    "owner references are told apart by uid": [
        ApplyStep(
            "a",
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}
                    ]
                }
            },
            {"a": '.metadata.ownerReferences[uid="1"]'},
        ),
        ApplyStep(
            "b",
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "1"}
                    ]
                }
            },
            refused=conflict('"a": .metadata.ownerReferences[uid="1"]'),
        ),
    ],
}

TEMPLATES: dict[str, list[ApplyStep]] = {
    "containers are told apart by name": [
        ApplyStep(
            "a",
            template(image("x", "1")),
            {"a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name'},
        ),
        ApplyStep("b", template(image("x", "2")), refused=conflict(f'"a": {C}[name="x"].image')),
        ApplyStep(
            "b",
            template(image("y", "2")),
            {
                "a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name',
                "b": f'{C}[name="y"] {C}[name="y"].image {C}[name="y"].name',
            },
        ),
        ApplyStep(
            "a",
            template(),
            {"b": f'{C}[name="y"] {C}[name="y"].image {C}[name="y"].name'},
            template(image("y", "2")),
        ),
    ],
    "an item stays while somebody owns a part of it": [
        ApplyStep(
            "a",
            template(image("x", "1", tty=True)),
            {"a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name {C}[name="x"].tty'},
        ),
        ApplyStep(
            "b",
            template({"name": "x", "stdin": True}, image("z", "1")),
            {
                "a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name {C}[name="x"].tty',
                "b": (
                    f'{C}[name="x"] {C}[name="z"] {C}[name="x"].name {C}[name="x"].stdin '
                    f'{C}[name="z"].image {C}[name="z"].name'
                ),
            },
        ),
        ApplyStep(
            "b",
            template(image("z", "1")),
            {
                "a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name {C}[name="x"].tty',
                "b": f'{C}[name="z"] {C}[name="z"].image {C}[name="z"].name',
            },
        ),
    ],
    "ports have two keys, one with a default": [
        ApplyStep(
            "a",
            template(
                {
                    "name": "x",
                    "image": "1",
                    "ports": [{"containerPort": 443}, {"containerPort": 80, "protocol": "UDP"}],
                }
            ),
            {
                "a": (
                    f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name '
                    f'{C}[name="x"].ports[containerPort=80,protocol="UDP"] '
                    f'{C}[name="x"].ports[containerPort=443,protocol="TCP"] '
                    f'{C}[name="x"].ports[containerPort=80,protocol="UDP"].containerPort '
                    f'{C}[name="x"].ports[containerPort=80,protocol="UDP"].protocol '
                    f'{C}[name="x"].ports[containerPort=443,protocol="TCP"].containerPort'
                )
            },
        )
    ],
    "tolerations are owned as a whole": [
        ApplyStep(
            "a",
            template(image("x", "1"), tolerations=[{"key": "k", "operator": "Exists"}]),
            {"a": f".template.spec.tolerations {X}"},
        ),
        ApplyStep(
            "b",
            template(tolerations=[{"key": "l", "operator": "Exists"}]),
            refused=conflict('"a": .template.spec.tolerations'),
        ),
    ],
    "a node selector is owned as a whole": [
        ApplyStep(
            "a",
            template(image("x", "1"), nodeSelector={"k": "1"}),
            {"a": f".template.spec.nodeSelector {X}"},
        ),
        ApplyStep(
            "b",
            template(nodeSelector={"l": "1"}),
            refused=conflict('"a": .template.spec.nodeSelector'),
        ),
    ],
}

NODES: dict[str, list[ApplyStep]] = {
    "the status is not the main address's to own": [
        ApplyStep(
            "a",
            {"spec": {"unschedulable": True}, "status": {"phase": "Running"}},
            {"a": ".spec.unschedulable"},
        )
    ],
    "the spec is not the status address's to own": [
        ApplyStep("a", {"spec": {"unschedulable": True}}, {"a": ".spec.unschedulable"}),
        ApplyStep(
            "k",
            {
                "spec": {"unschedulable": False},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
            {
                "a": ".spec.unschedulable",
                "k Apply status": (
                    '.status.conditions[type="Ready"] .status.conditions[type="Ready"].status '
                    '.status.conditions[type="Ready"].type'
                ),
            },
            subresource="status",
        ),
        ApplyStep(
            "l",
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            refused=conflict(
                '"k" with subresource "status": .status.conditions[type="Ready"].status'
            ),
            subresource="status",
        ),
    ],
}


def pod_template() -> schema.Struct:
    """A kind that no defaulting or admission touches."""
    pod, job = schema.struct("v1", "Pod"), schema.struct("batch/v1", "Job")
    spec = job.fields["spec"].type
    assert isinstance(spec, schema.Struct)
    common = {name: pod.fields[name] for name in ("kind", "apiVersion", "metadata")}
    return schema.Struct(
        "core.v1.PodTemplate",
        "v1.PodTemplate",
        {**common, "template": spec.fields["template"]},
        kind="PodTemplate",
        api_version="v1",
    )


STRUCTS = {
    "ConfigMap": schema.struct("v1", "ConfigMap"),
    "Node": schema.struct("v1", "Node"),
    "PodTemplate": pod_template(),
}
SEQUENCES = [
    pytest.param(kind, steps, id=f"{kind}: {name}")
    for kind, table in (("ConfigMap", CONFIG_MAPS), ("PodTemplate", TEMPLATES), ("Node", NODES))
    for name, steps in table.items()
]


def full(kind: str, body: dict[str, Any], live: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = {"name": "n", **body.get("metadata", {})}
    if live is not None:
        metadata["managedFields"] = live["metadata"].get("managedFields")
    return {"apiVersion": "v1", "kind": kind, **body, "metadata": metadata}


def write(live: dict[str, Any] | None, kind: str, step: ApplyStep, now: datetime) -> dict[str, Any]:
    context: dict[str, Any] = {
        "manager": step.manager,
        "struct": STRUCTS[kind],
        "api_version": "v1",
        "subresource": step.subresource,
        "now": now,
    }
    if step.operation == "Apply":
        return apply.apply(live, full(kind, step.body), force=step.force, **context)
    return apply.track_update(live, full(kind, step.body, live), **context)


def owners(obj: dict[str, Any]) -> dict[str, str]:
    paths = {}
    for entry in managed_fields.decode(obj["metadata"].get("managedFields")).values():
        name = entry.manager
        if entry.operation == "Update" or entry.subresource:
            name = f"{name} {entry.operation} {entry.subresource}".rstrip()
        paths[name] = " ".join(map(field_sets.show, entry.paths.paths()))
    return paths


def contains(obj: Any, want: Any) -> bool:
    if isinstance(want, dict):
        return all(key in obj and contains(obj[key], each) for key, each in want.items())
    return bool(obj == want)


@pytest.mark.parametrize(("kind", "steps"), SEQUENCES)
def test_ownership_follows_the_writes(kind: str, steps: list[ApplyStep]) -> None:
    live: dict[str, Any] | None = None
    for number, step in enumerate(steps):
        now = START + timedelta(seconds=number)
        if step.refused:
            with pytest.raises(StatusError) as error:
                write(live, kind, step, now)
            assert error.value.message == step.refused
            assert (error.value.code, error.value.reason) == (409, "Conflict")
            continue
        live = write(live, kind, step, now)
        assert owners(live) == step.owners
        assert contains(live, step.want or {})
