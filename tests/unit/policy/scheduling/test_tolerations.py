# SPDX-License-Identifier: Apache-2.0
"""Which toleration matches which taint, and which taint is named when none does."""

from refloat.api.core import Taint, Toleration
from refloat.policy.scheduling import tolerations
from tests.cases import cases

GPU = Taint(key="gpu", value="a100", effect="NoSchedule")


@cases(
    "toleration want",
    {
        "key, value and effect equal": (Toleration("gpu", "Equal", "a100", "NoSchedule"), True),
        "no operator is Equal": (Toleration("gpu", "", "a100", "NoSchedule"), True),
        "another value": (Toleration("gpu", "Equal", "h100"), False),
        "an empty value is not any value": (Toleration("gpu", "Equal"), False),
        "Exists asks for no value": (Toleration("gpu", "Exists"), True),
        "another key": (Toleration("cpu", "Exists"), False),
        "Exists without a key is every taint": (Toleration("", "Exists"), True),
        "another effect": (Toleration("", "Exists", "", "NoExecute"), False),
        "no effect is every effect": (Toleration("gpu", "Exists", "", ""), True),
        "Lt never (behaviour 0.2)": (Toleration("gpu", "Lt", "a100"), False),
        "Gt never (behaviour 0.2)": (Toleration("gpu", "Gt", "0"), False),
    },
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
    present = (Toleration("a", "Exists"),)
    assert tolerations.untolerated(taints, present, tolerations.REPELLING) == taints[1]


def test_overlooks_other_effects() -> None:
    taints = (Taint("a", "", "PreferNoSchedule"), Taint("b", "", "ForceEviction"))
    assert tolerations.untolerated(taints[:1], None, tolerations.REPELLING) is None
    assert tolerations.untolerated(taints, (), ("NoExecute", "NoSchedule")) is None
    assert tolerations.untolerated(taints, (), ("ForceEviction",)) == taints[1]


FORCE = Taint(key="down", value="yes", effect="ForceEviction")


@cases(
    "toleration want",
    {
        "its effect": (Toleration("down", "Exists", "", "ForceEviction"), True),
        "no effect is this one too": (Toleration("down", "Exists"), True),
        "whoever tolerates everything": (Toleration("", "Exists"), True),
        "NoExecute alone": (Toleration("down", "Exists", "", "NoExecute"), False),
    },
)
def test_force_eviction_is_tolerated_as_any_effect(toleration: Toleration, want: bool) -> None:
    """KEP-36"""
    assert tolerations.tolerates(toleration, FORCE) is want


def test_nothing_is_untolerated_without_taints() -> None:
    assert tolerations.untolerated(None, None, tolerations.REPELLING) is None
