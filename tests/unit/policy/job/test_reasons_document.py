# SPDX-License-Identifier: Apache-2.0
"""docs/reasons.md agrees with the code, and with what Refloat itself writes."""

import re
from pathlib import Path

from refloat.policy.job import pod_reason
from tests.unit.policy.job.test_pod_reason import ended

DOCUMENT = Path(__file__).parents[4] / "docs" / "reasons.md"

CODE = re.compile("`([^`]+)`")


def table(header: str, document: Path = DOCUMENT) -> list[list[str]]:
    """The rows of the table with this header, as cells."""
    rest = document.read_text().partition(f"\n{header}\n")[2]
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


CAUSES = table("| cause | reason | without it, from `DisruptionTarget` |")
KUBELETS = table("| cause | reason | also |")


def test_what_follows_from_the_condition_is_as_documented() -> None:
    documented = {
        target: CODE.findall(reason)[0]
        for _, reason, targets in CAUSES
        for target in CODE.findall(targets)
    }
    assert len(documented) == 6
    for target, reason in documented.items():
        assert pod_reason.of(ended(target=target)) == (reason,)


def test_the_second_names_are_as_documented() -> None:
    documented = {CODE.findall(reason)[0]: CODE.findall(also) for _, reason, also in KUBELETS[:3]}
    assert documented == {
        reason: list(pod_reason.of(ended(reason, target="TerminationByKubelet"))[1:])
        for reason in documented
    }
    for _, reason, also in KUBELETS[3:-1]:
        [name] = CODE.findall(reason)
        assert not also
        assert pod_reason.of(ended(name)) == (name,)


def test_every_reason_that_refloat_writes_is_documented() -> None:
    documented = {
        value
        for name, value in vars(pod_reason).items()
        if name.isupper() and isinstance(value, str) and name not in ("ANNOTATION", "NONE")
    }
    expected = {name for row in (*CAUSES, *KUBELETS) for cell in row for name in CODE.findall(cell)}
    assert len(documented) == 10
    assert documented - expected == set()
