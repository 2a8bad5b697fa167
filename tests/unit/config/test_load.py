# SPDX-License-Identifier: Apache-2.0
"""The configuration file: what it may say, and how a mistake in it is told."""

from pathlib import Path

import pytest
import yaml

from refloat.config import load
from refloat.config.errors import ConfigError
from tests.cases import cases

HEAD = "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"
RECOVERY = f"{HEAD}failureRecoveryPolicy:\n"
DESIGN = f"""{HEAD}
featureGates: {{FailureRecoveryPolicy: true}}
failureRecoveryPolicy:
  mode: Enforce                    # or Report: decide, tell, touch nothing
  annotated:                       # pods that carry the opt-in annotation
    forcefulTerminationGracePeriod: 1m
    namespaceSelector: {{}}
  rules:                           # first match wins; exactly one action per rule
  - terminatePod:
      podLabelSelector:
        matchExpressions: [{{key: example.com/pod-safe-to-fail, operator: In, values: ["true"]}}]
      forcefulTerminationGracePeriod: 5m      # required: no default
      deleteAfter: 10m                        # optional
      requireSelfFence: false
  - taintNodeOutOfService: {{unreachableNodeTimeout: 10m, nodeSelector: {{}}, allPods: false}}
  budget: {{maxPods: 500, window: 1m}}          # optional; unset is unlimited
  holdAboveUnreachableNodes: 55%              # counts only when more than 2 nodes are unreachable
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "refloat.yaml"
    path.write_text(text)
    return path


def test_file_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    assert load.load(written(tmp_path, HEAD)) == load.Configuration()


def test_gates_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "featureGates: {TaintForceEviction: true}\n")
    assert load.load(path).feature_gates == {"TaintForceEviction": True}


@cases(
    "text lines",
    {
        "are off": ("", 0),
        "may be empty": ("attemptLogs:", 0),
        "are set": ("attemptLogs: {lines: 5}", 5),
    },
)
def test_lines_of_logs(tmp_path: Path, text: str, lines: int) -> None:
    assert load.load(written(tmp_path, HEAD + text)).attempt_logs.lines == lines


def test_empty_gates_are_none(tmp_path: Path) -> None:
    assert load.load(written(tmp_path, HEAD + "featureGates:\n")).feature_gates == {}


@cases(
    "text message",
    {
        "an empty file": ("", "the document: None: expected a mapping"),
        "a list": ("- a", "the document: ['a']: expected a mapping"),
        "no YAML": ("a: [", "is not YAML: "),
        "no version": (
            "kind: Configuration",
            "apiVersion: None: expected 'config.refloat.dev/v1alpha1'",
        ),
        "another kind": (
            HEAD.replace("Configuration", "Pod"),
            "kind: 'Pod': expected 'Configuration'",
        ),
        "an unknown field": (HEAD + "foo: 1", "foo: unknown field; known are: "),
        "too many lines of logs": (
            HEAD + "attemptLogs: {lines: 21}",
            "attemptLogs.lines: 21: expected a whole number from 0 to 20",
        ),
        "lines of logs that are no number": (
            HEAD + "attemptLogs: {lines: true}",
            "attemptLogs.lines: True: expected a whole number from 0 to 20",
        ),
        "gates in a list": (HEAD + "featureGates: [a]", "featureGates: ['a']: expected a mapping"),
        "a gate that is neither": (
            HEAD + "featureGates: {TaintForceEviction: 'yes'}",
            "featureGates.TaintForceEviction: 'yes': expected true or false",
        ),
        "an unknown gate": (
            HEAD + "featureGates: {Nope: true}",
            "featureGates: unknown feature gate 'Nope'; known are: ",
        ),
        "a day that there is not, for a duration": (
            RECOVERY + "  annotated: {deleteAfter: 2026-13-01}",
            "failureRecoveryPolicy.annotated.deleteAfter: '2026-13-01': expected a duration such ",
        ),
        "a day, for a duration": (
            RECOVERY + "  annotated: {deleteAfter: 2026-12-01}",
            "failureRecoveryPolicy.annotated.deleteAfter: '2026-12-01': expected a duration such ",
        ),
        "a number of 5,000 digits": (
            RECOVERY + f"  budget: {{maxPods: {'9' * 5000}, window: 1m}}",
            "failureRecoveryPolicy.budget.maxPods: '9999",
        ),
        "a duration of 5,000 digits": (
            RECOVERY + f"  budget: {{maxPods: 1, window: {'9' * 5000}s}}",
            "failureRecoveryPolicy.budget.window: '9999",
        ),
        "a percentage of 5,000 digits": (
            RECOVERY + f"  holdAboveUnreachableNodes: {'9' * 5000}%",
            "failureRecoveryPolicy.holdAboveUnreachableNodes: '9999",
        ),
        "deep nesting": (
            HEAD + f"featureGates: {'[' * 5000}{']' * 5000}",
            "featureGates: [[[[[[[...]]]]]]]: expected a mapping",
        ),
        "deeper nesting": (
            HEAD + f"featureGates: {'[' * 10001}{']' * 10001}",
            "yaml: exceeded max depth of 10000",
        ),
        "nesting in a key": (f"? {'[' * 5000}{']' * 5000}\n: 1", "is nested too deeply"),
        "a key twice": (
            HEAD + "featureGates: {TaintForceEviction: false, TaintForceEviction: true}",
            'line 3: key "TaintForceEviction" already set in map',
        ),
        "a key twice, further down": (
            RECOVERY + "  mode: Report\n  mode: Enforce\n",
            'line 5: key "mode" already set in map',
        ),
        "a label that is no text": (
            RECOVERY + "  annotated: {namespaceSelector: {matchLabels: {on: a}}}",
            "line 4: key true is no text unless it is in quotes",
        ),
        "a label's value that is no text": (
            RECOVERY + "  annotated: {namespaceSelector: {matchLabels: {a: y}}}",
            "failureRecoveryPolicy.annotated.namespaceSelector.matchLabels.a: True: expected a ",
        ),
        "two documents": (HEAD + "---\n" + HEAD, "expected one document, found 2"),
        "an alias of nothing": ("a: *b", "yaml: unknown anchor 'b' referenced"),
    },
)
def test_mistake_is_told_with_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load.load(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


@cases(
    "text",
    {
        "remarks": f"# a remark\n---\n{HEAD}featureGates: {{}} # another\n",
        "one document, with its marks": f"---\n{HEAD}...\n",
        "an octal number": RECOVERY + "  budget: {maxPods: 010, window: 1m}",
        "a grouped number": RECOVERY + "  budget: {maxPods: 1_000, window: 1m}",
        "a word for true": HEAD + "featureGates: {TaintForceEviction: yes}",
        "a sign for nothing": HEAD + "featureGates: ~",
        "an anchor": RECOVERY + "  annotated: {namespaceSelector: &all {}}\n"
        "  rules: [{taintNodeOutOfService: {unreachableNodeTimeout: 1h, nodeSelector: *all}}]",
        "a merge, and one key anew": RECOVERY
        + "  annotated: &terms {forcefulTerminationGracePeriod: 1m, deleteAfter: 1h}\n"
        "  rules:\n"
        "  - terminatePod:\n"
        "      <<: *terms\n"
        "      deleteAfter: 10m\n"
        "      podLabelSelector: {matchLabels: {safe: 'true'}}\n",
        "the documented one": DESIGN,
    },
)
def test_what_is_usual_is_read_as_by_other_readers_of_yaml(tmp_path: Path, text: str) -> None:
    assert load.load(written(tmp_path, text)) == load.parse(yaml.safe_load(text))


def test_a_mapping_that_is_merged_over_a_key_is_refused(tmp_path: Path) -> None:
    """Some readers take the one, some the other."""
    text = RECOVERY + "  annotated: &x {deleteAfter: 1h}\n  budget: {deleteAfter: 1m, <<: *x}\n"
    with pytest.raises(ConfigError, match='key "deleteAfter" already set'):
        load.load(written(tmp_path, text))


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load.load(tmp_path / "none.yaml")


def test_file_of_bytes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not YAML"):
        load.load(path)
