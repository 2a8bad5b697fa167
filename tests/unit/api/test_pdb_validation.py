# SPDX-License-Identifier: Apache-2.0
"""Shares of pods in a disruption budget that are written with very many digits."""

from refloat.api.meta import Object
from refloat.api.validation import pdb


def budget(share: str) -> Object:
    spec = {"minAvailable": share, "selector": {}}
    return {"metadata": {"name": "b", "namespace": "default"}, "spec": spec}


def test_share_of_thousands_of_digits_is_refused_and_not_a_crash() -> None:
    [error] = pdb.validate_create(budget("9" * 5000 + "%"))
    assert (error.path, error.detail) == ("spec.minAvailable", "must not be greater than 100%")


def test_thousands_of_leading_zeros_do_not_count() -> None:
    assert pdb.validate_create(budget("0" * 5000 + "100%")) == []
