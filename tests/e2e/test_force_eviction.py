# SPDX-License-Identifier: Apache-2.0
"""KEP-36's scenarios with real processes: nodes that go off, are force evicted and return."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from refloat.app.node_faults import CUT, MEND
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.cli import demo as cli
from refloat.demo import catalogue, demo_run
from tests import builders
from tests.e2e import cluster
from tests.e2e.cluster import Api, Object
from tests.e2e.node_cluster import JOBS, NODES, PODS, agent_of, is_ready, until, up, wait

ON = "--feature-gates=TaintForceEviction=true"
WISH = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
KEP = {"key": "nodeShutdown", "value": "true", "effect": "ForceEviction"}
EVENTS = "/api/v1/namespaces/default/events"

FINISHED = ["ForceEvictionStarted", "ForceEvictionFinished"]

# Each start leaves a line behind, with the node's name.
WORK = "echo $NODE >> /data/starts; while true; do sleep 1; done"


class ForceEvictionCluster:
    """A cluster of two nodes, on one of which a Job's pod runs with a volume."""

    def __init__(self, folder: Path, api: Api) -> None:
        self.folder, self.api = folder, api
        api.create("/api/v1/persistentvolumes", builders.volume("v"))
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        api.create(claims, builders.claim("c", volume="v"))
        api.create(JOBS, _job())
        [first] = until(api, PODS, _one_runs)["items"]
        self.uid = first["metadata"]["uid"]
        self.node = first["spec"]["nodeName"]
        wait(lambda: self.starts() == [self.node], "the pod does not begin")

    @property
    def path(self) -> str:
        return f"{NODES}/{self.node}"

    def starts(self) -> list[str]:
        """On which nodes the work was begun, in order."""
        path = self.folder / "volumes" / "data" / "starts"
        return path.read_text().split() if path.exists() else []

    def do(self, verb: str, *flags: str) -> str:
        done = cluster.run("node", verb, self.node, "--data-dir", self.folder, *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def signal(self, by: signal.Signals) -> None:
        """Send one to the node's agent, once there is one, and wait until the agent has the signal.

        A starting agent delays signals; of two delayed ones the second would come first.
        """
        agent = wait(lambda: agent_of(self.folder, self.node), "no agent")
        os.kill(agent, by)
        wait(lambda: not is_pending(agent, by), f"the agent does not hear {by.name}")

    @property
    def other(self) -> str:
        """The name of the node that the first pod is not on."""
        [name] = {"n1", "n2"} - {self.node}
        return name

    def cordon(self, node: str, holds: bool) -> None:
        self.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": holds}})

    def cordon_all(self, holds: bool) -> None:
        for node in (self.node, self.other):
            self.cordon(node, holds)

    def off(self) -> None:
        self.do("crash")
        until(self.api, self.path, lambda node: not is_ready(node))

    def wish(self, taint: Object = WISH) -> None:
        taints = self.api.get(self.path)["spec"].get("taints") or []
        self.api.patch(self.path, {"spec": {"taints": [*taints, taint]}})

    def is_untainted(self) -> None:
        """Neither the request taint nor any trace of the request is left."""

        def holds(node: Object) -> bool:
            keys = [each["key"] for each in node["spec"].get("taints") or ()]
            annotations = node["metadata"].get("annotations") or {}
            return not {WISH["key"], KEP["key"]} & {*keys} and not any(
                "force-eviction" in each for each in annotations
            )

        until(self.api, self.path, holds)

    def is_evicted_without_link(self) -> list[str]:
        """Evict the node while its agent runs without a link; the starts before the request.

        On a busy machine the agent may renew its Lease before the signal comes. Then the
        request is refused, and the node fails once more.
        """
        refusals = 0
        while True:
            self.do("heal")
            self.signal(CUT)
            starts = self.starts()
            self.wish()
            self.is_untainted()
            wait(partial(self._is_answered, refusals), "no event about the request")
            if self.reasons()[-2:] == FINISHED:
                return starts
            refusals += 1
            self.off()

    def _is_answered(self, refusals: int) -> bool:
        reasons = self.reasons()
        return reasons[-2:] == FINISHED or reasons.count("ForceEvictionRefused") > refusals

    def goes_on_elsewhere(self, before: list[str] | None = None) -> None:
        """The Job's next pod runs on the other node, with the volume of the first."""
        [pod] = until(self.api, PODS, lambda found: _one_runs(found) and self._is_new(found))[
            "items"
        ]
        assert pod["spec"]["nodeName"] != self.node
        starts = [*(before or [self.node]), pod["spec"]["nodeName"]]
        wait(lambda: self.starts() == starts, "no second start")
        attachments = self.api.get("/apis/storage.k8s.io/v1/volumeattachments")["items"]
        assert [each["spec"]["nodeName"] for each in attachments] == [pod["spec"]["nodeName"]]

    def _is_new(self, pods: Object) -> bool:
        return all(each["metadata"]["uid"] != self.uid for each in pods["items"])

    def reasons(self) -> list[str]:
        events = self.api.get(EVENTS)["items"]
        own = [each for each in events if each["involvedObject"]["name"] == self.node]
        return [each["reason"] for each in own if each["reason"].startswith("ForceEviction")]


def is_pending(pid: int, by: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [waiting] = [line.split()[1] for line in lines if line.startswith("ShdPnd:")]
    return bool(int(waiting, 16) >> (by - 1) & 1)


def _job() -> Object:
    container = {
        "name": "main",
        "image": "work",
        "command": ["sh", "-c", WORK],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    template = {"restartPolicy": "OnFailure", "containers": [container], "volumes": volumes}
    spec = {"podReplacementPolicy": "Failed", "template": {"spec": template}}
    return {"metadata": {"name": "work"}, "spec": spec}


def _one_runs(pods: Object) -> Any:
    phases = [each["status"].get("phase") for each in pods["items"]]
    return phases == ["Running"]


def test_a_node_that_is_off_gives_up_its_pod_and_its_volume_and_returns_without(
    folder: Path,
) -> None:
    """Scenario 1, with the effect of the KEP; the node returns before the pod runs elsewhere.

    Cordons hold the next pod back until the node has returned.
    """
    with up(folder, 2, "--fast", ON) as server:
        here = ForceEvictionCluster(folder, Api(server.kubeconfig))
        here.off()
        here.cordon_all(True)
        here.wish(KEP)
        here.is_untainted()
        wait(lambda: here.reasons() == FINISHED, "no event names the end")
        here.do("heal")
        until(here.api, here.path, is_ready)
        assert here.starts() == [here.node]
        here.cordon(here.other, False)
        here.goes_on_elsewhere()
        assert server.end() == 0


def test_a_node_that_returns_and_cannot_reach_the_api_server_starts_nothing(
    folder: Path,
) -> None:
    """Scenario 2: the agent has no link from the start."""
    with up(folder, 2, "--fast", ON) as server:
        here = ForceEvictionCluster(folder, Api(server.kubeconfig))
        here.off()
        starts = here.is_evicted_without_link()
        here.goes_on_elsewhere(starts)
        here.signal(MEND)
        until(here.api, here.path, is_ready)
        assert here.starts()[:-1] == starts
        assert server.end() == 0


def test_a_node_that_is_back_is_refused(folder: Path) -> None:
    """Scenario 3: nothing changes, and the pod runs on in place."""
    with up(folder, 2, "--fast", ON) as server:
        here = ForceEvictionCluster(folder, Api(server.kubeconfig))
        here.off()
        here.do("heal")
        until(here.api, here.path, is_ready)
        here.wish()
        here.is_untainted()
        wait(lambda: here.starts() == [here.node] * 2, "it was not restarted")
        [pod] = until(here.api, PODS, _one_runs)["items"]
        assert pod["metadata"]["uid"] == here.uid
        wait(lambda: here.reasons() == ["ForceEvictionRefused"], "nobody said why")
        assert server.end() == 0


def test_a_node_is_shut_down_and_force_evicted_by_one_command(folder: Path) -> None:
    with up(folder, 2, "--fast", ON) as server:
        here = ForceEvictionCluster(folder, Api(server.kubeconfig))
        output = here.do("shutdown", "--force-evict")
        taint = "refloat.dev/force-eviction=true:NoSchedule"
        assert output.splitlines() == [
            (
                f"node {here.node} shuts down: the agent gives the pods their grace periods, "
                "then the node is off"
            ),
            f"node {here.node} is off, and has the taint {taint}",
        ]
        here.is_untainted()
        here.goes_on_elsewhere()
        wait(lambda: here.reasons()[-1:] == ["ForceEvictionFinished"], "it was not finished")
        assert server.end() == 0


def test_without_the_gate_the_command_says_how_to_have_it(folder: Path) -> None:
    with up(folder, 1, "--fast") as server:
        done = cluster.run("node", "shutdown", "n1", "--data-dir", folder, "--force-evict")
        assert done.returncode == 1
        assert "the gate TaintForceEviction is off" in done.stderr
        assert "--feature-gates TaintForceEviction=true" in done.stderr
        until(Api(server.kubeconfig), f"{NODES}/n1", is_ready)
        assert server.end() == 0


async def test_the_story_of_the_demo_comes_to_its_end() -> None:
    entry = catalogue.find("force-eviction")
    played = [line async for line in demo_run.run(entry, RealClock(), Rand(1), pace=0)]
    answers = [line.text for line in played if line.kind == "answer"]
    assert answers[0].startswith("the pod begins at 0 on ")
    assert answers[2].startswith("the pod begins at ")
    assert not answers[2].startswith("the pod begins at 0 ")
    assert answers[3] == "the Job has counted to 60; the taint is gone"
    texts = [text for line in played for text in cli.render(line)]
    assert [text for text in texts if len(text) > cli.WIDTH] == []
