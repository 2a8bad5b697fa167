# SPDX-License-Identifier: Apache-2.0
"""An embedded cluster and two managers that may free zombies: one does, and records this once."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Api, run, serving
from tests.e2e.test_manager import ManagerProcess, managing
from tests.e2e.test_zombies import CONFIG, EVENTS, SAFE, lose_node, until, zombie

COUNT = 20
CONTROLLERS = "failure-recovery-controller,force-eviction-controller"
READY = "/readyz?verbose"
ROLE = "leader/failure-recovery-controller ok: "


def records(*logs: Path) -> list[str]:
    """The pods of all audit records of forced ends."""
    lines = [line for log in logs for line in log.read_text().splitlines() if "{" in line]
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return sorted(each["pod"] for each in entries if each.get("action") == "terminated")


def says(manager: ManagerProcess, text: str) -> bool:
    return text in manager.page("health", READY)[1]


def test_one_of_three_processes_acts_and_the_others_say_so(tmp_path: Path) -> None:
    config = tmp_path / "refloat.yaml"
    config.write_text(CONFIG.format(gate="true", period="1s"))
    flags = ("--config", str(config), "--log-format", "json", "--log-level", "info")
    logs = [tmp_path / "data.stderr", tmp_path / "a.stderr", tmp_path / "b.stderr"]
    names = sorted(f"z{number}" for number in range(COUNT))
    with serving(tmp_path / "data", "--nodes", "0", "--controllers", CONTROLLERS, *flags) as server:
        api = Api(server.kubeconfig)
        until(lambda: f"{ROLE}leader" in api.ask("GET", READY).text)
        with (
            managing(server.kubeconfig, logs[1], *flags) as first,
            managing(server.kubeconfig, logs[2], *flags, "--no-leader-elect") as second,
        ):
            for each in (first, second):
                standby = f"[+]{ROLE}standby; refloat-up leads"
                until(partial(says, each, standby))
                assert each.page("health", "/readyz") == (200, "ok")
                state = 'refloat_actor_state{controller="failure-recovery-controller",state='
                assert f'{state}"standby"}} 1.0' in each.page("metrics", "/metrics")[1]
            lose_node(api, "lost")
            for name in names:
                zombie(api, name, annotations=SAFE)
            until(lambda: records(*logs) == [f"default/{name}" for name in names])
            explanation = run("explain", "--kubeconfig", str(server.kubeconfig), "node/lost")
            assert "embedded cluster process refloat-up leads" in " ".join(
                explanation.stdout.split()
            )
        events = api.ask("GET", EVENTS).object["items"]
        terminations = [each for each in events if each["reason"] == "KueueForcefullyTerminated"]
        assert sorted(each["involvedObject"]["name"] for each in terminations) == names
