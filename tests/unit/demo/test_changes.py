# SPDX-License-Identifier: Apache-2.0
"""What a watch event is told as."""

from typing import Any

import pytest

from refloat.demo import changes


def _pod(**status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {}, "status": status}


def _with(part: str, **fields: Any) -> dict[str, Any]:
    obj = _pod(phase="Pending")
    obj[part] = {**obj[part], **fields}
    return obj


READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False", "reason": "PodFailed"}

CASES = [
    pytest.param(None, _pod(phase="Pending"), "Pending", id="a new pod has a phase"),
    pytest.param(
        None,
        _with("spec", nodeName="node-a"),
        "Pending, on node-a",
        id="a new pod may be on a node",
    ),
    pytest.param(
        None, {"metadata": {"name": "c"}}, "new", id="a new object of which no more is known"
    ),
    pytest.param(
        None,
        {"metadata": {"name": "j"}, "spec": {"completions": 2}},
        "2 completions wanted",
        id="a new Job",
    ),
    pytest.param(
        _pod(phase="Pending"), _pod(phase="Running"), "Pending -> Running", id="a phase changes"
    ),
    pytest.param(
        _pod(), _with("spec", nodeName="n"), "bound to n, None -> Pending", id="a pod is bound"
    ),
    pytest.param(_pod(active=1), _pod(active=2), "active 1 -> 2", id="a count changes"),
    pytest.param(_pod(), _pod(failed=1), "failed 0 -> 1", id="an absent count is none"),
    pytest.param(_pod(), _pod(conditions=[READY]), "Ready", id="a condition comes true"),
    pytest.param(
        _pod(conditions=[READY]),
        _pod(conditions=[UNREADY]),
        "Ready=False (PodFailed)",
        id="a condition becomes false, with a reason",
    ),
    pytest.param(
        _with("metadata"),
        _with("metadata", deletionTimestamp="t", deletionGracePeriodSeconds=30),
        "being deleted, grace 30 s",
        id="a deletion begins",
    ),
    pytest.param(
        _with("metadata"),
        _with("metadata", deletionTimestamp="t"),
        "being deleted",
        id="a deletion without a grace begins",
    ),
    pytest.param(
        _with("metadata", finalizers=["example.com/a"]),
        _with("metadata", finalizers=["example.com/b"]),
        "finalizer a gone, finalizer b set",
        id="finalizers come and go",
    ),
    pytest.param(
        _with("metadata", labels={"a": "1"}),
        _with("metadata", labels={"a": "2"}),
        "metadata.labels",
        id="what has no words is told by its name",
    ),
    pytest.param(
        {"metadata": {}, "data": None},
        {"metadata": {}, "data": {"a": "1"}},
        "data",
        id="a whole part appears",
    ),
    pytest.param(
        _with("metadata", resourceVersion="1"),
        _with("metadata", resourceVersion="2"),
        "no change",
        id="a new revision alone is no change",
    ),
]


@pytest.mark.parametrize(("old", "new", "want"), CASES)
def test_a_change_is_told_in_a_few_words(
    old: dict[str, Any] | None, new: dict[str, Any], want: str
) -> None:
    assert changes.describe(old, new) == want


def test_a_condition_that_stays_is_not_told() -> None:
    before, after = (
        _pod(phase="Pending", conditions=[READY]),
        _pod(conditions=[READY], phase="Running"),
    )
    assert changes.describe(before, after) == "Pending -> Running"
