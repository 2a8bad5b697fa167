# SPDX-License-Identifier: Apache-2.0
"""`refloat delete pod` says which reason the pod has."""

import pytest

from refloat.api.core import Pod
from refloat.cli import delete
from tests.unit.policy.test_pod_reason import ended


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(
            ended(phase="Running", deleted=False), "pod pod-u deleted: Mine", id="the one given"
        ),
        pytest.param(
            ended(phase="Running", annotation="First", deleted=False),
            "pod pod-u deleted: Mine",
            id="nobody had deleted it",
        ),
        pytest.param(
            ended("First", phase="Running"),
            "pod pod-u was deleted before, and keeps that reason: First",
            id="that of an earlier delete",
        ),
        pytest.param(
            ended(annotation="First", phase="Running"),
            "pod pod-u was deleted before, and keeps that reason: First",
            id="that of an earlier delete, on Kubernetes",
        ),
        pytest.param(
            ended(phase="Running"), "pod pod-u deleted: Mine", id="the first that is given"
        ),
        pytest.param(
            ended(phase="Failed", deleted=False),
            "pod pod-u deleted; it had ended as Failed before",
            id="none",
        ),
    ],
)
def test_what_is_told(pod: Pod, want: str) -> None:
    assert delete.told(pod, "Mine") == want
