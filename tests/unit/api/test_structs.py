# SPDX-License-Identifier: Apache-2.0
"""The partial structs fit what servers send, field by field."""

import gc
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from refloat.api import batch, core, gated_fields, policy, schema, structs, times
from refloat.api.meta import Object
from refloat.bench.pods import PodMaker
from refloat.client import kinds
from refloat.client.contract import Kind
from tests.cases import cases

KINDS = [each for each in vars(kinds).values() if isinstance(each, Kind)]

DEPTH = 4  # of structs in structs; the deepest that is read of any kind

TEXTS = ("string", "quantity", "time", "microtime", "duration")


def name_of(kind: Kind[Any]) -> str:
    return kind.resource.kind


@pytest.fixture(params=KINDS, ids=name_of)
def kind(request: pytest.FixtureRequest) -> Kind[Any]:
    kind: Kind[Any] = request.param
    return kind


def split(hint: Any) -> tuple[set[Any], bool]:
    """The types in a hint without None, and whether None is one."""
    if get_origin(hint) is Annotated:
        return split(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        parts = [split(each) for each in get_args(hint)]
        return set().union(*(each for each, _ in parts)), any(none for _, none in parts)
    if hint is types.NoneType:
        return set(), True
    return {hint}, False


def problems(struct: Any, known_struct: schema.Struct, path: str) -> Iterator[str]:
    """The places where a struct does not fit the type."""
    hints = get_type_hints(struct, include_extras=True)
    for each in msgspec.structs.fields(struct):
        field = known_struct.fields.get(each.encode_name)
        where = f"{path}.{each.encode_name}"
        if field is not None:
            yield from misfits(hints[each.name], field, where)
        elif struct is not structs.Condition:  # of several types at once
            yield f"{where}: there is no such field"


def misfits(hint: Any, field: schema.Field, path: str) -> Iterator[str]:
    if hint is msgspec.Raw:
        return
    hint_kind, optional = split(hint)
    if optional != may_be_null(field):
        yield f"{path}: {'is never' if optional else 'may be'} null"
    yield from wrong_types(hint_kind, field.type, path)


def may_be_null(field: schema.Field) -> bool:
    """Pointers, lists, maps and times are written as null when they are kept and empty."""
    if field.pointer or isinstance(field.type, schema.ListOf | schema.MapOf):
        return True
    return isinstance(field.type, schema.Scalar) and field.type.kind in ("time", "microtime")


def wrong_types(hints: set[Any], type_: schema.Type, path: str) -> Iterator[str]:
    hint = next(iter(hints))
    if isinstance(type_, schema.ListOf):
        if get_origin(hint) is not tuple:
            yield f"{path}: not a list"
        else:
            yield from wrong_types(split(get_args(hint)[0])[0], type_.element, f"{path}[]")
    elif isinstance(type_, schema.MapOf):
        if get_origin(hint) is not Mapping:
            yield f"{path}: not a map"
    elif isinstance(type_, schema.Struct):
        yield from problems(hint, type_, path)
    elif hints != scalars(type_):
        yield f"{path}: {hints} for {type_.kind}"


def scalars(scalar: schema.Scalar) -> set[Any]:
    if scalar.kind in TEXTS:
        return {str}
    if scalar.kind == "intorstring":
        return {int, str}
    return {bool} if scalar.kind == "bool" else {int}


def test_every_field_is_one_of_its_kind_and_fits_it(kind: Kind[Any]) -> None:
    struct = gated_fields.struct(kind.resource.api_version, kind.resource.kind)
    assert list(problems(kind.type, struct, kind.resource.kind)) == []


def nulled(struct: schema.Struct, depth: int = 0) -> Object:
    """An object in which everything is null that Go may write as null."""
    obj: Object = {}
    for field in struct.fields.values():
        if may_be_null(field):
            obj[field.name] = None
        elif isinstance(field.type, schema.Struct) and depth < DEPTH:
            obj[field.name] = nulled(field.type, depth + 1)
    return obj


class Wrong(structs.Partial, frozen=True):
    node_name: str | None = None
    priority: int = 0
    containers: core.Container | None = None
    unheard_of: str = ""


def test_a_struct_that_does_not_fit_is_found_out() -> None:
    assert list(problems(Wrong, schema.named("core.v1.PodSpec"), "spec")) == [
        "spec.nodeName: is never null",
        "spec.priority: may be null",
        "spec.containers: not a list",
        "spec.unheardOf: there is no such field",
    ]


def test_nulls_are_read_wherever_go_writes_them(kind: Kind[Any]) -> None:
    struct = schema.struct(kind.resource.api_version, kind.resource.kind)
    decoded = kind.decoder.decode(msgspec.json.encode(nulled(struct)))
    assert decoded.metadata.creation_timestamp is None
    assert decoded.metadata.labels is None


def test_an_empty_object_is_read(kind: Kind[Any]) -> None:
    assert kind.decoder.decode(b"{}").metadata.name == ""


def test_no_struct_is_tracked_by_the_garbage_collector(kind: Kind[Any]) -> None:
    assert not gc.is_tracked(kind.decoder.decode(b'{"metadata":{"labels":{"a":"b"}}}'))


def test_nothing_can_be_changed(kind: Kind[Any]) -> None:
    decoded = kind.decoder.decode(b"{}")
    with pytest.raises(AttributeError):
        decoded.metadata.name = "x"


BOOKMARKS = {
    "job": (
        kinds.JOBS,
        (
            b'{"kind":"Job","apiVersion":"batch/v1","metadata":{"resourceVersion":"24358","annotations"'
            b':{"k8s.io/initial-events-end":"true"}},"spec":{"template":{"metadata":{},"spec":'
            b'{"containers":null}}},"status":{}}'
        ),
    ),
    "pod": (
        kinds.PODS,
        (
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"24358"},"spec":'
            b'{"containers":null},"status":{}}'
        ),
    ),
    "event": (
        kinds.EVENTS,
        (
            b'{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"resourceVersion":"24358"},'
            b'"eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,'
            b'"deprecatedLastTimestamp":null}'
        ),
    ),
}


@cases("kind body", BOOKMARKS)
def test_what_a_server_sends_as_bookmark_could_be_read(kind: Kind[Any], body: bytes) -> None:
    assert kind.decoder.decode(body).metadata.resource_version == "24358"


def test_a_pod_is_read_with_what_controllers_ask_of_it() -> None:
    simulated_pod = PodMaker().pod(0)
    pod = kinds.PODS.decoder.decode(msgspec.json.encode(simulated_pod))
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.name == "training-run-0000"
    assert pod.spec.node_name == simulated_pod["spec"]["nodeName"]
    assert [each.name for each in pod.spec.containers or ()] == ["main", "metrics"]
    assert pod.status.pod_ip == simulated_pod["status"]["podIP"]
    assert structs.is_true(pod.status.conditions, "Ready")
    assert not structs.is_true(pod.status.conditions, "DisruptionTarget")
    assert not pod.is_terminal
    assert not pod.is_terminating


def test_exit_codes_and_finish_times_are_read() -> None:
    body = {
        "name": "main",
        "state": {"terminated": {"exitCode": 42, "finishedAt": "2026-01-02T03:04:05Z"}},
    }
    status = msgspec.convert(body, core.ContainerStatus)
    assert status.state.terminated is not None
    assert status.state.terminated.exit_code == 42
    assert times.parse(status.state.terminated.finished_at or "").year == 2026


def test_a_template_stays_as_it_was_written() -> None:
    job = kinds.JOBS.decoder.decode(b'{"spec":{"template":{"spec":{"x": [1, null]}}}}')
    assert msgspec.json.decode(job.spec.template) == {"spec": {"x": [1, None]}}


def test_a_job_without_template_has_an_empty_one() -> None:
    assert bytes(batch.JobSpec().template) == b""


@pytest.mark.parametrize("value", [1, "30%"])
def test_a_budget_is_a_number_or_a_share(value: int | str) -> None:
    body = msgspec.json.encode({"minAvailable": value})
    decoded = msgspec.json.decode(body, type=policy.PodDisruptionBudgetSpec)
    assert decoded.min_available == value


def test_the_first_condition_of_a_type_counts() -> None:
    first = structs.Condition(type="Ready", status="False")
    second = structs.Condition(type="Ready", status="True")
    assert structs.find((first, second), "Ready") is first
    assert structs.find(None, "Ready") is None
