# SPDX-License-Identifier: Apache-2.0
"""`refloat policy convert`: what goes in, what comes out, and how it ends."""

from pathlib import Path

import pytest
import yaml

from refloat.api import goyaml
from refloat.api.meta import Object
from tests.cases import cases
from tests.unit.cli.test_main import run
from tests.unit.policy.job import backoff_stories

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i}]
"""


class Command:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._file = file

    def __call__(self, text: str, *argv: str) -> tuple[int, str, str]:
        """The exit code, and what came out of both ends."""
        self._file.write_text(text)
        code = run(self._monkeypatch, "policy", "convert", str(self._file), *argv)
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err

    def made(self, text: str, *argv: str) -> Object:
        code, out, _ = self(text, *argv)
        assert code == 0
        made: Object = yaml.safe_load(out)
        return made


@pytest.fixture
def convert(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    return Command(monkeypatch, capsys, tmp_path / "policy.yaml")


def job(**given: str) -> str:
    """A Job with a policy, and something in the place of what it should have."""
    text = JOB.replace("{name: j}", given.get("metadata", "{name: j}"))
    text = text.replace("[{name: main, image: i}]", given.get("containers", "[{name: main}]"))
    if "pod" in given:
        text = text.partition("    spec:\n")[0] + f"    spec: {given['pod']}\n"
    return f"{text}  backoffPolicy: {{{CODES}}}\n"


CODES = "rules: [{action: Terminate, containerExitCodeIn: 1-3}]"
VALUES = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}}]}
RANGES = {"rules": [{"action": "Terminate", "containerExitCodeIn": "1-3"}]}


@cases("text", {"rules alone": CODES, "under its name": f"backoffPolicy: {{{CODES}}}"})
def test_a_policy_alone_is_converted(convert: Command, text: str) -> None:
    assert convert.made(text) == {"podFailurePolicy": VALUES}


@pytest.mark.parametrize(
    "text", [yaml.safe_dump(VALUES), yaml.safe_dump({"podFailurePolicy": VALUES})]
)
def test_it_goes_the_other_way_too(convert: Command, text: str) -> None:
    assert convert.made(text) == {"backoffPolicy": RANGES}


def test_the_policy_of_a_job_is_converted_in_its_place(convert: Command) -> None:
    there = convert.made(f"{JOB}  backoffLimit: 3\n  backoffPolicy: {{{CODES}}}\n")
    want = yaml.safe_load(JOB)
    want["spec"] |= {"backoffLimit": 3, "podFailurePolicy": VALUES}
    assert there == want
    back = convert.made(yaml.safe_dump(there))
    assert back["spec"]["backoffPolicy"] == RANGES
    assert "podFailurePolicy" not in back["spec"]


def test_the_rest_of_a_job_means_to_kubernetes_what_it_meant(convert: Command) -> None:
    given = f"{JOB}  backoffPolicy: {{{CODES}}}\n".replace(
        "image: i}", """image: i, args: ["1e3", "y", "0o14"], env: [{name: V, value: "n"}]}"""
    )
    code, out, _ = convert(given)
    assert code == 0
    (made, _), (want, _) = goyaml.parse(out.encode()), goyaml.parse(given.encode())
    assert made["spec"]["template"] == want["spec"]["template"]


def test_the_policy_in_an_annotation_is_found(convert: Command) -> None:
    annotation = f"""{{name: j, annotations: {{a: b, refloat.dev/backoff-policy: "{CODES}"}}}}"""
    made = convert.made(JOB.replace("{name: j}", annotation))
    assert made["spec"]["podFailurePolicy"] == VALUES
    assert made["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("text", [backoff_stories.ALTERNATIVE_1, backoff_stories.ALTERNATIVE_2])
def test_the_alternatives_of_the_kep_become_a_backoff_policy(convert: Command, text: str) -> None:
    [codes, reasons] = convert.made(text)["backoffPolicy"]["rules"]
    assert codes["containerName"] == "main-job-container"
    assert reasons["podStatusReasonIn"] == ["Preemption", "NodePressureEviction"]


def test_the_alternatives_of_the_kep_become_a_pod_failure_policy_if_asked(convert: Command) -> None:
    made = convert.made(backoff_stories.ALTERNATIVE_2, "--to", "podFailurePolicy")
    codes = made["podFailurePolicy"]["rules"][0]["onExitCodes"]
    assert codes["values"] == list(range(40, 51))


def test_what_is_lost_is_told_in_lines_that_fit(convert: Command) -> None:
    code, out, err = convert("rules: [{action: Ignore, podStatusReasonIn: [Preemption]}]")
    assert code == 0
    assert "DisruptionTarget" in out
    assert err.startswith("warning: backoffPolicy.rules[0].podStatusReasonIn: DisruptionTarget")
    assert all(len(line) < 80 for line in err.splitlines())


@cases(
    "text want_code want",
    {
        "what cannot be said": (
            "rules: [{action: Terminate, podStatusReasonIn: [OOMKilled]}]",
            1,
            (
                "cannot be converted: backoffPolicy.rules[0].podStatusReasonIn: 'OOMKilled' is the "
                "reason of no disruption, and there is no condition for it"
            ),
        ),
        "what the API would not take": (
            "rules: [{action: Terminate, containerExitCodeIn: 3-1}]",
            2,
            (
                'backoffPolicy.rules[0].containerExitCodeIn: Invalid value: "3-1": '
                'the range "3-1" ends before it begins'
            ),
        ),
        "an action that there is not": (
            "rules: [{action: Stop, onExitCodes: {operator: In, values: [1]}}]",
            2,
            'spec.podFailurePolicy.rules[0].action: Unsupported value: "Stop"',
        ),
        "a field that there is not": (
            "rules: [{action: Terminate, exitCodeIn: '1'}]",
            2,
            'backoffPolicy: unknown field "rules[0].exitCodeIn"',
        ),
        "a number for a text": (
            "rules: [{action: Terminate, containerExitCodeIn: 1}]",
            2,
            "cannot unmarshal number",
        ),
        "more digits than a number has": (
            f"backoffPolicy: {{rules: {'9' * 5000}}}",
            2,
            "cannot unmarshal string",
        ),
        "a list": ("[]", 2, "expected a Job, or a policy with rules"),
        "something else": ("a: b", 2, "expected a Job, or a policy with rules"),
        "no policy": ("backoffPolicy: 3", 2, "expected an object with rules"),
        "a Job without one": (JOB, 2, "the Job has no policy for failures"),
        "a Job with two": (
            f"{JOB}  backoffPolicy: {{{CODES}}}\n  podFailurePolicy: {{rules: [{{}}]}}\n",
            2,
            "the Job has more than one policy for failures",
        ),
        "metadata that is none": (
            job(metadata="foo"),
            2,
            "cannot unmarshal string into Go struct field Job.metadata of type",
        ),
        "metadata, a list": (job(metadata="[x]"), 2, "Job.metadata of type"),
        "annotations, a list": (job(metadata="{annotations: [x]}"), 2, "metadata.annotations"),
        "an annotation that is no text": (
            job(metadata="{annotations: {refloat.dev/backoff-policy: {}}}"),
            2,
            "metadata.annotations of type string",
        ),
        "a pod that is none": (job(pod="foo"), 2, "spec.template.spec of type"),
        "no container": (job(containers="[foo]"), 2, "spec.template.spec.containers of"),
        "no containers": (job(containers="3"), 2, "spec.template.spec.containers of"),
        "no name": (job(containers="[{name: [1]}]"), 2, "containers.name of type string"),
        "a field twice in the annotation": (
            JOB.replace(
                "{name: j}", "{annotations: {refloat.dev/backoff-policy: '{rules: [], rules: []}'}}"
            ),
            2,
            (
                "metadata.annotations[refloat.dev/backoff-policy]: "
                'line 1: key "rules" already set in map'
            ),
        ),
        "a reason that is no text": (
            (
                "rules: [{action: Ignore, onPodStatus: {reasonExpressions: "
                "[{operator: In, values: [[1]]}]}}]"
            ),
            2,
            "reasonExpressions[0].values[0]: expected a text, found [1]",
        ),
        "no Job": ("kind: Job", 2, "spec.template: the Job has none"),
        "no YAML": (
            "a: b\n c: d",
            2,
            "policy.yaml: line 2, column 3: mapping values are not allowed in this context",
        ),
        "no text": ("a: \x01", 2, "control characters are not allowed"),
        "an alias of nothing": ("a: *b", 2, "unknown anchor 'b' referenced"),
        "too deep": ("[" * 9000 + "]" * 9000, 2, "nested too deeply"),
        "a deep Job": (job(metadata="{a: " * 900 + "{}" + "}" * 900), 2, "nested too deeply"),
        "deeper than Go": ("[" * 10001 + "]" * 10001, 2, "exceeded max depth"),
        "two documents": ("a: b\n---\nc: d", 2, "expected one document"),
        "a field twice": ("{rules: [], rules: []}", 2, "already set"),
    },
)
def test_what_is_refused_says_why(convert: Command, text: str, want_code: int, want: str) -> None:
    code, out, err = convert(text)
    assert (code, out) == (want_code, "")
    assert want in err
    assert err.count("\n") == 1
