# SPDX-License-Identifier: Apache-2.0
"""Which toleration matches which taint, and which taint is named when none does."""

import pytest

from refloat.api.core import Taint, Toleration
from refloat.policy import tolerations

GPU = Taint(key="gpu", value="a100", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(
            Toleration("gpu", "Equal", "a100", "NoSchedule"), True, id="key, value and effect equal"
        ),
        pytest.param(Toleration("gpu", "", "a100", "NoSchedule"), True, id="no operator is Equal"),
        pytest.param(Toleration("gpu", "Equal", "h100"), False, id="another value"),
        pytest.param(Toleration("gpu", "Equal"), False, id="an empty value is not any value"),
        pytest.param(Toleration("gpu", "Exists"), True, id="Exists asks for no value"),
        pytest.param(Toleration("cpu", "Exists"), False, id="another key"),
        pytest.param(Toleration("", "Exists"), True, id="Exists without a key is every taint"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="another effect"),
        pytest.param(Toleration("gpu", "Exists", "", ""), True, id="no effect is every effect"),
        pytest.param(Toleration("gpu", "Lt", "a100"), False, id="Lt never (behaviour 0.2)"),
        pytest.param(Toleration("gpu", "Gt", "0"), False, id="Gt never (behaviour 0.2)"),
    ],
)
def test_a_toleration_matches(toleration: Toleration, want: bool) -> None:
    assert tolerations.tolerates(toleration, GPU) is want


def test_numbers_are_not_compared() -> None:
    taint = Taint(key="rank", value="5", effect="NoSchedule")
    assert not tolerations.tolerates(Toleration("rank", "Gt", "3"), taint)
    assert not tolerations.tolerates(Toleration("rank", "Lt", "9"), taint)


def test_names_the_first_taint_that_nobody_tolerates() -> None:
    taints = (
        Taint("a", "", "NoSchedule"),
        Taint("b", "", "NoExecute"),
        Taint("c", "", "NoExecute"),
    )
    held = (Toleration("a", "Exists"),)
    assert tolerations.untolerated(taints, held, tolerations.REPELLING) == taints[1]


def test_overlooks_other_effects() -> None:
    taints = (Taint("a", "", "PreferNoSchedule"), Taint("b", "", "ForceEviction"))
    assert tolerations.untolerated(taints[:1], None, tolerations.REPELLING) is None
    assert tolerations.untolerated(taints, (), ("NoExecute", "NoSchedule")) is None
    assert tolerations.untolerated(taints, (), ("ForceEviction",)) == taints[1]


FORCE = Taint(key="down", value="yes", effect="ForceEviction")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(Toleration("down", "Exists", "", "ForceEviction"), True, id="its effect"),
        pytest.param(Toleration("down", "Exists"), True, id="no effect is this one too"),
        pytest.param(Toleration("", "Exists"), True, id="whoever tolerates everything"),
        pytest.param(Toleration("down", "Exists", "", "NoExecute"), False, id="NoExecute alone"),
    ],
)
def test_force_eviction_is_tolerated_as_any_effect(toleration: Toleration, want: bool) -> None:
    """KEP-36"""
    assert tolerations.tolerates(toleration, FORCE) is want


def test_nothing_is_untolerated_without_taints() -> None:
    assert tolerations.untolerated(None, None, tolerations.REPELLING) is None
