# SPDX-License-Identifier: Apache-2.0
"""docs/backoff-policy.md says what is refused, word for word."""

from typing import Any

import pytest

from refloat.api import goyaml
from tests.unit.api.test_backoff_policy_validation import in_job
from tests.unit.policy.job.test_reasons_document import DOCUMENT, table

PAGE = DOCUMENT.with_name("backoff-policy.md")

RULES = table("| rule | message |", PAGE)
FIELDS = table("| field | message |", PAGE)


def given(cell: str) -> Any:
    """As kubectl reads it."""
    return goyaml.parse(cell.strip("`").encode())[0]


@pytest.mark.parametrize(("rule", "message"), RULES, ids=[rule for rule, _ in RULES])
def test_a_rule_is_refused_as_documented(rule: str, message: str) -> None:
    job = in_job(backoffPolicy={"rules": [given(rule)]})
    assert job == [f"spec.backoffPolicy.rules[0]{message.strip('`')}"]


@pytest.mark.parametrize(("field", "message"), FIELDS, ids=[field for field, _ in FIELDS])
def test_a_field_beside_the_policy_is_refused_as_documented(field: str, message: str) -> None:
    spec = given(field)
    if "template" in spec:
        spec = spec["template"]["spec"]
    assert in_job(**spec) == [message.strip("`")]


def test_each_kind_of_mistake_is_documented() -> None:
    assert len(RULES) == 15
    assert len(FIELDS) == 3
