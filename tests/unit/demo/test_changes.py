# SPDX-License-Identifier: Apache-2.0
"""What a watch event is told as."""

from typing import Any

from refloat.demo import changes
from tests.cases import cases


def _pod(**status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {}, "status": status}


def _with(part: str, **fields: Any) -> dict[str, Any]:
    obj = _pod(phase="Pending")
    obj[part] = {**obj[part], **fields}
    return obj


READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False", "reason": "PodFailed"}

CASES: dict[str, Any] = {
    "a new pod has a phase": (None, _pod(phase="Pending"), "Pending"),
    "a new pod may be on a node": (None, _with("spec", nodeName="node-a"), "Pending, on node-a"),
    "a new object of which no more is known": (None, {"metadata": {"name": "c"}}, "new"),
    "a new Job": (
        None,
        {"metadata": {"name": "j"}, "spec": {"completions": 2}},
        "2 completions wanted",
    ),
    "a phase changes": (_pod(phase="Pending"), _pod(phase="Running"), "Pending -> Running"),
    "a pod is bound": (_pod(), _with("spec", nodeName="n"), "bound to n, None -> Pending"),
    "a count changes": (_pod(active=1), _pod(active=2), "active 1 -> 2"),
    "an absent count is none": (_pod(), _pod(failed=1), "failed 0 -> 1"),
    "a condition comes true": (_pod(), _pod(conditions=[READY]), "Ready"),
    "a condition becomes false, with a reason": (
        _pod(conditions=[READY]),
        _pod(conditions=[UNREADY]),
        "Ready=False (PodFailed)",
    ),
    "a deletion begins": (
        _with("metadata"),
        _with("metadata", deletionTimestamp="t", deletionGracePeriodSeconds=30),
        "being deleted, grace 30 s",
    ),
    "a deletion without a grace begins": (
        _with("metadata"),
        _with("metadata", deletionTimestamp="t"),
        "being deleted",
    ),
    "finalizers come and go": (
        _with("metadata", finalizers=["example.com/a"]),
        _with("metadata", finalizers=["example.com/b"]),
        "finalizer a gone, finalizer b set",
    ),
    "what has no words is told by its name": (
        _with("metadata", labels={"a": "1"}),
        _with("metadata", labels={"a": "2"}),
        "metadata.labels",
    ),
    "a whole part appears": (
        {"metadata": {}, "data": None},
        {"metadata": {}, "data": {"a": "1"}},
        "data",
    ),
    "a new revision alone is no change": (
        _with("metadata", resourceVersion="1"),
        _with("metadata", resourceVersion="2"),
        "no change",
    ),
}


@cases("old new want", CASES)
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
