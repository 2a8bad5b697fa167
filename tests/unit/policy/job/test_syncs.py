# SPDX-License-Identifier: Apache-2.0
"""Whole syncs, as Kubernetes v1.36.3 makes them.

Each case in `data/syncs.json` is a Job with its pods, and what the Job
controller of Kubernetes wrote, removed, deleted and created for it. The Jobs
are random: most of them could not come about, so that rules meet which would
hardly ever meet. Left out are those whose status the API would refuse, and
those in which pods were deleted because the Job had succeeded, by a sync that
came no further: Kubernetes then counts them as failures (test_accounting).
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.api import times
from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import pod_state
from refloat.policy.job.backoff import Record
from refloat.policy.job.scaling import NewPod
from tests.unit.policy.job.syncs import sync


def are_conditions_true(case: Object, *kinds: str) -> bool:
    conditions = case["job"].get("status", {}).get("conditions") or ()
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)


def dismisses(case: Object) -> bool:
    """Whether failed pods were deleted after a success."""
    return are_conditions_true(case, "SuccessCriteriaMet") and any(
        "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Failed"
        for pod in case["pods"]
    )


ALL = json.loads((Path(__file__).parent / "data" / "syncs.json").read_text())
CASES = [case for case in ALL if not dismisses(case)]


def test_hardly_any_case_is_left_out() -> None:
    assert len(ALL) - len(CASES) == 1


def name_of(case: Object) -> str:
    spec = case["job"]["spec"]
    reasons = [
        condition["reason"]
        for status in case["want"]["statuses"][-1:]
        for condition in status["conditions"][-1:]
    ]
    mode = spec.get("completionMode", "NonIndexed")
    return f"{mode}, {len(case['pods'])} pods, {', '.join(reasons) or 'goes on'}"


def comparable(status: JobStatus) -> Object:
    lists = status.uncounted_terminated_pods
    assert lists is not None
    body = {field: getattr(status, field) for field in status.__struct_fields__}
    body["conditions"] = [known(each) for each in msgspec.to_builtins(status.conditions or ())]
    body["uncounted_terminated_pods"] = [
        sorted(uids or ()) for uids in (lists.succeeded, lists.failed)
    ]
    return body


def wanted(sent: Object) -> Object:
    """An absent member and an empty one are the same, in what is written."""
    return comparable(msgspec.convert(sent, JobStatus))


def known(condition: Object) -> Object:
    return {key: value for key, value in condition.items() if value}


def annotations(new: NewPod) -> dict[str, str]:
    expected = {} if new.index is None else {pod_state.COMPLETION_INDEX: str(new.index)}
    return {**expected, **(new.failures.annotations() if new.failures else {})}


def record(failures: int, last: str | None) -> Record:
    return Record(failures, None if last is None else times.parse(last))


def by_text(created: Iterable[dict[str, str]]) -> list[Any]:
    return sorted(sorted(each.items()) for each in created)


@pytest.mark.parametrize("case", CASES, ids=map(name_of, CASES))
def test_a_sync_is_that_of_kubernetes(case: Object) -> None:
    job = msgspec.json.decode(json.dumps(case["job"]), type=Job)
    pods = msgspec.convert(case["pods"], list[Pod])
    want = case["want"]
    before = record(case["failures"], case["lastFailure"])
    done = sync(job, pods, times.parse(case["now"]), record=before)
    assert list(map(comparable, done.statuses)) == list(map(wanted, want["statuses"]))
    assert sorted(done.released) == want["released"]
    assert sorted(done.deleted) == want["deleted"]
    assert by_text(map(annotations, done.created)) == by_text(want["created"])
    if not are_conditions_true(case, "SuccessCriteriaMet", "FailureTarget"):
        # Nothing is created any more: what keeps it from being is of no meaning.
        assert done.record == record(want["failures"], want["lastFailure"])
