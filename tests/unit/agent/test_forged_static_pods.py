# SPDX-License-Identifier: Apache-2.0
"""The author of a pod can write a kubelet's annotations, but they have no effect.

Only the node's own files make a pod static. Each forged case has its counterpart:
a pod of a file still has what a static pod has.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.agent import manifests
from refloat.api import self_fence
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.policy.node.eviction_thresholds import MEMORY
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes

SOURCE = "kubernetes.io/config.source"
FORGED = [{SOURCE: "file"}, {SOURCE: "http"}, {SOURCE: ""}, {manifests.HASH: "x", SOURCE: "file"}]
KEY = ("default", "web-n0")


def forged(name: str, annotations: dict[str, str], **more: Any) -> Object:
    """A pod of the API with the annotations of a static pod."""
    pod = nodes.pod(name, **more)
    pod["metadata"]["annotations"].update(annotations)
    return pod


def static(annotations: dict[str, str] | None = None, **more: Any) -> Object:
    """What a file with a pod `web` becomes on node n0."""
    pod = nodes.pod("web", node="", **more)
    pod["metadata"]["annotations"].update(annotations or {})
    return manifests.parse(msgspec.json.encode(pod), "n0", Path("/web.yaml"))[0]


def using(memory: str) -> dict[str, Any]:
    return {"main": {"seconds": None, "ignoreTerm": True, "memory": memory}}


def requesting(**resources: Any) -> dict[str, Any]:
    return {"containers": [nodes.container("main", resources=resources)]}


@pytest.mark.parametrize("annotations", FORGED, ids=str)
@on_nodes()
async def test_a_pod_that_claims_to_be_static_is_evicted_for_node_pressure(
    here: Nodes, annotations: dict[str, str]
) -> None:
    await here.create(forged("p", annotations, script=using("8128Mi")))
    await here.after(5)
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")


@on_nodes()
async def test_a_pod_of_a_file_is_not_evicted_for_node_pressure(here: Nodes) -> None:
    here.manifests[KEY] = static(script=using("8128Mi"))
    await here.after(60)
    assert (await here.status("web-n0"))["phase"] == "Running"


@on_nodes()
async def test_pod_that_claims_to_be_static_is_evicted_for_its_own_disk_limit(here: Nodes) -> None:
    spec = requesting(limits={"ephemeral-storage": "1Gi"})
    script = {"main": {"seconds": None, "storage": "2Gi"}}
    await here.create(forged("p", {SOURCE: "file"}, script=script, spec=spec))
    await here.after(20)
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")


@on_nodes()
async def test_a_node_that_is_low_turns_away_a_pod_that_claims_to_be_static(here: Nodes) -> None:
    await here.create(nodes.pod("p", script=using("1Mi")))
    here.usage["n0"].taken[MEMORY] = 8 << 30
    await here.after(15)
    await here.create(forged("q", {SOURCE: "file"}))
    await here.after(1)
    status = await here.status("q")
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")


@on_nodes()
async def test_no_pod_leaves_for_one_that_claims_to_be_static(here: Nodes) -> None:
    spec = requesting(requests={"cpu": "6"})
    await here.create(nodes.pod("p", script={"main": {"seconds": None}}, spec=spec))
    await here.after(1)
    await here.create(forged("q", {SOURCE: "file"}, spec=spec))
    await here.after(5)
    assert (await here.status("q"))["reason"] == "OutOfcpu"
    assert (await here.status("p"))["phase"] == "Running"


@on_nodes()
async def test_pods_of_the_api_leave_for_a_pod_of_a_file(here: Nodes) -> None:
    spec = requesting(requests={"cpu": "6"})
    await here.create(nodes.pod("p", script={"main": {"seconds": None}}, spec=spec))
    await here.after(1)
    here.manifests[KEY] = static(script={"main": {"seconds": None}}, spec=spec)
    await here.after(10)
    assert (await here.status("p"))["reason"] == "Preempting"
    assert (await here.status("web-n0"))["phase"] == "Running"


@pytest.mark.parametrize("annotations", FORGED, ids=str)
@on_nodes()
async def test_a_pod_that_claims_to_be_static_gets_the_deadline_that_it_asks_for(
    here: Nodes, annotations: dict[str, str]
) -> None:
    """Without that, the Job would wait for ever, or two pods of one index would run."""
    asks = {**annotations, self_fence.ANNOTATION: "true"}
    pod = await here.create(forged("p", asks, script={"main": {"seconds": None}}))
    await here.after(1)
    assert list(here.runtimes["n0"].deadlines()) == [pod["metadata"]["uid"]]


@on_nodes()
async def test_a_pod_of_a_file_gets_no_deadline(here: Nodes) -> None:
    """A static pod runs without an API server, and no controller replaces the pod."""
    script = {"main": {"seconds": None}}
    here.manifests[KEY] = static({self_fence.ANNOTATION: "true"}, script=script)
    await here.after(2)
    assert (await here.status("web-n0"))["phase"] == "Running"
    assert here.runtimes["n0"].deadlines() == {}


@on_nodes()
async def test_an_annotation_that_comes_later_makes_no_pod_static(here: Nodes) -> None:
    await here.create(nodes.pod("p", script=using("1Mi")))
    await here.after(1)
    patch = {"metadata": {"annotations": {SOURCE: "file"}}}
    await here.client.patch(kinds.PODS, "p", patch, namespace="default")
    here.usage["n0"].taken[MEMORY] = 8 << 30
    await here.after(20)
    assert (await here.status())["reason"] == "Evicted"
