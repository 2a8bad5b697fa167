# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.config import actors, load
from refloat.config.actors import Actor

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


NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTOR = Actor("host_uid", "manager", NOW, (actors.FAILURE_RECOVERY,), ("a",))


def published(
    written: Object, gates: Gates | None = None, period: timedelta = MINUTE
) -> load.Configuration:
    """What a reader gets of a file's content."""
    text = actors.write(ACTOR, actors.configuration(written, gates or Gates(), period))
    (actor,) = actors.read({"k": text})
    assert actor == ACTOR
    assert actor.configuration is not None
    return actor.configuration


def test_what_is_published_is_what_is_in_force() -> None:
    """The command line's gates too, over those of the file."""
    written = document(mode="Report", rules=RULES)
    configuration = published(written, Gates({FAILURE_RECOVERY_POLICY: True}))
    assert configuration.feature_gates[FAILURE_RECOVERY_POLICY]
    policy = configuration.failure_recovery
    assert policy.mode == "Report"
    assert policy.terminate == load.parse(written).failure_recovery.terminate


def test_a_default_period_is_published_and_a_chosen_one_stays() -> None:
    for chosen, want in (({}, 6), ({"forcefulTerminationGracePeriod": "2m"}, 120)):
        configuration = published(document(annotated=chosen), period=timedelta(seconds=6))
        assert configuration.failure_recovery.annotated.period == timedelta(seconds=want)


def test_a_default_node_grace_period_is_published_and_a_chosen_one_stays() -> None:
    for chosen, want in (({}, 5), ({"nodeGracePeriod": "2m"}, 120)):
        content = actors.configuration(
            document(**chosen), Gates(), MINUTE, node_grace=timedelta(seconds=5)
        )
        (actor,) = actors.read({"k": actors.write(ACTOR, content)})
        assert actor.configuration is not None
        policy = actor.configuration.failure_recovery
        assert policy.node_grace_period == timedelta(seconds=want)


def test_no_file_at_all_publishes_the_defaults() -> None:
    assert published({}).failure_recovery.terminate == ()


def test_a_label_that_other_readers_take_for_a_truth_value_is_published() -> None:
    selector = {"matchLabels": {"n": "y", "on": "1e3"}}
    configuration = published(document(annotated={"namespaceSelector": selector}))
    assert configuration.failure_recovery.annotated.namespaces.matches({"n": "y", "on": "1e3"})


def test_a_configuration_that_is_too_long_is_left_out() -> None:
    text = actors.write(ACTOR, {"long": "x" * actors.MAX_BYTES})
    (actor,) = actors.read({"k": text})
    assert (actor, actor.configuration) == (ACTOR, None)


@pytest.mark.parametrize(
    ("seconds", "stopped", "want"),
    [
        pytest.param(89, False, True, id="two heartbeats are missing"),
        pytest.param(91, False, False, id="three heartbeats are missing"),
        pytest.param(1, True, False, id="it said that it ends"),
        pytest.param(-80, False, True, id="its clock is a little ahead"),
        pytest.param(-3600, False, False, id="its clock is an hour ahead"),
    ],
)
def test_a_process_is_alive_while_it_renews_its_record(
    seconds: int, stopped: bool, want: bool
) -> None:
    actor = replace(ACTOR, stopped=stopped)
    assert actor.is_alive(NOW + timedelta(seconds=seconds)) is want


def test_the_oldest_records_are_too_many_and_never_our_own() -> None:
    data = {
        f"k{n:02d}": actors.write(replace(ACTOR, seen=NOW + timedelta(seconds=n)), {})
        for n in range(actors.MAX_RECORDS + 3)
    }
    assert actors.oldest(data, "k01") == ["k00", "k02", "k03"]
    assert actors.oldest(data | {"bad": "{"}, "k01")[0] == "bad"
    assert actors.oldest(dict(list(data.items())[:5]), "k01") == []


def test_a_key_is_one_that_a_config_map_takes() -> None:
    assert actors.key("host:1/x_uid.y") == "host-1-x_uid.y"
    assert len(actors.key("x" * 300)) == 253


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
def test_a_record_that_cannot_be_understood_is_left_out(text: str) -> None:
    assert actors.read({"k": text}) == []


def test_an_empty_config_map_names_no_process() -> None:
    assert actors.read(None) == []
    assert actors.read({}) == []
