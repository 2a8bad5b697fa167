# SPDX-License-Identifier: Apache-2.0
"""Compacting changes how much memory an object takes, and nothing else."""

import sys
from typing import Any

import msgspec
import pytest

from refloat.api.core import Pod
from refloat.bench.pods import PodMaker
from refloat.client import kinds
from refloat.client.contract import Kind
from refloat.runtime import compact_objects
from refloat.runtime.compact_objects import LAST_APPLIED, Compactor

KINDS = [each for each in vars(kinds).values() if isinstance(each, Kind)]


def pods(count: int) -> list[bytes]:
    maker = PodMaker()
    return [msgspec.json.encode(maker.pod(number)) for number in range(count)]


def compacted(*body: bytes) -> list[Pod]:
    compactor = Compactor(Pod)
    objects = [kinds.PODS.decoder.decode(each) for each in body]
    for each in objects:
        compactor.compact(each)
    return objects


def test_an_object_stays_equal() -> None:
    body = pods(5)
    assert compacted(*body) == [kinds.PODS.decoder.decode(each) for each in body]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
def test_every_kind_can_be_compacted(kind: Kind[Any]) -> None:
    body = b'{"metadata":{"name":"a","labels":{"a":"b"},"finalizers":["x"]}}'
    obj = kind.decoder.decode(body)
    Compactor(kind.type).compact(obj)
    assert obj == kind.decoder.decode(body)


def test_equal_parts_are_one() -> None:
    one, other = compacted(*pods(2))
    assert one.spec.containers is other.spec.containers
    assert one.spec.tolerations is other.spec.tolerations
    assert one.spec.node_selector is other.spec.node_selector
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.namespace is other.metadata.namespace
    assert one.metadata.finalizers is other.metadata.finalizers


def test_what_differs_stays_apart() -> None:
    one, other = compacted(*pods(2))
    assert one.metadata.labels != other.metadata.labels
    assert one.metadata.uid != other.metadata.uid


def test_a_new_version_takes_over_what_did_not_change() -> None:
    (body,) = pods(1)
    changed = msgspec.json.decode(body)
    changed["metadata"]["resourceVersion"] = "2"
    changed["status"]["phase"] = "Failed"
    changed["status"]["conditions"][0]["status"] = "False"
    changed["spec"]["tolerations"] = [{"key": "other"}]
    compactor = Compactor(Pod)
    old, new = (kinds.PODS.decoder.decode(each) for each in (body, msgspec.json.encode(changed)))
    compactor.compact(old)
    compactor.compact(new, old)
    assert new == kinds.PODS.decoder.decode(msgspec.json.encode(changed))
    assert new.metadata.labels is old.metadata.labels
    assert new.status.container_statuses is old.status.container_statuses
    assert new.spec.containers is old.spec.containers


def test_a_part_that_did_not_change_is_taken_over_whole() -> None:
    (body,) = pods(1)
    changed = msgspec.json.decode(body)
    changed["status"]["phase"] = "Failed"
    compactor = Compactor(Pod)
    old, new = (kinds.PODS.decoder.decode(each) for each in (body, msgspec.json.encode(changed)))
    compactor.compact(new, old)
    assert new.spec is old.spec
    assert new.metadata is old.metadata


def test_conditions_are_shared_one_by_one() -> None:
    first, second = (
        msgspec.json.encode(
            {
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "True", "lastTransitionTime": time},
                        {"type": "PodScheduled", "status": "True"},
                    ]
                }
            }
        )
        for time in ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z")
    )
    one, other = compacted(first, second)
    assert one.status.conditions is not None
    assert other.status.conditions is not None
    assert one.status.conditions[0] != other.status.conditions[0]
    assert one.status.conditions[1] is other.status.conditions[1]


def test_parts_of_different_types_are_never_taken_for_each_other() -> None:
    """Empty resources and empty containers' are encoded alike."""
    body = b'{"spec":{"resources":{},"containers":[{}],"initContainers":[{}],"volumes":[{}]}}'
    (pod,) = compacted(body)
    assert pod == kinds.PODS.decoder.decode(body)


def test_a_raw_part_lets_go_of_what_it_was_read_with() -> None:
    template = b'{"spec":{"containers":[]}}'
    body = b'{"spec":{"template":' + template + b'},"padding":"' + b"x" * 1000 + b'"}'
    before = sys.getrefcount(body)
    job = kinds.JOBS.decoder.decode(body)
    assert sys.getrefcount(body) > before
    Compactor(kinds.JOBS.type).compact(job)
    assert sys.getrefcount(body) == before
    assert bytes(job.spec.template) == template


def test_what_kubectl_keeps_for_itself_is_dropped() -> None:
    annotations = {LAST_APPLIED: "{...}", "example.com/kept": "yes"}
    (pod,) = compacted(msgspec.json.encode({"metadata": {"annotations": annotations}}))
    assert pod.metadata.annotations == {"example.com/kept": "yes"}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_objects, "SHARED_PARTS", 50)
    compactor = Compactor(Pod)
    for body in pods(300):
        compactor.compact(kinds.PODS.decoder.decode(body))
        assert len(compactor._parts) <= 50
