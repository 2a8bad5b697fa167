# SPDX-License-Identifier: Apache-2.0
"""`refloat delete pod` says which reason the pod has."""

import pytest

from refloat.api.core import Pod
from refloat.cli import delete
from tests.unit.cli.test_main import run
from tests.unit.policy.test_pod_reason import ended


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        pytest.param([""], "'': expected the name of a pod, which may not be empty", id="nothing"),
        pytest.param(
            ["../x"], "'../x': expected the name of a pod, which may not contain '/'", id="a path"
        ),
        pytest.param(
            ["a", "-n", ".."],
            "'..': expected the name of a namespace, which may not be '..'",
            id="a namespace",
        ),
    ],
)
def test_what_can_be_no_name_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], want: str
) -> None:
    assert run(monkeypatch, "delete", "pod", *argv, "--reason", "Mine") == 2
    assert capsys.readouterr().err == f"refloat: {want}\n"


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
