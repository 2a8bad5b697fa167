# SPDX-License-Identifier: Apache-2.0
"""Nodes that run low, in virtual time (behaviour D6, D6.1-D6.5)."""

from typing import Any

from refloat.policy.node.eviction_thresholds import DISK, MEMORY, PIDS, EvictionSettings
from refloat.sim.run import Sim
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.virtual import virtual


def greedy(name: str = "p", **more: Any) -> dict[str, Any]:
    """A pod that takes something, and does not listen."""
    script = {"main": {"seconds": None, "ignoreTerm": True, **more.pop("script", {})}}
    return nodes.pod(name, script=script, **more)


def requesting(**resources: Any) -> dict[str, Any]:
    return {"containers": [nodes.container("main", resources=resources)]}


def conditions(node: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in node["status"]["conditions"]
    }


def _disruption(status: dict[str, Any]) -> tuple[str, str] | None:
    for each in status["conditions"]:
        if each["type"] == "DisruptionTarget":
            return each["reason"], each["message"]
    return None


MEMORY_TEXT = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi. "
    "Container main was using 8128Mi, request is 0, has larger consumption of memory. "
)
# A tenth of 100Gi, in the digits that a kubelet keeps.
DISK_TEXT = (
    "The node was low on resource: ephemeral-storage. "
    "Threshold quantity: 10737418400, available: 10Gi. "
    "Container main was using 90Gi, request is 1Gi, "
    "has larger consumption of ephemeral-storage. "
)
PIDS_TEXT = "The node was low on resource: pids. Threshold quantity: 1k, available: 768. "


@cases(
    "script spec condition text",
    {
        "memory": (
            {"memory": "8128Mi"},
            {},
            ("MemoryPressure", "KubeletHasInsufficientMemory", "Memory"),
            MEMORY_TEXT,
        ),
        "disk": (
            {"storage": "90Gi"},
            requesting(requests={"ephemeral-storage": "1Gi"}),
            ("DiskPressure", "KubeletHasDiskPressure", "Disk"),
            DISK_TEXT,
        ),
        "process ids": (
            {"pids": 32000},
            {},
            ("PIDPressure", "KubeletHasInsufficientPID", "PID"),
            PIDS_TEXT,
        ),
    },
)
@virtual(seeds=3)
async def test_a_node_that_is_low_evicts_and_says_so(
    sim: Sim,
    script: dict[str, Any],
    spec: dict[str, Any],
    condition: tuple[str, str, str],
    text: str,
) -> None:
    """behaviour D6 (first row), D6.1, D6.3."""
    hard = {MEMORY: "100Mi", DISK: "10%", PIDS: "1000"}
    ways = nodes.Ways(eviction=EvictionSettings(hard=hard))
    async with nodes.running(sim, ways=ways) as here:
        await here.create(greedy(script=script, spec=spec))
        await here.after(5)
        status = await here.status()
        assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
        assert status["message"] == text
        assert _disruption(status) == ("TerminationByKubelet", text)
        assert ("Warning", "Evicted", text) in here.events
        assert await here.names() == ["p"]
        name, reason, _ = condition
        before = conditions(await here.node())
        assert before[name][:2] == ("True", reason)
        assert before["Ready"][0] == "True"
        others = {each for each in before if each.endswith("Pressure")} - {name}
        assert {before[each][0] for each in others} == {"False"}
        resource = text.split("resource: ")[1].split(".", maxsplit=1)[0]
        event = ("Warning", "EvictionThresholdMet", f"Attempting to reclaim {resource}")
        assert here.node_events[0] == event


@on_nodes()
async def test_a_node_is_low_until_the_transition_is_over(here: Nodes) -> None:
    """behaviour D6.5: until then the node rejects pods without requests."""
    await here.create(greedy(script={"memory": "8Gi"}))
    await here.after(5)
    assert conditions(await here.node())["MemoryPressure"] == (
        "True",
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
    )
    await here.create(nodes.pod("q"))
    await here.after(1)
    status = await here.status("q")
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert status["message"] == "Pod was rejected: The node had condition: [MemoryPressure]. "
    assert "containerStatuses" not in status
    text = "The node had condition: [MemoryPressure]. "
    assert here.events[-1] == ("Warning", "Evicted", text)
    requests = requesting(requests={"memory": "1Mi"})
    await here.create(nodes.pod("r", spec=requests))
    await here.after(280)
    assert (await here.status("r"))["phase"] == "Succeeded"
    assert conditions(await here.node())["MemoryPressure"][0] == "True"
    await here.after(40)
    assert conditions(await here.node())["MemoryPressure"] == (
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    )
    await here.create(nodes.pod("s"))
    await here.after(2)
    assert (await here.status("s"))["phase"] == "Succeeded"
    events = [reason for _, reason, _ in here.node_events]
    assert events == [
        "EvictionThresholdMet",
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
    ]
    note = "Node n0 status is now: NodeHasSufficientMemory"
    assert here.node_events[-1] == ("Normal", "NodeHasSufficientMemory", note)


@on_nodes(seeds=5)
async def test_one_pod_is_evicted_at_a_time_until_there_is_enough(here: Nodes) -> None:
    """behaviour D6.2: two of three have to go, one after the other, the largest first."""
    for name, memory in (("a", "2Gi"), ("b", "3Gi"), ("c", "4Gi")):
        await here.create(greedy(name, script={"memory": memory, "startSeconds": 1}))
    here.usage["n0"].taken[MEMORY] = 5 << 30
    await here.after(40)
    phases = {name: (await here.status(name))["phase"] for name in "abc"}
    assert phases == {"a": "Running", "b": "Failed", "c": "Failed"}
    evicted = [note for _, reason, note in here.events if reason == "Evicted"]
    assert [note.split("using ")[1].split(",")[0] for note in evicted] == ["4Gi", "3Gi"]


@on_nodes()
async def test_the_next_look_waits_for_the_pod_that_was_evicted(here: Nodes) -> None:
    """behaviour D6.2: 30 s at most, and the node evicts no other pod meanwhile."""
    await here.create(greedy("a", script={"memory": "5Gi", "killSeconds": 25}))
    await here.create(greedy("b", script={"memory": "3Gi"}))
    await here.after(20)
    phases = [(await here.status(name))["phase"] for name in "ab"]
    assert phases == ["Running", "Running"]
    await here.after(20)
    phases = [(await here.status(name))["phase"] for name in "ab"]
    assert phases == ["Failed", "Running"]


@on_nodes()
async def test_a_critical_pod_is_never_evicted(here: Nodes) -> None:
    """behaviour D6.2."""
    for name, which, memory in (("p", "cluster", "8Gi"), ("q", "node", "1Gi")):
        spec = {"priorityClassName": f"system-{which}-critical"}
        await here.create(greedy(name, script={"memory": memory}, spec=spec))
    await here.after(60)
    assert (await here.status("p"))["phase"] == "Running"
    assert (await here.status("q"))["phase"] == "Running"
    assert conditions(await here.node())["MemoryPressure"][0] == "True"


@virtual(
    nodes.running,
    ways=nodes.Ways(
        eviction=EvictionSettings(
            hard={}, soft={MEMORY: "1Gi"}, soft_grace_seconds={MEMORY: 30}, max_pod_grace_seconds=20
        )
    ),
)
async def test_a_soft_threshold_has_patience_and_gives_grace(here: Nodes) -> None:
    """behaviour D6.2: min(maxPodGracePeriodSeconds, spec grace)."""
    await here.create(greedy(script={"memory": "7680Mi"}, grace=60))
    await here.after(25)
    assert conditions(await here.node())["MemoryPressure"][0] == "True"
    assert [reason for _, reason, _ in here.events] == []
    await here.after(10)
    assert (await here.status())["phase"] == "Running"
    assert [reason for _, reason, _ in here.events] == ["Evicted", "Killing"]
    await here.after(20)
    assert (await here.status())["reason"] == "Evicted"


@cases(
    "script spec text",
    {
        "emptyDir": (
            {"volumes": {"tmp": {"used": "2Gi", "sizeLimit": "1024Mi"}}},
            {},
            'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ',
        ),
        "pod": (
            {"storage": "1Gi", "volumes": {"tmp": {"used": "2Gi"}}},
            requesting(limits={"ephemeral-storage": "2Gi"}),
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
        ),
    },
)
@on_nodes()
async def test_one_that_takes_more_disk_than_it_may_is_evicted_and_not_disrupted(
    here: Nodes, script: dict[str, Any], spec: dict[str, Any], text: str
) -> None:
    """behaviour D6, the rows of limits; KEP-3329, "Resource limits exceeded"."""
    await here.create(greedy(script=script, spec=spec))
    await here.after(5)
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert status["message"] == text
    assert _disruption(status) is None
    assert conditions(await here.node())["DiskPressure"][0] == "False"


@on_nodes()
async def test_a_container_over_its_own_limit_takes_the_pod_along(here: Nodes) -> None:
    """behaviour D6, the row of the container's limit."""
    limits = {"limits": {"ephemeral-storage": "1Gi"}}
    two = [nodes.container(name, resources=limits) for name in ("main", "other")]
    await here.create(greedy(script={"storage": "1536Mi"}, spec={"containers": two}))
    await here.after(5)
    status = await here.status()
    assert status["message"] == (
        'Container main exceeded its local ephemeral storage limit "1Gi". '
    )


@on_nodes()
async def test_a_node_without_numbers_looks_at_nothing(here: Nodes) -> None:
    """No pass over pods that take nothing."""
    await here.create(greedy())
    await here.after(300)
    assert here.usage["n0"].measured == 0
    assert conditions(await here.node())["MemoryPressure"][0] == "False"


@on_nodes()
async def test_an_agent_that_is_restarted_sees_at_once_that_it_is_low(here: Nodes) -> None:
    here.usage["n0"].taken[MEMORY] = 8 << 30
    await here.restart()
    await here.after(11)
    assert conditions(await here.node())["MemoryPressure"][0] == "True"
