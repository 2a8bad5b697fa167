# SPDX-License-Identifier: Apache-2.0
"""Creates situations on a cluster, all at once, and asks explain about each."""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.e2e import agents, cluster, node_cluster
from tests.e2e.cluster import PATIENCE_SECONDS, Api, ServerProcess, serving
from tests.e2e.situations.steps import Playground, Situation, Step, View, create

# Between two readings of the cluster.
POLL_SECONDS = 0.3

CONFIG = """
apiVersion: config.refloat.dev/v1alpha1
kind: Configuration
featureGates: {FailureRecoveryPolicy: true}
attemptLogs: {lines: 3}
failureRecoveryPolicy:
  annotated: {forcefulTerminationGracePeriod: 10m}
  rules:
  - terminatePod:
      podLabelSelector: {matchLabels: {recovery: soon}}
      forcefulTerminationGracePeriod: 1s
"""
IMAGES = {
    "missing": ["registry.example.com/missing:*"],
    "pullSeconds": {"registry.example.com/slow:*": 3600},
}

_HEADING = re.compile(r"^(\w+) (?:[-\w]+/)?(\S+): (\w+/\w+)$", re.MULTILINE)


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Playground]:
    """Four nodes: `n1` that nothing changes, `n2`, `images` with images, and `low`."""
    images, data_dir = folder / "images.json", folder / "data"
    images.write_text(json.dumps(IMAGES))
    try:
        with node_cluster.up(data_dir, 2, "--fast", *_config(folder)) as server:
            api = Api(server.kubeconfig)
            flags = ("--accept-all-pods", "--fast")
            with (
                agents.joined(server, "images", *flags, "--images", str(images)),
                agents.joined(server, "low", *flags) as low,
            ):
                for name in ("images", "low"):
                    node_cluster.until(api, f"{node_cluster.NODES}/{name}", node_cluster.is_ready)
                yield Playground(server.kubeconfig, api, {"low": low}, _commands(server))
            assert server.end() == 0
    finally:
        for pid in node_cluster.processes(data_dir):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def simulated(folder: Path) -> Iterator[Playground]:
    """Four simulated nodes."""
    flags = ("--simulated-nodes", "4", "--fast", *_config(folder))
    with serving(folder / "simulated", *flags) as server:
        api = Api(server.kubeconfig)
        for number in range(4):
            node_cluster.until(api, f"{node_cluster.NODES}/node-{number}", node_cluster.is_ready)
        yield Playground(server.kubeconfig, api, fail=_commands(server))
        assert server.end() == 0


def _commands(server: ServerProcess) -> Callable[[str, str], None]:
    def fail(verb: str, node: str) -> None:
        done = cluster.run("node", verb, node, "--data-dir", server.data_dir)
        assert done.returncode == 0, done.stderr

    return fail


def _config(folder: Path) -> tuple[str, str]:
    path = folder / "refloat.yaml"
    path.write_text(CONFIG)
    return "--config", str(path)


def play(
    ground: Playground, situations: Sequence[Situation], *, within: float = PATIENCE_SECONDS
) -> dict[str, str]:
    """What explain says of each situation, asked once, when the API shows the situation."""
    empty = View(ground.api, {}, {}, {}, (), frozenset())
    for each in situations:
        create(*each.manifests)(ground, empty)
    steps = {each.name: list(each.steps) for each in situations}
    answers: dict[str, str] = {}
    deadline = time.monotonic() + within
    while waiting := [each for each in situations if each.name not in answers]:
        view = View.read(ground.api, tuple(answers))
        for each in waiting:
            _next_step(ground, view, steps[each.name])
        ready = [each for each in waiting if not steps[each.name] and _is_ready(each, view)]
        if ready:
            answers |= split(ground.explain(*(each.subject for each in ready)))
        else:
            time.sleep(POLL_SECONDS)
        assert time.monotonic() < deadline, [each.name for each in waiting]
    return answers


def _next_step(ground: Playground, view: View, steps: list[Step]) -> None:
    if steps and steps[0][0](view):
        steps.pop(0)[1](ground, view)


def _is_ready(situation: Situation, view: View) -> bool:
    """An object that a step of this round has created is not in the view yet."""
    if situation.kind == "job" and situation.name not in view.jobs:
        return False
    return bool(situation.ready(view))


def split(output: str) -> dict[str, str]:
    """The answers by the name of their object."""
    headings = list(_HEADING.finditer(output))
    ends = [*(each.start() for each in headings[1:]), len(output)]
    return {
        each[2]: output[each.start() : end].strip("\n") + "\n"
        for each, end in zip(headings, ends, strict=True)
    }


def mistakes(situations: Sequence[Situation], answers: Mapping[str, str]) -> list[str]:
    """What differs from the table, with the whole answer."""
    wrong = []
    for each in situations:
        answer = answers[each.name]
        heading, text = _HEADING.search(answer), " ".join(answer.split())
        assert heading is not None
        if heading[3] != each.code:
            wrong.append(f"{each.name}: not {each.code}\n{answer}")
        else:
            lacking = [word for word in each.words if word not in text]
            wrong += [f"{each.name}: lacks {word!r}\n{answer}" for word in lacking]
    return wrong
