# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta

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


def test_no_file_at_all_announces_the_defaults() -> None:
    found = announced.read(announced.body({}, Gates(), MINUTE)["data"])
    assert found is not None
    assert found.failure_recovery.terminate == ()


def test_what_somebody_else_wrote_is_not_believed() -> None:
    assert announced.read(None) is None
    assert announced.read({"configuration.yaml": "{"}) is None
    assert announced.read({"configuration.yaml": "kind: Pod"}) is None
