# SPDX-License-Identifier: Apache-2.0
"""The Jobs in the KEPs beside their user stories, in the words of the KEPs.

The user stories are in test_pod_failure and test_pod_replacement.
"""

import msgspec
import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.policy.job import pod_replacement
from refloat.policy.job.job_gates import ALL_ON, JobGates
from tests.unit.policy.builders import at, condition, container, pod, story
from tests.unit.policy.job.syncs import sync

# KEP-3329, pods that are deleted before their containers have begun.
INVALID_IMAGE = """
kind: Job
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: invalid-image
        image: non_existing_image_name:102
        command: ["bash"]
        args: ["-c", 'echo "Hello world"']
  podFailurePolicy:
    rules: []
  backoffLimit: 0
"""

INVALID_CONFIG_MAP = """
kind: Job
spec:
  template:
    spec:
      restartPolicy: Never
      volumes:
      - name: volume-name
        configMap:
          name: invalid-config-name-name
      containers:
      - name: invalid-configmap-ref
        image: centos:7
        command: ["bash"]
        args: ["-c", 'echo "Hello world"']
        volumeMounts:
        - mountPath: /script_path
          name: volume-name
  podFailurePolicy:
    rules: []
  backoffLimit: 0
"""

HUGE_IMAGE = """
kind: Job
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: huge-image
        image: sagemathinc/cocalc
        command: ["bash"]
        args: ["-c", 'sleep 60 && echo "Hello world"']
  podFailurePolicy:
    rules: []
  backoffLimit: 0
"""

# KEP-3939, the test of upgrading, downgrading and upgrading.
JOB_PRP = """
kind: Job
spec:
  completions: 1
  parallelism: 1
  backoffLimit: 2
  podReplacementPolicy: Failed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: sleep
        image: gcr.io/k8s-staging-perf-tests/sleep
        args: ["-termination-grace-period", "1m", "60s"]
"""

WRITTEN = {
    "an image that does not exist": INVALID_IMAGE,
    "a ConfigMap that does not exist": INVALID_CONFIG_MAP,
    "an image that takes long to come": HUGE_IMAGE,
}

UNREADY = [condition("Ready", "False", since=0)]


def reasons(job: Job, pods: list[Pod], seconds: float) -> list[tuple[str, str]]:
    done = sync(job, pods, at(seconds))
    result = done.status.conditions if done.statuses else job.status.conditions
    return [(each.type, each.reason) for each in result or ()]


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_pod_that_is_deleted_while_pending_fails_its_job_when_it_has_failed(written: str) -> None:
    """Not before: the policy, though without rules, has the Job wait (behaviour A15.1)."""
    batch_job = story(written)
    pending = pod("a", "Pending", deleted=30, grace=30, conditions=UNREADY)
    waiting = sync(batch_job, [pending], at(100))
    assert (waiting.status.terminating, waiting.status.failed, waiting.created) == (1, 0, ())
    assert waiting.status.conditions is None
    failed = pod("a", "Failed", deleted=30, grace=30, conditions=UNREADY)
    assert reasons(batch_job, [failed], 100) == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]


def test_a_replacement_comes_once_the_pod_was_fully_terminated() -> None:
    batch_job = story(JOB_PRP)
    running = pod("a", deleted=60, grace=60)
    during = sync(batch_job, [running], at(30))
    assert (during.status.terminating, during.created) == (1, ())
    ended_pod = pod(
        "a", "Failed", deleted=60, grace=60, containers=[container("sleep", 143, ended=60)]
    )
    assert len(sync(batch_job, [ended_pod], at(70)).created) == 1


def test_with_the_gate_off_a_replacement_comes_at_once() -> None:
    batch_job, off = story(JOB_PRP), JobGates(job_pod_replacement_policy=False)
    assert pod_replacement.only_replace_failed(batch_job.spec, ALL_ON)
    done = sync(batch_job, [pod("a", deleted=60, grace=60)], at(30), job_gates=off)
    assert (done.status.failed, len(done.created)) == (1, 1)
    assert done.status.terminating is None


def test_with_the_gate_on_again_the_pod_of_then_is_not_waited_for() -> None:
    status = msgspec.structs.replace(story(JOB_PRP).status, failed=1, active=1)
    node_info = msgspec.structs.replace(story(JOB_PRP), status=status)
    done = sync(node_info, [pod("a", deleted=60, grace=60, tracked=False), pod("b")], at(31))
    assert (done.status.terminating, done.status.active, done.status.failed) == (1, 1, 1)
    assert done.deleted == []
