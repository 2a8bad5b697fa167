# SPDX-License-Identifier: Apache-2.0
"""Every kind's defaults and validation answer as Kubernetes did (`data/*.json`)."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from refloat.api import event_conversion
from refloat.api.defaults import job as job_defaults
from refloat.api.defaults import namespace as namespace_defaults
from refloat.api.defaults import node as node_defaults
from refloat.api.defaults import persistentvolume as volume_defaults
from refloat.api.defaults import persistentvolumeclaim as claim_defaults
from refloat.api.defaults import priorityclass as priorityclass_defaults
from refloat.api.defaults import secret as secret_defaults
from refloat.api.defaults import service as service_defaults
from refloat.api.defaults import volumeattachment as attachment_defaults
from refloat.api.meta import Object
from refloat.api.validation import (
    configmap,
    event,
    job,
    lease,
    namespace,
    node,
    pdb,
    persistentvolume,
    persistentvolumeclaim,
    priorityclass,
    secret,
    service,
    serviceaccount,
    volumeattachment,
)
from tests.unit.api import corpus

NOW = "2024-01-01T00:00:00Z"
CLUSTER_WIDE = ("namespace", "node", "persistentvolume", "priorityclass", "volumeattachment")


def _nothing(*_: Object) -> None:
    pass


@dataclass(frozen=True)
class CorpusKind:
    """What the API server does around the validation of one kind."""

    module: Any
    default: Callable[[Object], None] = _nothing
    prepare_create: Callable[[Object], None] = _nothing
    prepare_update: Callable[[Object, Object], None] = _nothing
    options: tuple[tuple[str, bool], ...] = ()
    # For kinds that the server stores in another shape, or completes.
    convert: Callable[[Object], None] = _nothing


def _drop_status(obj: Object) -> None:
    obj.pop("status", None)


def _drop_strategy(obj: Object) -> None:
    for name in ("strategy", "preferredHolder"):
        (obj.get("spec") or {}).pop(name, None)


def _core_event(obj: Object) -> None:
    core = event_conversion.to_core(obj)
    obj.clear()
    obj |= core


def _keep_namespace_parts(new: Object, old: Object) -> None:
    new["spec"] = old["spec"]


def _drop_config(obj: Object) -> None:
    (obj.get("spec") or {}).pop("configSource", None)


def _pending_volume(obj: Object) -> None:
    volume_defaults.prepare_create(obj, NOW)


KINDS = {
    "configmap": CorpusKind(configmap),
    "event": CorpusKind(event),
    "event_modern": CorpusKind(event, convert=_core_event, options=(("modern", True),)),
    "job": CorpusKind(job, job_defaults.apply, job_defaults.prepare_create),
    "lease": CorpusKind(lease, default=_drop_strategy),
    "namespace": CorpusKind(
        namespace,
        namespace_defaults.apply,
        namespace_defaults.prepare_create,
        _keep_namespace_parts,
    ),
    "node": CorpusKind(
        node, node_defaults.apply, _drop_config, options=(("force_eviction", False),)
    ),
    "pdb": CorpusKind(pdb, prepare_create=_drop_status),
    "persistentvolume": CorpusKind(persistentvolume, volume_defaults.apply, _pending_volume),
    "persistentvolumeclaim": CorpusKind(
        persistentvolumeclaim,
        claim_defaults.apply,
        claim_defaults.prepare_create,
        claim_defaults.prepare_update,
    ),
    "priorityclass": CorpusKind(priorityclass, priorityclass_defaults.apply),
    "secret": CorpusKind(
        secret, secret_defaults.apply, prepare_update=secret_defaults.prepare_update
    ),
    "service": CorpusKind(
        service,
        service_defaults.apply,
        service_defaults.prepare_create,
        service_defaults.prepare_update,
    ),
    "serviceaccount": CorpusKind(serviceaccount),
    "volumeattachment": CorpusKind(
        volumeattachment, attachment_defaults.apply, prepare_create=_drop_status
    ),
}

VALIDATORS = {
    "update": "validate_update",
    "status": "validate_status_update",
    "finalize": "validate_finalize_update",
}


def _cases(part: str) -> Iterator[Any]:
    for name in KINDS:
        data = corpus.load(name)
        for case in data.get(part, ()):
            yield pytest.param(name, data["base"], case, id=f"{name}: {case['id']}")


def _sent(name: str, body: Object) -> Object:
    """An object as the server has it before validation."""
    kind = KINDS[name]
    body["metadata"] |= {"uid": corpus.UID, "creationTimestamp": NOW, "resourceVersion": "1"}
    body["metadata"]["namespace"] = "corpus"
    if name in CLUSTER_WIDE:
        del body["metadata"]["namespace"]
    kind.default(body)
    kind.prepare_create(body)
    return body


@pytest.mark.parametrize(("name", "base", "case"), list(_cases("create")))
def test_create_is_answered_as_by_kubernetes(name: str, base: Object, case: Object) -> None:
    kind = KINDS[name]
    obj = _sent(name, corpus.changed(base, case["set"]))
    kind.convert(obj)

    mistakes = kind.module.validate_create(obj, **dict(kind.options))

    assert corpus.causes(mistakes) == case["want"]
    if not mistakes and hasattr(kind.module, "warnings"):
        assert kind.module.warnings(obj) == case.get("warnings", [])


def _stored(kind: CorpusKind, obj: Object) -> Object:
    """An object after a write to the store and a read."""
    stored = json.loads(json.dumps(obj))
    kind.default(stored)
    copied: Object = json.loads(json.dumps(stored))
    return copied


def _updates() -> Iterator[Any]:
    for part in VALIDATORS:
        for parameters in _cases(part):
            yield pytest.param(part, *parameters.values, id=f"{part} of {parameters.id}")


@pytest.mark.parametrize(("part", "name", "base", "case"), list(_updates()))
def test_update_is_answered_as_by_kubernetes(
    part: str, name: str, base: Object, case: Object
) -> None:
    kind = KINDS[name]
    old = _stored(kind, _sent(name, corpus.changed(base, case.get("old"))))
    if "old_status" in case:
        old["status"] = case["old_status"]
    new = corpus.changed(old, case["set"])
    kind.default(new)
    if part == "update":
        kind.prepare_update(new, old)
    other_part = "spec" if part == "status" else "status"
    new.pop(other_part, None)
    if other_part in old:
        new[other_part] = copy.deepcopy(old[other_part])
    kind.convert(old)
    kind.convert(new)

    mistakes = getattr(kind.module, VALIDATORS[part])(new, old, **dict(kind.options))

    assert corpus.causes(mistakes) == case["want"]
