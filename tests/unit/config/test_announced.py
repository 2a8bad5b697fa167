# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta

import pytest

from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.config import announced, load

RULES = [
    {
        "terminatePod": {
            "podLabelSelector": {"matchLabels": {"safe": "true"}},
            "forcefulTerminationGracePeriod": "5m",
        }
    }
]
MINUTE = timedelta(minutes=1)


def document(**policy: object) -> Object:
    return {"apiVersion": load.API_VERSION, "kind": load.KIND, "failureRecoveryPolicy": policy}


def test_what_is_announced_is_what_is_in_force() -> None:
    """The command line's gates too, over those of the file."""
    written = document(mode="Report", rules=RULES)
    body = announced.body(written, Gates({FAILURE_RECOVERY_POLICY: True}), MINUTE)
    found = announced.read(body["data"])
    assert found is not None
    assert found.feature_gates[FAILURE_RECOVERY_POLICY]
    wanted = load.parse(written).failure_recovery
    assert (found.failure_recovery.mode, found.failure_recovery.terminate) == (
        "Report",
        wanted.terminate,
    )


def test_a_default_period_is_announced_and_a_chosen_one_stays() -> None:
    for said, want in (({}, 6), ({"forcefulTerminationGracePeriod": "2m"}, 120)):
        body = announced.body(document(annotated=said), Gates(), timedelta(seconds=6))
        found = announced.read(body["data"])
        assert found is not None
        assert found.failure_recovery.annotated.period == timedelta(seconds=want)


def test_a_default_node_grace_period_is_announced_and_a_chosen_one_stays() -> None:
    for said, want in (({}, 5), ({"nodeGracePeriod": "2m"}, 120)):
        body = announced.body(document(**said), Gates(), MINUTE, timedelta(seconds=5))
        found = announced.read(body["data"])
        assert found is not None
        assert found.failure_recovery.node_grace_period == timedelta(seconds=want)


def test_no_file_at_all_announces_the_defaults() -> None:
    found = announced.read(announced.body({}, Gates(), MINUTE)["data"])
    assert found is not None
    assert found.failure_recovery.terminate == ()


def test_a_label_that_other_readers_take_for_a_truth_value_is_announced() -> None:
    selector = {"matchLabels": {"n": "y", "on": "1e3"}}
    written = document(annotated={"namespaceSelector": selector})
    found = announced.read(announced.body(written, Gates(), MINUTE)["data"])
    assert found is not None
    assert found.failure_recovery.annotated.namespaces.matches({"n": "y", "on": "1e3"})


HEAD = f"apiVersion: {load.API_VERSION}\nkind: {load.KIND}\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no YAML"),
        pytest.param("kind: Pod", id="something else"),
        pytest.param(f"{HEAD}a: 2026-13-01", id="a day that there is not"),
        pytest.param(f"{HEAD}a: !!timestamp x", id="no day at all"),
        pytest.param(f"{HEAD}a: !!int ''", id="no number"),
        pytest.param(f"{HEAD}a: {'9' * 5000}", id="a long number"),
        pytest.param(f"{HEAD}a: {'[' * 5000}{']' * 5000}", id="nesting"),
        pytest.param(
            f"{HEAD}failureRecoveryPolicy: {{holdAboveUnreachableNodes: {'9' * 5000}%}}",
            id="a long percentage",
        ),
        pytest.param(
            "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9 if i else ''}x]\n" for i in range(30))
            + "kind: *a29",
            id="aliases of aliases",
        ),
    ],
)
def test_what_somebody_else_wrote_is_not_believed(text: str) -> None:
    assert announced.read({"configuration.yaml": text}) is None


def test_an_empty_config_map_announces_nothing() -> None:
    assert announced.read(None) is None
    assert announced.read({}) is None
