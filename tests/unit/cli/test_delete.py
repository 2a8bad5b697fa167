# SPDX-License-Identifier: Apache-2.0
"""`refloat delete pod` says which reason the pod has."""

import pytest

from refloat.api.core import Pod
from refloat.cli import delete
from tests.cases import cases
from tests.unit.cli.test_main import run
from tests.unit.policy.job.test_pod_reason import ended


@cases(
    "argv want",
    {
        "nothing": ([""], "'': expected the name of a pod, which may not be empty"),
        "a path": (["../x"], "'../x': expected the name of a pod, which may not contain '/'"),
        "a namespace": (
            ["a", "-n", ".."],
            "'..': expected the name of a namespace, which may not be '..'",
        ),
    },
)
def test_what_can_be_no_name_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], want: str
) -> None:
    assert run(monkeypatch, "delete", "pod", *argv, "--reason", "Mine") == 2
    assert capsys.readouterr().err == f"refloat: {want}\n"


@cases(
    "what want",
    {
        "with a slash": (["pod/a"], ["a"]),
        "as two words": (["pod", "a"], ["a"]),
        "several with slashes": (["pods/a", "po/b"], ["a", "b"]),
        "several names of one kind": (["pod", "a", "b"], ["a", "b"]),
    },
)
def test_pods_are_named_as_kubectl_names_them(what: list[str], want: list[str]) -> None:
    assert delete.pod_names(what) == want


@cases(
    "argv want",
    {
        "nothing": ([], "expected pod/NAME, or pod NAME"),
        "no kind": (["a"], "'a': expected pod/NAME, or pod NAME"),
        "a Job": (["job/a"], "'job/a': expected pod/NAME, or pod NAME"),
        "the second without a kind": (["pod/a", "b"], "'b': expected pod/NAME, or pod NAME"),
        "a kind alone": (["pod"], "expected the name of a pod, for example pod/train-0"),
        "no name": (["pod/"], "'': expected the name of a pod, which may not be empty"),
    },
)
def test_what_names_no_pod_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], want: str
) -> None:
    assert run(monkeypatch, "delete", *argv, "--reason", "Mine") == 2
    assert capsys.readouterr().err == f"refloat: {want}\n"


@cases(
    "pod want",
    {
        "the one given": (ended(phase="Running", deleted=False), "pod pod-u deleted: Mine"),
        "nobody had deleted it": (
            ended(phase="Running", annotation="First", deleted=False),
            "pod pod-u deleted: Mine",
        ),
        "that of an earlier delete": (
            ended("First", phase="Running"),
            "pod pod-u was deleted before, and keeps that reason: First",
        ),
        "that of an earlier delete, on Kubernetes": (
            ended(annotation="First", phase="Running"),
            "pod pod-u was deleted before, and keeps that reason: First",
        ),
        "the first that is given": (ended(phase="Running"), "pod pod-u deleted: Mine"),
        "none": (
            ended(phase="Failed", deleted=False),
            "pod pod-u deleted; it had ended as Failed before",
        ),
    },
)
def test_the_message_names_the_reason_that_the_pod_has(pod: Pod, want: str) -> None:
    assert delete.outcome(pod, "Mine") == want
