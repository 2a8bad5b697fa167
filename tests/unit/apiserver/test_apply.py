# SPDX-License-Identifier: Apache-2.0
"""Server-side apply in sequences of writes; the answers are a Kubernetes API server's.

Each sequence starts without an object. A step is a write by a manager, and
says what every manager owns after it, or why it was refused.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refloat.api import schema
from refloat.api.errors import StatusError
from refloat.apiserver import apply
from refloat.apiserver.apply import entries, sets

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Step:
    """One write: `Apply` lays the body over the object, `Update` puts it in its place."""

    manager: str
    body: dict[str, Any]
    owners: dict[str, str] = field(default_factory=dict)
    want: dict[str, Any] | None = None  # parts of the object after it
    refused: str = ""
    force: bool = False
    operation: str = "Apply"
    subresource: str = ""


def update(manager: str, body: dict[str, Any], owners: dict[str, str], **more: Any) -> Step:
    return Step(manager, body, owners, operation="Update", **more)


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

CONFIG_MAPS: dict[str, list[Step]] = {
    "a manager owns what it applied": [
        Step("a", data(x="1", y="2"), {"a": ".data.x .data.y"}, data(x="1", y="2")),
    ],
    "an empty configuration owns nothing": [Step("a", {}, {}, {})],
    "an empty map is owned itself": [Step("a", data(), {"a": ".data"})],
    "null is owned": [Step("a", data(x=None), {"a": ".data.x"})],
    "two managers own what is theirs": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        Step("b", data(y="2"), {"a": ".data.x", "b": ".data.y"}, data(x="1", y="2")),
    ],
    "two managers share what they agree on": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        Step("b", data(x="1"), {"a": ".data.x", "b": ".data.x"}),
        Step("a", data(), {"a": ".data", "b": ".data.x"}, data(x="1")),
    ],
    "what nobody applies any more goes": [
        Step("a", data(x="1", y="2"), {"a": ".data.x .data.y"}),
        Step("a", data(y="2"), {"a": ".data.y"}, data(y="2")),
    ],
    "a manager that leaves takes its fields along": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        Step("b", data(y="2"), {"a": ".data.x", "b": ".data.y"}),
        Step("b", {}, {"a": ".data.x"}, data(x="1")),
    ],
    "another's value is a conflict": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        Step("b", data(x="2"), refused=conflict('"a": .data.x')),
    ],
    "force takes over": [
        Step("a", data(x="1", y="1"), {"a": ".data.x .data.y"}),
        Step("b", data(x="2"), {"a": ".data.y", "b": ".data.x"}, data(x="2", y="1"), force=True),
    ],
    "who loses everything is forgotten": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        Step("b", data(x="2"), {"b": ".data.x"}, force=True),
    ],
    "several conflicts are listed by manager": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        update(
            "u",
            data(x="1", y="1", z="1"),
            {"a": ".data.x", "u Update": ".data.y .data.z"},
        ),
        Step(
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
        Step("a", data(x="1", y="1"), {"a": ".data.x .data.y"}),
        update("u", data(x="1", y="2"), {"a": ".data.x", "u Update": ".data.y"}),
    ],
    "an update that removes ends the ownership": [
        Step("a", data(x="1", y="1"), {"a": ".data.x .data.y"}),
        update("u", data(x="1"), {"a": ".data.x"}),
    ],
    "an update that changes nothing owns nothing": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        update("u", data(x="1"), {"a": ".data.x"}),
    ],
    "an updated map is owned itself where it was absent": [
        Step("a", {"metadata": {"labels": {"l": "1"}}}, {"a": ".metadata.labels.l"}),
        update(
            "u",
            {"metadata": {"labels": {"l": "1"}}, **data(x="1")},
            {"a": ".metadata.labels.l", "u Update": ".data .data.x"},
        ),
    ],
    "one manager may apply and update": [
        Step("a", data(x="1"), {"a": ".data.x"}),
        update("a", data(x="1", y="1"), {"a": ".data.x", "a Update": ".data.y"}),
        Step("a", data(x="1", y="2"), refused=conflict('"a" using v1: .data.y')),
    ],
    "names, uids and versions have no owner": [
        Step(
            "a",
            {"metadata": {"generateName": "g", "namespace": "ns", "annotations": {"k": "v"}}},
            {"a": ".metadata.generateName .metadata.annotations.k"},
        ),
    ],
    "finalizers are a set": [
        Step(
            "a",
            {"metadata": {"finalizers": ["f/a", "f/b"]}},
            {"a": '.metadata.finalizers[="f/a"] .metadata.finalizers[="f/b"]'},
        ),
        Step(
            "b",
            {"metadata": {"finalizers": ["f/c", "f/b"]}},
            {
                "a": '.metadata.finalizers[="f/a"] .metadata.finalizers[="f/b"]',
                "b": '.metadata.finalizers[="f/b"] .metadata.finalizers[="f/c"]',
            },
            {"metadata": {"finalizers": ["f/a", "f/c", "f/b"]}},
        ),
        Step(
            "a",
            {"metadata": {"finalizers": []}},
            {"b": '.metadata.finalizers[="f/b"] .metadata.finalizers[="f/c"]'},
            {"metadata": {"finalizers": ["f/c", "f/b"]}},
        ),
    ],
    "owner references are told apart by uid": [
        Step(
            "a",
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"},
                    ]
                }
            },
            {"a": '.metadata.ownerReferences[uid="1"]'},
        ),
        Step(
            "b",
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "1"},
                    ]
                }
            },
            refused=conflict('"a": .metadata.ownerReferences[uid="1"]'),
        ),
    ],
}

TEMPLATES: dict[str, list[Step]] = {
    "containers are told apart by name": [
        Step(
            "a",
            template(image("x", "1")),
            {"a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name'},
        ),
        Step("b", template(image("x", "2")), refused=conflict(f'"a": {C}[name="x"].image')),
        Step(
            "b",
            template(image("y", "2")),
            {
                "a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name',
                "b": f'{C}[name="y"] {C}[name="y"].image {C}[name="y"].name',
            },
        ),
        Step(
            "a",
            template(),
            {"b": f'{C}[name="y"] {C}[name="y"].image {C}[name="y"].name'},
            template(image("y", "2")),
        ),
    ],
    "an item stays while somebody owns a part of it": [
        Step(
            "a",
            template(image("x", "1", tty=True)),
            {"a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name {C}[name="x"].tty'},
        ),
        Step(
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
        Step(
            "b",
            template(image("z", "1")),
            {
                "a": f'{C}[name="x"] {C}[name="x"].image {C}[name="x"].name {C}[name="x"].tty',
                "b": f'{C}[name="z"] {C}[name="z"].image {C}[name="z"].name',
            },
        ),
    ],
    "ports have two keys, one with a default": [
        Step(
            "a",
            template(
                {
                    "name": "x",
                    "image": "1",
                    "ports": [
                        {"containerPort": 443},
                        {"containerPort": 80, "protocol": "UDP"},
                    ],
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
                ),
            },
        ),
    ],
    "tolerations are owned as a whole": [
        Step(
            "a",
            template(image("x", "1"), tolerations=[{"key": "k", "operator": "Exists"}]),
            {"a": f".template.spec.tolerations {X}"},
        ),
        Step(
            "b",
            template(tolerations=[{"key": "l", "operator": "Exists"}]),
            refused=conflict('"a": .template.spec.tolerations'),
        ),
    ],
    "a node selector is owned as a whole": [
        Step(
            "a",
            template(image("x", "1"), nodeSelector={"k": "1"}),
            {"a": f".template.spec.nodeSelector {X}"},
        ),
        Step(
            "b",
            template(nodeSelector={"l": "1"}),
            refused=conflict('"a": .template.spec.nodeSelector'),
        ),
    ],
}

NODES: dict[str, list[Step]] = {
    "the status is not the main address's to own": [
        Step(
            "a",
            {"spec": {"unschedulable": True}, "status": {"phase": "Running"}},
            {"a": ".spec.unschedulable"},
        ),
    ],
    "the spec is not the status address's to own": [
        Step("a", {"spec": {"unschedulable": True}}, {"a": ".spec.unschedulable"}),
        Step(
            "k",
            {
                "spec": {"unschedulable": False},
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "True"},
                    ]
                },
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
        Step(
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


def write(live: dict[str, Any] | None, kind: str, step: Step, now: datetime) -> dict[str, Any]:
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
    found = {}
    for entry in entries.decode(obj["metadata"].get("managedFields")).values():
        name = entry.manager
        if entry.operation == "Update" or entry.subresource:
            name = f"{name} {entry.operation} {entry.subresource}".rstrip()
        found[name] = " ".join(map(sets.show, entry.paths.paths()))
    return found


def contains(obj: Any, want: Any) -> bool:
    if isinstance(want, dict):
        return all(key in obj and contains(obj[key], each) for key, each in want.items())
    return bool(obj == want)


@pytest.mark.parametrize(("kind", "steps"), SEQUENCES)
def test_ownership_follows_the_writes(kind: str, steps: list[Step]) -> None:
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


def apply_data(
    live: dict[str, Any] | None, manager: str, seconds: int, *, force: bool = False, **values: Any
) -> dict[str, Any]:
    now = START + timedelta(seconds=seconds)
    return write(live, "ConfigMap", Step(manager, data(**values), force=force), now)


def clock(obj: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(each["manager"], each.get("time")) for each in obj["metadata"]["managedFields"]]


def test_an_entry_is_written_as_kubernetes_writes_it() -> None:
    live = apply_data(None, "m", 0, x="1")
    assert live["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


def test_applying_again_does_not_change_the_time() -> None:
    live = apply_data(None, "m", 0, x="1")
    assert apply_data(live, "m", 9, x="1") == live


def test_applying_a_change_changes_the_time() -> None:
    live = apply_data(apply_data(None, "m", 0, x="1"), "m", 9, x="2")
    assert clock(live) == [("m", "2026-01-02T03:04:14Z")]


def test_who_changes_nothing_gets_no_time() -> None:
    live = apply_data(apply_data(None, "m", 0, x="1"), "n", 9, x="1")
    assert clock(live) == [("n", None), ("m", "2026-01-02T03:04:05Z")]


def test_entries_are_sorted_by_operation_then_time_then_name() -> None:
    live = apply_data(None, "z", 0, a="1")
    live = apply_data(live, "b", 0, b="1")
    live = apply_data(live, "a", 1, c="1")
    body = data(a="1", b="1", c="1", d="1")
    live = write(live, "ConfigMap", update("0", body, {}), START)
    assert [name for name, _ in clock(live)] == ["b", "z", "a", "0"]


def test_a_conflict_names_its_causes() -> None:
    live = apply_data(None, "m", 0, x="1")
    with pytest.raises(StatusError) as error:
        apply_data(live, "n", 1, x="2")
    assert error.value.details == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "m"',
                "field": ".data.x",
            }
        ]
    }


def test_the_inputs_are_not_changed() -> None:
    live = apply_data(None, "m", 0, x="1", y="1")
    before = repr(live)
    apply_data(live, "m", 1, y="2")
    apply_data(live, "n", 1, force=True, x="2")
    assert repr(live) == before


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    live = full("ConfigMap", {"metadata": {"labels": {"l": "1"}, "uid": "u"}, **data(x="1")})
    with pytest.raises(
        StatusError, match=r'conflict with "before-first-apply" using v1: \.data\.x'
    ):
        apply_data(live, "m", 1, x="2")
    live = apply_data(live, "m", 1, x="1", y="1")
    assert owners(live) == {
        "before-first-apply Update": ".data .data.x .metadata.labels .metadata.labels.l",
        "m": ".data.x .data.y",
    }


def test_writes_before_the_first_apply_are_not_tracked() -> None:
    step = update("u", data(x="1"), {})
    live = write(None, "ConfigMap", step, START)
    assert "managedFields" not in live["metadata"]
    live = write(live, "ConfigMap", update("u", data(x="2"), {}), START)
    assert "managedFields" not in live["metadata"]


def test_tracking_can_start_with_the_creation() -> None:
    new = apply.track_update(
        None,
        full("ConfigMap", data(x="1")),
        manager="",
        struct=STRUCTS["ConfigMap"],
        api_version="v1",
        subresource="",
        now=START,
        from_creation=True,
    )
    assert owners(new) == {"unknown Update": ".data .data.x"}


@pytest.mark.parametrize("written", [[], [{}]])
def test_an_empty_list_ends_the_tracking(written: list[Any]) -> None:
    live = apply_data(None, "m", 0, x="1")
    new = full("ConfigMap", {"metadata": {"managedFields": written}, **data(x="1")})
    done = write_managed(live, new)
    assert "managedFields" not in done["metadata"]


@pytest.mark.parametrize("written", [None, [{"manager": "m", "operation": "Bogus"}]])
def test_what_cannot_be_read_does_not_end_the_tracking(written: Any) -> None:
    live = apply_data(None, "m", 0, x="1")
    new = full("ConfigMap", {"metadata": {"managedFields": written}, **data(x="1")})
    assert owners(write_managed(live, new)) == {"m": ".data.x"}


def test_a_subresource_cannot_end_the_tracking() -> None:
    live = apply_data(None, "m", 0, x="1")
    new = full("ConfigMap", {"metadata": {"managedFields": []}, **data(x="1")})
    assert owners(write_managed(live, new, subresource="status")) == {"m": ".data.x"}


def write_managed(
    live: dict[str, Any], new: dict[str, Any], *, subresource: str = ""
) -> dict[str, Any]:
    return apply.track_update(
        live,
        new,
        manager="u",
        struct=STRUCTS["ConfigMap"],
        api_version="v1",
        subresource=subresource,
        now=START,
    )


def test_managed_fields_can_be_written_directly() -> None:
    live = apply_data(None, "m", 0, x="1")
    moved = [live["metadata"]["managedFields"][0] | {"manager": "n"}]
    new = full("ConfigMap", {"metadata": {"managedFields": moved}, **data(x="1")})
    assert owners(write_managed(live, new)) == {"n": ".data.x"}


def test_the_oldest_of_many_updaters_become_one() -> None:
    live = apply_data(None, "m", 0, x="1")
    values = {"x": "1"}
    for number in range(12):
        values[f"k{number:02}"] = "1"
        step = update(f"u{number:02}", data(**values), {})
        live = write(live, "ConfigMap", step, START + timedelta(seconds=number))
    found = owners(live)
    assert len(found) == 1 + entries.MAX_UPDATERS
    assert found["ancient-changes Update"] == ".data.k00 .data.k01 .data.k02"
    assert found["u03 Update"] == ".data.k03"


LAST = "kubectl.kubernetes.io/last-applied-configuration"


def applied_by_client(last: str) -> dict[str, Any]:
    return full("ConfigMap", {"metadata": {"annotations": {LAST: last}}, **data(x="1", y="2")})


def test_kubectl_takes_over_from_its_own_client_side() -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"1","y":"2"},"metadata":{"name":"n"}}'
    live = apply_data(applied_by_client(last), "kubectl", 0, x="9<")
    assert live["data"] == {"x": "9<", "y": "2"}
    assert owners(live) == {
        "kubectl": ".data.x",
        "before-first-apply Update": (
            f".data .data.y .metadata.annotations .metadata.annotations.{LAST}"
        ),
    }
    assert live["metadata"]["annotations"][LAST] == (
        '{"apiVersion":"v1","data":{"x":"9\\u003c"},"kind":"ConfigMap","metadata":{"name":"n"}}\n'
    )


def test_kubectl_does_not_take_over_what_changed_since() -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"0","y":"2"},"metadata":{"name":"n"}}'
    with pytest.raises(StatusError) as error:
        apply_data(applied_by_client(last), "kubectl", 0, x="9", y="9")
    assert error.value.message == conflict('"before-first-apply" using v1: .data.x')


def test_others_do_not_take_over_from_kubectl() -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"1","y":"2"},"metadata":{"name":"n"}}'
    with pytest.raises(StatusError, match=r"conflict with \"before-first-apply\""):
        apply_data(applied_by_client(last), "m", 0, x="9")
