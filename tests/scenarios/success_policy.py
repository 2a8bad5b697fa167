# SPDX-License-Identifier: Apache-2.0
"""successPolicy: Jobs that are complete before all their indexes are."""

from typing import Any

from refloat.api.meta import Object
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import (
    FAILED_INDEXES,
    FOREVER,
    MEANWHILE,
    PATIENT,
    ends,
    has,
    let_end,
    over,
    scenario,
    waits,
)


def matched(number: int) -> tuple[str, str]:
    return ("SuccessPolicy", f"Matched rules at index {number}")


def indexed(simulate: Object, *rules: Object, **spec: Any) -> Object:
    """Four indexes at once, and when they are enough."""
    return {
        "completionMode": "Indexed",
        "completions": 4,
        "parallelism": 4,
        "successPolicy": {"rules": list(rules)},
        "simulate": simulate,
        **spec,
    }


@scenario
async def a_leaders_success_is_enough(ns: ScenarioNamespace) -> None:
    """behaviour A17.2-A17.4"""
    await ns.submit(
        **indexed({"main": FOREVER, "main/0": ends(seconds=3)}, {"succeededIndexes": "0"})
    )
    await over(ns, "Complete", matched(0), succeeded=1, failed=0, completedIndexes="0", active=0)
    assert len(ns.pods) == 4
    assert "completionTime" in ns.status()


@scenario
async def a_number_of_successes_is_enough(ns: ScenarioNamespace) -> None:
    """behaviour A17.2"""
    simulate = {"main": FOREVER, "main/1": ends(seconds=2), "main/3": ends(seconds=5)}
    await ns.submit(**indexed(simulate, {"succeededCount": 2}))
    await over(ns, "Complete", matched(0), succeeded=2, failed=0, completedIndexes="1,3")


@scenario
async def so_many_of_some_indexes_are_enough(ns: ScenarioNamespace) -> None:
    """behaviour A17.2"""
    simulate = {"main": FOREVER, "main/3": ends(), "main/1": ends(seconds=MEANWHILE)}
    await ns.submit(**indexed(simulate, {"succeededIndexes": "0-2", "succeededCount": 1}))
    await ns.wait_until(lambda state: state.status().get("completedIndexes") == "3")
    assert ns.condition("SuccessCriteriaMet") is None
    await over(ns, "Complete", matched(0), succeeded=2, failed=0, completedIndexes="1,3")


@scenario
async def the_message_names_the_rule_that_was_met(ns: ScenarioNamespace) -> None:
    """behaviour A17.1, A17.3"""
    simulate = {"main": FOREVER, "main/2": ends(seconds=3)}
    await ns.submit(**indexed(simulate, {"succeededIndexes": "0"}, {"succeededCount": 1}))
    await over(ns, "Complete", matched(1), succeeded=1, failed=0, completedIndexes="2")


@scenario
async def a_job_is_complete_only_when_stragglers_have_ended(ns: ScenarioNamespace) -> None:
    """behaviour A18.2, G11"""
    simulate = {"main": waits(), "main/0": ends(seconds=3)}
    await ns.submit(**indexed(simulate, {"succeededIndexes": "0"}, template=PATIENT))
    await ns.wait_until(lambda state: state.condition("SuccessCriteriaMet"))
    assert ns.condition("Complete") is None
    assert "completionTime" not in ns.status()
    await ns.wait_until(lambda state: state.status().get("terminating") == 3)
    await let_end(ns, *ns.unfinished)
    await over(ns, "Complete", matched(0), succeeded=1, failed=0, terminating=0)


@scenario
async def a_failed_index_does_not_spoil_success(ns: ScenarioNamespace) -> None:
    """behaviour A17.5, A12.5"""
    simulate = {"main": FOREVER, "main/1": ends(1), "main/0": ends(seconds=MEANWHILE)}
    await ns.submit(**indexed(simulate, {"succeededIndexes": "0"}, backoffLimitPerIndex=0))
    await ns.wait_until(lambda state: state.status().get("failedIndexes") == "1")
    await over(
        ns,
        "Complete",
        matched(0),
        succeeded=1,
        failed=1,
        completedIndexes="0",
        failedIndexes="1",
    )


@scenario
async def success_that_is_never_met_fails_with_its_indexes(ns: ScenarioNamespace) -> None:
    """behaviour A12.11"""
    simulate = {"main": ends(seconds=3), "main/0": ends(1)}
    await ns.submit(**indexed(simulate, {"succeededIndexes": "0"}, backoffLimitPerIndex=0))
    await over(
        ns,
        "Failed",
        FAILED_INDEXES,
        succeeded=3,
        failed=1,
        completedIndexes="1-3",
        failedIndexes="0",
    )


@scenario
async def success_in_a_sleeping_job_is_kept(ns: ScenarioNamespace) -> None:
    """behaviour A14.5, A17.2"""
    simulate = {"main": [FOREVER, ends(seconds=2)], "main/0": ends(), "main/1": FOREVER}
    await ns.submit(**indexed(simulate, {"succeededCount": 2}, completions=3, parallelism=3))
    await ns.wait_until(
        lambda state: state.status().get("completedIndexes") == "0" and len(state.running) == 2
    )
    await ns.suspend()
    await ns.wait_until(lambda state: not state.active and not state.status().get("active"))
    has(ns.status(), completedIndexes="0")
    await ns.resume()
    await over(ns, "Complete", matched(0), succeeded=2, failed=0, completedIndexes="0,2")
