# SPDX-License-Identifier: Apache-2.0
"""`failureRecoveryPolicy` of the configuration file: what it may say, and each mistake's words."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml

from refloat.api import selectors
from refloat.config import failure_recovery, load
from refloat.config.errors import ConfigError
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
    TerminatePod,
)
from tests.cases import cases

WHOLE = """
apiVersion: config.refloat.dev/v1alpha1
kind: Configuration
featureGates: {FailureRecoveryPolicy: true}
failureRecoveryPolicy:
  mode: Enforce
  annotated:
    forcefulTerminationGracePeriod: 1m
    namespaceSelector: {}
  rules:
  - terminatePod:
      podLabelSelector:
        matchExpressions:
        - {key: example.com/pod-safe-to-fail, operator: In, values: ["true"]}
      forcefulTerminationGracePeriod: 5m
      deleteAfter: 10m
      requireSelfFence: false
  - taintNodeOutOfService: {unreachableNodeTimeout: 10m, nodeSelector: {}, allPods: false}
  budget: {maxPods: 500, window: 1m}
  holdAboveUnreachableNodes: 55%
  nodeGracePeriod: 90s
"""

PLACE = "failureRecoveryPolicy"
SAFE = {"matchLabels": {"safe": "true"}}


def parse(text: str) -> FailureRecoveryPolicy:
    return failure_recovery.parse(yaml.safe_load(text))


def test_the_whole_of_it_is_read() -> None:
    labels = selectors.parse_labels("example.com/pod-safe-to-fail in (true)")
    assert load.parse(yaml.safe_load(WHOLE)).failure_recovery == FailureRecoveryPolicy(
        mode="Enforce",
        annotated=AnnotationRule(period=timedelta(minutes=1)),
        terminate=(
            TerminatePod(
                "failureRecoveryPolicy.rules[0].terminatePod",
                labels,
                timedelta(minutes=5),
                timedelta(minutes=10),
            ),
        ),
        taint=(
            TaintNodeOutOfService(
                "failureRecoveryPolicy.rules[1].taintNodeOutOfService", timedelta(minutes=10)
            ),
        ),
        budget=Budget(500, timedelta(minutes=1)),
        hold_above_percent=55,
        node_grace=timedelta(seconds=90),
    )


@pytest.mark.parametrize("wrong", ["0s", "-1s", "soon", 50, True])
def test_a_wrong_node_grace_period_is_told_with_its_path(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^failureRecoveryPolicy\.nodeGracePeriod: "):
        failure_recovery.parse({"nodeGracePeriod": wrong})


def test_without_a_node_grace_period_that_of_the_cluster_counts() -> None:
    assert parse("{}").node_grace_period == timedelta(seconds=50)
    fast = replace(parse("{}"), default_node_grace=timedelta(seconds=5))
    assert fast.node_grace_period == timedelta(seconds=5)


def test_the_keps_example_is_read_as_printed() -> None:
    policy = parse(
        """
        rules:
        - terminatePod:
            podLabelSelector:
              matchExpressions:
              - key: example.com/pod-safe-to-fail
                operator: In
                values: [ "true" ]
            forcefulTerminationGracePeriod: 5m
        """
    )
    (rule,) = policy.terminate
    assert rule.period == timedelta(minutes=5)
    assert rule.pods.matches({"example.com/pod-safe-to-fail": "true"})
    assert not rule.pods.matches({})


@pytest.mark.parametrize("text", ["", "{}", "{rules: []}", "{rules: null, annotated: null}"])
def test_nothing_said_is_the_kep(text: str) -> None:
    assert parse(text) == FailureRecoveryPolicy()


def test_the_keps_name_for_the_second_strategy_is_an_alias() -> None:
    policy = parse("rules: [{taintNodeOutOfServiceConfig: {unreachableNodeTimeout: 90s}}]")
    assert policy.taint[0].timeout == timedelta(seconds=90)


def test_all_that_is_left_to_say() -> None:
    policy = parse(
        """
        mode: Report
        annotated: {namespaceSelector: {matchLabels: {a: b}}, deleteAfter: 0s}
        rules:
        - taintNodeOutOfService:
            unreachableNodeTimeout: 1h
            nodeSelector: {matchLabels: {pool: spot}}
            allPods: true
        - terminatePod:
            podLabelSelector: {matchLabels: {safe: "true"}}
            forcefulTerminationGracePeriod: 1m30s
            requireSelfFence: true
        """
    )
    assert policy.mode == "Report"
    assert policy.annotated.delete_after == timedelta()
    assert not policy.annotated.namespaces.matches({})
    assert policy.taint[0].all_pods
    assert policy.taint[0].nodes.matches({"pool": "spot"})
    assert policy.terminate[0].require_self_fence
    assert policy.terminate[0].path == "failureRecoveryPolicy.rules[1].terminatePod"


def terminate(**fields: Any) -> dict[str, Any]:
    whole = {"podLabelSelector": SAFE, "forcefulTerminationGracePeriod": "5m", **fields}
    return {"rules": [{"terminatePod": whole}]}


def period(value: Any) -> dict[str, Any]:
    return terminate(forcefulTerminationGracePeriod=value)


def selected(value: Any) -> dict[str, Any]:
    return terminate(podLabelSelector=value)


def expressions(*values: Any) -> dict[str, Any]:
    return selected({"matchExpressions": list(values)})


def taint(**fields: Any) -> dict[str, Any]:
    return {"rules": [{"taintNodeOutOfService": {"unreachableNodeTimeout": "5m", **fields}}]}


RULE = "rules[0].terminatePod"
PERIOD = f"{RULE}.forcefulTerminationGracePeriod"
SELECTOR = f"{RULE}.podLabelSelector"
NODES = "rules[0].taintNodeOutOfService"
NOT_PROD = {"key": "tier", "operator": "NotIn", "values": ["prod"]}
NO_OWNER = {"key": "owner", "operator": "DoesNotExist"}
A_COUNT = "expected a whole number, 1 or more"
POSITIVE = "expected a duration above zero"
A_DURATION = "expected a duration such as '90s', '10m' or '1h30m'"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], ": []: expected a mapping"),
        ({"rule": []}, ".rule: unknown field; known are: mode, annotated, rules, budget, "),
        ({"mode": "enforce"}, ".mode: 'enforce': expected 'Enforce' or 'Report'"),
        ({"mode": True}, ".mode: True: expected 'Enforce' or 'Report'"),
        ({"rules": {}}, ".rules: {}: expected a list"),
        ({"rules": ["terminatePod"]}, ".rules[0]: 'terminatePod': expected a mapping"),
        ({"rules": [{}]}, ".rules[0]: []: expected exactly one of terminatePod and "),
        (
            {"rules": [{"terminatePod": {}, "taintNodeOutOfService": {}}]},
            ".rules[0]: ['terminatePod', 'taintNodeOutOfService']: expected exactly one of ",
        ),
        ({"rules": [{"deletePod": {}}]}, ".rules[0].deletePod: unknown field; known are: "),
        (period(None), f".{PERIOD}: None: expected a duration; "),
        (period(5), f".{PERIOD}: 5: {A_DURATION}"),
        (period("5"), f".{PERIOD}: '5': {A_DURATION}"),
        (period("0s"), f".{PERIOD}: '0s': {POSITIVE}"),
        (period("-1m"), f".{PERIOD}: '-1m': {POSITIVE}"),
        (
            terminate(deleteAfter="-1s"),
            f".{RULE}.deleteAfter: '-1s': expected a duration not below zero",
        ),
        (terminate(requireSelfFence="yes"), f".{RULE}.requireSelfFence: 'yes': expected true or "),
        (selected(None), f".{SELECTOR}: None: expected the labels of pods that "),
        (selected({}), f".{SELECTOR}: {{}}: expected at least one label that a pod must have, as "),
        (
            selected({"matchLabels": {}}),
            f".{SELECTOR}: {{'matchLabels': {{}}}}: expected at least one label that ",
        ),
        (
            expressions(NOT_PROD, NO_OWNER),
            f".{SELECTOR}: {{'matchExpressions': [{NOT_PROD}, {NO_OWNER}]}}: expected at least ",
        ),
        (selected({"app": "x"}), f".{SELECTOR}.app: unknown field; known are: "),
        (
            selected({"matchLabels": {"a": True}}),
            f".{SELECTOR}.matchLabels.a: True: expected a text, so in quotes",
        ),
        (
            selected({"matchLabels": {1: "a"}}),
            f".{SELECTOR}.matchLabels: 1: expected a text, so in quotes",
        ),
        (
            selected({"matchLabels": {"a b": "c"}}),
            f'.{SELECTOR}.matchLabels: Invalid value: "a b": ',
        ),
        (
            expressions({"key": "a", "operator": "is"}),
            f'.{SELECTOR}.matchExpressions[0].operator: Invalid value: "is": not a valid ',
        ),
        (
            expressions({"key": "a", "operator": "In"}),
            f".{SELECTOR}.matchExpressions[0].values: Required value",
        ),
        (
            terminate(
                podLabelSelector={
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", 1]}]
                }
            ),
            f".{SELECTOR}.matchExpressions[0].values[1]: 1: expected a text, so in quotes",
        ),
        (
            expressions({"operator": "In"}),
            f".{SELECTOR}.matchExpressions[0].key: None: expected a text",
        ),
        (
            taint(unreachableNodeTimeout=None),
            f".{NODES}.unreachableNodeTimeout: None: expected a duration; it has no default",
        ),
        (taint(unreachableNodeTimeout="0m"), f".{NODES}.unreachableNodeTimeout: '0m': {POSITIVE}"),
        (taint(allPods=1), f".{NODES}.allPods: 1: expected true or false"),
        (
            taint(allPods=True),
            f".{NODES}.nodeSelector: None: expected at least one label that a node must have, ",
        ),
        (
            taint(allPods=True, nodeSelector={"matchExpressions": [NO_OWNER]}),
            f".{NODES}.nodeSelector: {{'matchExpressions': [{NO_OWNER}]}}: expected at least one ",
        ),
        ({"budget": {}}, f".budget.maxPods: None: {A_COUNT}"),
        ({"budget": {"maxPods": 0, "window": "1m"}}, f".budget.maxPods: 0: {A_COUNT}"),
        ({"budget": {"maxPods": True, "window": "1m"}}, f".budget.maxPods: True: {A_COUNT}"),
        ({"budget": {"maxPods": 1}}, f".budget.window: None: {A_DURATION}"),
        ({"budget": {"pods": 1}}, ".budget.pods: unknown field; known are: maxPods, window"),
        *(
            (
                {"holdAboveUnreachableNodes": wrong},
                f".holdAboveUnreachableNodes: {wrong!r}: expected a percentage from '0%' to '100%'",
            )
            for wrong in (55, "55", "101%", "-1%", "5.5%", "%", "1000%", "٥%", "55%\n")
        ),
        (
            {"annotated": {"forcefulTerminationGracePeriod": "0s"}},
            f".annotated.forcefulTerminationGracePeriod: '0s': {POSITIVE}",
        ),
        (
            {"annotated": {"namespaceSelector": "a=b"}},
            ".annotated.namespaceSelector: 'a=b': expected a mapping",
        ),
        (
            {"annotated": {"podLabelSelector": {}}},
            ".annotated.podLabelSelector: unknown field; known are: namespaceSelector, ",
        ),
    ],
)
def test_a_mistake_is_told_with_its_path_and_value(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        failure_recovery.parse(value)
    assert str(error.value).startswith(f"{PLACE}{message}")


@cases(
    "value want",
    {
        "a time": (terminate(deleteAfter="9" * 5000 + "s"), f".{RULE}.deleteAfter"),
        "a percentage": (
            {"holdAboveUnreachableNodes": "9" * 5000 + "%"},
            ".holdAboveUnreachableNodes",
        ),
        "a text": ({"rules": "x" * 5000}, ".rules"),
        "a mapping": ({"rules": dict.fromkeys(map(str, range(5000)))}, ".rules"),
    },
)
def test_of_a_long_value_only_the_ends_are_told(value: Any, want: str) -> None:
    with pytest.raises(ConfigError) as error:
        failure_recovery.parse(value)
    text = str(error.value)
    assert text.startswith(f"{PLACE}{want}: ")
    assert "..." in text
    assert len(text) < 500


def test_zeros_before_a_percentage_are_no_matter() -> None:
    policy = failure_recovery.parse({"holdAboveUnreachableNodes": "0" * 5000 + "7%"})
    assert policy.hold_above_percent == 7


def test_a_selector_may_also_say_what_a_pod_must_not_have() -> None:
    safe = {"key": "safe", "operator": "In", "values": ["true"]}
    policy = failure_recovery.parse(expressions(safe, NOT_PROD, NO_OWNER))
    (rule,) = policy.terminate
    assert rule.pods.matches({"safe": "true"})
    assert not rule.pods.matches({"safe": "true", "tier": "prod"})


def test_where_every_pod_must_have_opted_in_all_nodes_may_be_selected() -> None:
    policy = failure_recovery.parse(taint(nodeSelector={"matchExpressions": [NO_OWNER]}))
    assert policy.taint[0].nodes.matches({})


def test_two_readings_of_one_file_are_equal() -> None:
    """Else every look at the file would be a change."""
    assert load.parse(yaml.safe_load(WHOLE)) == load.parse(yaml.safe_load(WHOLE))
