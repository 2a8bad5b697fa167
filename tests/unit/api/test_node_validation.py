# SPDX-License-Identifier: Apache-2.0
"""The taint effect that only Refloat knows, behind its gate."""

import copy

from refloat.api.meta import Object
from refloat.api.validation import node
from tests.unit.api import corpus


def _node(*effects: str) -> Object:
    taints = [{"key": f"k{i}", "effect": effect} for i, effect in enumerate(effects)]
    metadata = {"name": "n", "uid": corpus.UID, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"taints": taints}}


def test_force_eviction_is_accepted_when_its_gate_is_on() -> None:
    assert node.validate_create(_node("ForceEviction"), force_eviction=True) == []


def test_force_eviction_is_an_unknown_effect_when_its_gate_is_off() -> None:
    mistakes = node.validate_create(_node("ForceEviction"), force_eviction=False)

    (mistake,) = mistakes
    assert str(mistake) == (
        'metadata.taints[0].effect: Unsupported value: "ForceEviction": '
        'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
    )


def test_force_eviction_is_listed_when_its_gate_is_on() -> None:
    (mistake,) = node.validate_create(_node("Foo"), force_eviction=True)

    assert mistake.detail.endswith('"NoExecute", "ForceEviction"')


def test_a_node_with_such_a_taint_stays_changeable_when_the_gate_is_off() -> None:
    old = _node("ForceEviction")
    new = copy.deepcopy(old)
    new["spec"]["unschedulable"] = True

    assert node.validate_update(new, old, force_eviction=False) == []
    assert node.validate_status_update(new, old, force_eviction=False) == []


def test_such_a_taint_cannot_be_added_when_the_gate_is_off() -> None:
    assert node.validate_update(_node("ForceEviction"), _node(), force_eviction=False) != []
