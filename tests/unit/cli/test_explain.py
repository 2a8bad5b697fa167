# SPDX-License-Identifier: Apache-2.0
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from refloat.base.errors import UsageError
from refloat.cli import explain, explain_output
from refloat.explain.codes import Cause, Code
from refloat.explain.explanation import Attempt, Command, Evidence, Explanation, Finding, NextStep
from tests.cases import cases
from tests.unit.app.test_simulated_nodes import KUBECONFIG
from tests.unit.cli.test_main import run


@cases(
    "argv want",
    {
        "a folder": (["pod/a/b"], "'pod/a/b': a name may not contain '/'"),
        "the folder above": (["node/.."], "'node/..': a name may not be '..'"),
        "an escape": (["pod/a%2f"], "'pod/a%2f': a name may not contain '%'"),
        "a namespace": (["pod/a", "-n", "b/c"], "namespace 'b/c': a name may not contain '/'"),
        "no name": (["pod/"], "'pod/': expected job/NAME, pod/NAME, node/NAME or cronjob/NAME"),
    },
)
def test_what_can_be_no_name_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    argv: list[str],
    want: str,
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    assert run(monkeypatch, "explain", *argv, "--kubeconfig", str(file)) == 2
    assert capsys.readouterr().err == f"refloat: {want}\n"


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def explanation(**fields: Any) -> Explanation:
    finding = Finding(
        Code.BACK_OFF,
        "the pods of the Job failed and the Job controller waits before the next one " * 3,
        (NextStep("creates the next pod", "the Job controller", NOW + timedelta(seconds=22)),),
        (Command("read the log", f"kubectl logs {'x' * 90}"),),
        (Evidence("job/train status", "active 0, succeeded 0, failed 1 " * 5),),
    )
    attempt = Attempt("train-x7k2p", 0, 1, "n1", NOW, NOW, Cause.OOM, "container main " * 9)
    values: dict[str, Any] = {"attempts": (attempt,) * 12, "limits": ("get nodes: what " * 9,)}
    return Explanation("Job", "ml", "train", NOW, finding, **(values | fields))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_only_commands_are_longer_than_a_line(columns: int) -> None:
    lines = explain_output.render(explanation(), columns)
    assert lines[0] == "job ml/train: Waiting/BackOff"
    long = [line for line in lines if len(line) > columns]
    assert long == ([f"    kubectl logs {'x' * 90}"] if columns < 107 else [])


def test_the_sections_stand_in_the_order_of_the_questions() -> None:
    lines = explain_output.render(explanation(), 80)
    titles = [line for line in lines[1:] if line and not line.startswith(" ") and len(line) < 20]
    assert titles == ["Next", "What you can do", "Attempts", "Evidence", "Not known"]
    assert any("(in 22s): the Job controller creates the next pod" in line for line in lines)
    assert "  2 earlier attempts: use -o json" in lines


def test_the_last_recorded_log_is_shown_without_control_characters() -> None:
    first = Attempt("train-a", cause=Cause.EXIT_CODE, log="first")
    last = Attempt("train-b", cause=Cause.EXIT_CODE, log="one\n\x1b[31mtwo")
    lines = explain_output.render(explanation(attempts=(first, last, Attempt("train-c"))), 80)
    assert "      | one" in lines
    assert "      | �[31mtwo" in lines
    assert not any("first" in line for line in lines)


def test_an_empty_section_has_no_title() -> None:
    lines = explain_output.render(explanation(attempts=(), limits=()), 80)
    assert "Attempts" not in lines
    assert "Not known" not in lines


@cases(
    "argv want",
    {
        "with slashes": (("job/a", "pod/b"), ["job/a", "pod/b"]),
        "as kubectl has it": (("job", "a", "b"), ["job/a", "job/b"]),
        "all Jobs": (("jobs",), ["jobs"]),
    },
)
def test_objects_are_named_as_kubectl_names_them(argv: tuple[str, ...], want: list[str]) -> None:
    assert explain._names(argv) == want


def test_a_file_names_the_objects(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "kind: Job\nmetadata: {name: a, namespace: ml}\n---\n"
        "kind: List\nitems: [{kind: Pod, metadata: {name: b}}, {kind: Secret, metadata: {name: c}}]"
    )
    assert explain._named_in(file, "default") == [("Job/a", "ml"), ("Pod/b", "default")]


@cases(
    "content want",
    {
        "another kind": ("kind: Secret", "names no Job, Pod, Node or CronJob"),
        "no YAML": ("a: [", "expected"),
    },
)
def test_a_file_that_names_nothing_is_wrong_use(tmp_path: Path, content: str, want: str) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=want):
        explain._named_in(file, "default")


@cases(
    "at want",
    {
        "the same day": (datetime(2026, 1, 1, 9, 30, tzinfo=UTC), "18:30:00"),
        "the same day in UTC, the next one here": (
            datetime(2026, 1, 1, 15, tzinfo=UTC),
            "2026-01-02 00:00:00",
        ),
    },
)
def test_times_are_local(monkeypatch: pytest.MonkeyPatch, at: datetime, want: str) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert explain_output.moment(at, NOW) == want
    finally:
        monkeypatch.undo()
        time.tzset()
