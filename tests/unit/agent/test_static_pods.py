# SPDX-License-Identifier: Apache-2.0
"""Pods of a node's own files, and what the API server shows of them."""

from pathlib import Path
from typing import Any

import msgspec

from refloat.agent import manifests
from refloat.api.meta import Object
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes

KEY = ("default", "web-n0")
FOREVER = {"main": [{"seconds": None}]}


def static(script: Any = FOREVER, policy: str = "Always", **spec: Any) -> Object:
    """What a manifest of a pod `web` becomes on node n0."""
    obj = nodes.pod("web", policy=policy, script=script, spec=spec, node="")
    static_pod, _ = manifests.parse(msgspec.json.encode(obj), "n0", Path("/web.yaml"))
    return static_pod


async def shown(here: Nodes) -> Object | None:
    return await here.call("GET", f"{nodes.PODS}/web-n0") if await here.names() else None


async def settled(here: Nodes) -> Object:
    """The mirror, once there was time enough for everything."""
    await here.after(3)
    mirror = await shown(here)
    assert mirror is not None
    return mirror


def starts(here: Nodes, uid: str) -> list[str]:
    """The containers that there are of a pod."""
    containers = here.runtimes["n0"].containers(uid)
    return [f"{name}/{each.current.attempt}" for name, each in containers.items()]


@on_nodes()
async def test_a_static_pod_runs_and_is_mirrored(here: Nodes) -> None:
    here.manifests[KEY] = manifest = static()
    mirror = await settled(here)
    uid = manifest["metadata"]["uid"]
    node = await here.node()
    assert mirror["status"]["phase"] == "Running"
    assert mirror["metadata"]["uid"] != uid
    assert mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] == uid
    assert mirror["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "n0",
            "uid": node["metadata"]["uid"],
            "controller": True,
        }
    ]
    assert starts(here, uid) == ["main/0"]
    assert starts(here, mirror["metadata"]["uid"]) == []


@on_nodes()
async def test_a_mirror_that_is_deleted_is_made_again_and_its_pod_runs_on(here: Nodes) -> None:
    here.manifests[KEY] = manifest = static()
    before = await settled(here)
    await here.delete("web-n0")
    after = await settled(here)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["startTime"] == before["status"]["startTime"]
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    assert starts(here, manifest["metadata"]["uid"]) == ["main/0"]


@on_nodes()
async def test_a_manifest_that_goes_ends_its_pod_with_its_grace(here: Nodes) -> None:
    script = {"main": [{"seconds": None, "stopSeconds": 20}]}
    here.manifests[KEY] = manifest = static(script)
    await settled(here)
    here.manifests.clear()
    mirror = await settled(here)
    assert mirror["status"]["phase"] == "Running"
    await here.after(20)
    assert await shown(here) is None
    assert manifest["metadata"]["uid"] not in here.runtimes["n0"].pods()


@on_nodes()
async def test_another_version_begins_when_the_last_has_ended(here: Nodes) -> None:
    script = {"main": [{"seconds": None, "stopSeconds": 20}]}
    here.manifests[KEY] = first = static(script)
    await settled(here)
    here.manifests[KEY] = second = static(hostname="h")
    await settled(here)
    assert starts(here, second["metadata"]["uid"]) == []
    await here.after(20)
    mirror = await settled(here)
    assert starts(here, first["metadata"]["uid"]) == []
    assert starts(here, second["metadata"]["uid"]) == ["main/0"]
    assert mirror["spec"]["hostname"] == "h"


@on_nodes()
async def test_a_pod_that_has_ended_stays_until_its_manifest_changes(here: Nodes) -> None:
    once = {"main": [{"seconds": 1, "exitCode": 3}]}
    here.manifests[KEY] = static(once, "Never")
    mirror = await settled(here)
    assert mirror["status"]["phase"] == "Failed"
    await here.delete("web-n0")
    assert (await settled(here))["status"]["phase"] == "Failed"
    here.manifests[KEY] = again = static(once, "Never", hostname="h")
    mirror = await settled(here)
    assert mirror["metadata"]["annotations"][manifests.HASH] == again["metadata"]["uid"]
    assert starts(here, again["metadata"]["uid"]) == ["main/0"]
    here.manifests.clear()
    await here.after(3)
    assert await shown(here) is None


@on_nodes()
async def test_a_container_of_a_static_pod_is_restarted(here: Nodes) -> None:
    script = {"main": [{"seconds": 1, "exitCode": 3}, {"seconds": None}]}
    here.manifests[KEY] = static(script)
    mirror = await settled(here)
    (status,) = mirror["status"]["containerStatuses"]
    assert (status["restartCount"], "running" in status["state"]) == (1, True)
    assert status["lastState"]["terminated"]["exitCode"] == 3


@on_nodes()
async def test_a_static_pod_runs_while_the_node_is_cut_off(here: Nodes) -> None:
    here.fleet.fail("n0", "partition")
    script = {"main": [{"seconds": 1, "exitCode": 3}, {"seconds": None}]}
    here.manifests[KEY] = manifest = static(script)
    await here.after(30)
    assert starts(here, manifest["metadata"]["uid"]) == ["main/1"]
    assert await shown(here) is None
    here.fleet.heal("n0")
    mirror = await settled(here)
    assert mirror["status"]["phase"] == "Running"
    assert mirror["status"]["containerStatuses"][0]["restartCount"] == 1


@on_nodes()
async def test_a_static_pod_runs_before_the_api_server_was_heard_of(here: Nodes) -> None:
    await here.create(nodes.pod("other", script=FOREVER))
    await here.after(1)
    other = (await here.call("GET", f"{nodes.PODS}/other"))["metadata"]["uid"]
    await here.crash_agent()
    here.manifests[KEY] = manifest = static()
    here.fleet, here.informer = nodes._fleet(here)
    here.fleet.begin()
    await here.after(3)
    assert starts(here, manifest["metadata"]["uid"]) == ["main/0"]
    assert starts(here, other) == ["main/0"]
    await here.fleet.stop()
    await here.boot()
    await settled(here)
    assert starts(here, manifest["metadata"]["uid"]) == ["main/0"]
    assert starts(here, other) == ["main/0"]


@on_nodes()
async def test_an_agent_that_is_restarted_finds_its_static_pods_again(here: Nodes) -> None:
    here.manifests[KEY] = manifest = static()
    before = await settled(here)
    await here.restart()
    after = await settled(here)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    assert starts(here, manifest["metadata"]["uid"]) == ["main/0"]


@on_nodes()
async def test_a_manifest_that_went_while_no_agent_was_there_leaves_nothing(here: Nodes) -> None:
    here.manifests[KEY] = manifest = static()
    await settled(here)
    await here.crash_agent()
    here.manifests.clear()
    await here.boot()
    await here.after(5)
    assert await shown(here) is None
    assert manifest["metadata"]["uid"] not in here.runtimes["n0"].pods()


@on_nodes(2)
async def test_a_mirror_that_mirrors_nothing_is_removed_and_never_run(here: Nodes) -> None:
    for node in ("n0", "n1"):
        manifest = nodes.pod(f"m-{node}", script=FOREVER, node=node)
        manifest["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
        await here.create(manifest)
    await here.after(3)
    assert await here.names() == []
    assert [list(each.pods()) for each in here.runtimes.values()] == [[], []]


@on_nodes()
async def test_a_pod_that_has_the_name_of_a_mirror_is_left_alone(here: Nodes) -> None:
    manifest = nodes.pod("web-n0", script=FOREVER, node="elsewhere")
    uid = (await here.create(manifest))["metadata"]["uid"]
    here.manifests[KEY] = own = static()
    mirror = await settled(here)
    assert mirror["metadata"]["uid"] == uid
    assert starts(here, own["metadata"]["uid"]) == ["main/0"]
    await here.delete("web-n0", gracePeriodSeconds=0)
    await here.after(15)
    mirror = await settled(here)
    assert mirror["metadata"]["annotations"][manifests.HASH] == own["metadata"]["uid"]


@on_nodes()
async def test_a_node_that_was_deleted_owns_its_mirrors_anew(here: Nodes) -> None:
    here.manifests[KEY] = static()
    await settled(here)
    await here.call("DELETE", "/api/v1/nodes/n0")
    await here.delete("web-n0", gracePeriodSeconds=0)
    await here.after(500)  # until the node has registered again
    mirror = await settled(here)
    (owner,) = mirror["metadata"]["ownerReferences"]
    assert owner["uid"] == (await here.node())["metadata"]["uid"]
