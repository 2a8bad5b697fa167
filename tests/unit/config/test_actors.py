# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.config import actors, load
from refloat.config.actors import Actor
from refloat.policy.job.backoff import BackoffSettings
from tests.cases import cases

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
    content: Object, gates: Gates | None = None, period: timedelta = MINUTE
) -> load.Configuration:
    """What a reader gets of a file's content."""
    text = actors.write(ACTOR, actors.configuration(content, gates or Gates(), period))
    (actor,) = actors.read({"k": text})
    assert actor == ACTOR
    assert actor.configuration is not None
    return actor.configuration


def test_what_is_published_is_what_is_in_force() -> None:
    """The command line's gates too, over those of the file."""
    text = document(mode="Report", rules=RULES)
    configuration = published(text, Gates({FAILURE_RECOVERY_POLICY: True}))
    assert configuration.feature_gates[FAILURE_RECOVERY_POLICY]
    policy = configuration.failure_recovery
    assert policy.mode == "Report"
    assert policy.terminate == load.parse(text).failure_recovery.terminate


def test_the_delays_of_the_job_controller_are_published() -> None:
    delays = BackoffSettings(timedelta(seconds=1), timedelta(minutes=1), timedelta(seconds=0.1))
    text = actors.write(replace(ACTOR, delays=delays), {})
    (read,) = actors.read({"a": text})
    assert read.delays == delays
    (edited,) = actors.read({"a": text.replace("1m0s", "never")})
    assert edited.delays is None


def test_a_default_period_is_published_and_a_chosen_one_stays() -> None:
    for annotated, want in (({}, 6), ({"forcefulTerminationGracePeriod": "2m"}, 120)):
        configuration = published(document(annotated=annotated), period=timedelta(seconds=6))
        assert configuration.failure_recovery.annotated.period == timedelta(seconds=want)


def test_a_default_node_grace_period_is_published_and_a_chosen_one_stays() -> None:
    for annotated, want in (({}, 5), ({"nodeGracePeriod": "2m"}, 120)):
        content = actors.configuration(
            document(**annotated), Gates(), MINUTE, node_grace=timedelta(seconds=5)
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


@cases(
    "seconds stopped want",
    {
        "two heartbeats are missing": (89, False, True),
        "three heartbeats are missing": (91, False, False),
        "it said that it ends": (1, True, False),
        "its clock is a little ahead": (-80, False, True),
        "its clock is an hour ahead": (-3600, False, False),
    },
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


@cases(
    "text",
    {
        "no YAML": "{",
        "something else": "kind: Pod",
        "a day that there is not": f"{HEAD}a: 2026-13-01",
        "no day at all": f"{HEAD}a: !!timestamp x",
        "no number": f"{HEAD}a: !!int ''",
        "a long number": f"{HEAD}a: {'9' * 5000}",
        "nesting": f"{HEAD}a: {'[' * 5000}{']' * 5000}",
        "a long percentage": (
            f"{HEAD}failureRecoveryPolicy: {{holdAboveUnreachableNodes: {'9' * 5000}%}}"
        ),
        "aliases of aliases": "".join(
            f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9 if i else ''}x]\n" for i in range(30)
        )
        + "kind: *a29",
    },
)
def test_a_record_that_cannot_be_understood_is_left_out(text: str) -> None:
    assert actors.read({"k": text}) == []


def test_an_empty_config_map_names_no_process() -> None:
    assert actors.read(None) == []
    assert actors.read({}) == []
