# SPDX-License-Identifier: Apache-2.0
"""Every demo, played on a cluster of its own without pauses."""

import tempfile
from pathlib import Path

import pytest

from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import demo as cli
from refloat.client.errors import NotFound
from refloat.demo import catalogue, demo_run, nodes
from refloat.demo.demo_cluster import API_SERVER_ONLY, DemoCluster, DemoSettings
from refloat.demo.demo_run import Demo
from refloat.demo.errors import DemoFailed
from refloat.demo.nodes import DemoNodeSettings
from refloat.demo.output_lines import Line
from refloat.scenario.errors import ConditionTimeout
from refloat.scenario.namespace import ScenarioNamespace


async def _played(chosen: Demo) -> list[Line]:
    return [line async for line in demo_run.run(chosen, RealClock(), Rand(1), pace=0)]


# Those with nodes are played in tests/e2e/test_failures.py, many on one cluster.
WITHOUT_NODES = [each for each in catalogue.DEMOS if each.settings == API_SERVER_ONLY]


@pytest.fixture(params=WITHOUT_NODES, ids=lambda each: each.name)
def any_demo(request: pytest.FixtureRequest) -> Demo:
    found: Demo = request.param
    return found


async def test_a_demo_comes_to_its_end_within_80_columns(any_demo: Demo) -> None:
    lines = await _played(any_demo)
    assert [line.text for line in lines if line.kind == "step"]
    texts = [text for line in lines for text in cli.render(line)]
    assert [text for text in texts if len(text) > cli.WIDTH] == []


async def test_the_first_story_shows_what_its_watches_saw_in_order() -> None:
    lines = await _played(catalogue.find("lifecycle"))
    job_events = [
        line.text.split("  ")[-1]
        for line in lines
        if line.kind == "event" and "job/train" in line.text
    ]
    assert job_events == [
        "2 completions wanted",
        "status.startTime",
        "active 0 -> 2",
        "metadata.annotations",
        "active 2 -> 1",
        "active 1 -> 2",
        "active 2 -> 0, succeeded 0 -> 2",
        "SuccessCriteriaMet (CompletionsReached), Complete (CompletionsReached)",
    ]


async def test_the_first_story_shows_three_refusals() -> None:
    lines = await _played(catalogue.find("lifecycle"))
    codes = [line.text.split()[0] for line in lines if line.kind == "refusal"]
    assert codes == ["422", "409", "429"]


async def test_times_never_go_back(any_demo: Demo) -> None:
    times = [line.seconds for line in await _played(any_demo)]
    assert times == sorted(times)


async def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await _played(catalogue.DEFAULT)
    assert list(tmp_path.iterdir()) == []


async def test_an_answer_that_the_story_did_not_expect_ends_it() -> None:
    async def run(cluster: DemoCluster) -> None:
        await cluster.client.ask("GET", "/api/v1/namespaces/default/pods/absent")

    with pytest.raises(NotFound, match='pods "absent" not found'):
        await _played(Demo("wrong", "", run))


async def test_a_success_where_a_refusal_was_due_ends_the_story() -> None:
    async def run(cluster: DemoCluster) -> None:
        await cluster.refused(404, cluster.client.ask("GET", "/api/v1/namespaces/default"))

    with pytest.raises(DemoFailed, match="expected 404"):
        await _played(Demo("wrong", "", run))


async def test_a_demo_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "MAX_SECONDS", 0.01)

    async def run(cluster: DemoCluster) -> None:
        await ScenarioNamespace(cluster.scenario, "default").finished()

    with pytest.raises(DemoFailed, match="took more than"):
        await _played(Demo("hangs", "", run))


def test_an_unknown_story_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown demo 'x'; one of zombie, lifecycle, restart"):
        catalogue.find("x")


def test_names_of_stories_are_distinct() -> None:
    names = [each.name for each in catalogue.DEMOS]
    assert len(set(names)) == len(names)


async def test_a_node_that_does_not_come_up_ends_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "START_SECONDS", 0.0)

    async def run(cluster: DemoCluster) -> None:
        raise AssertionError

    settings = DemoSettings("none", (DemoNodeSettings("n1"),))
    with pytest.raises(ConditionTimeout, match="node n1 is not ready within 0 s"):
        await _played(Demo("absent", "", run, settings))
