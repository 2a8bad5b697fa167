# SPDX-License-Identifier: Apache-2.0
"""The life of a container: start, environment, end."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import mounts, service
from refloat.agent.process.images import ImageSettings
from refloat.agent.process.settings import ContainerUser
from refloat.agent.runtime import StartError
from tests.cases import cases
from tests.unit.agent.process.node import IS_ROOT, ProcessNode, environment_of, node, pod, sh, until


async def test_a_container_ends_with_the_exit_code_of_its_process(here: ProcessNode) -> None:
    record = await here.run(sh("a", "exit 3"))
    assert (record.exit_code, record.reason, record.attempt) == (3, "", 0)
    assert record.container_id.startswith("process://")
    assert record.started_at is not None
    assert record.finished_at is not None
    assert record.started_at <= record.finished_at


async def test_a_signal_is_told_as_a_shell_does(here: ProcessNode) -> None:
    record = await here.run(sh("a", "kill -9 $$"))
    assert record.exit_code == 137
    assert record.reason == ""


@cases(
    "command want",
    {
        "not on the path": (["nosuch"], 'exec: "nosuch": executable file not found in $PATH'),
        "no such file": (["/nosuch"], 'exec: "/nosuch": stat /nosuch: no such file or directory'),
        "not executable": (["/etc/passwd"], 'exec: "/etc/passwd": permission denied'),
        "a directory": (["/etc"], 'exec: "/etc": is a directory'),
    },
)
async def test_what_cannot_be_executed_ends_as_containerd_says(
    here: ProcessNode, command: list[str], want: str
) -> None:
    record = await here.run(pod("a", *command))
    assert (record.exit_code, record.reason, record.message) == (128, "StartError", want)
    assert record.started_at is None


async def test_a_working_folder_that_is_not_there_is_named(here: ProcessNode) -> None:
    record = await here.run(pod("a", "true", workingDir="/nosuch"))
    assert record.message == 'chdir to cwd ("/nosuch"): no such file or directory'


async def test_a_container_runs_in_its_working_folder(here: ProcessNode) -> None:
    await here.run(pod("a", "pwd", workingDir="/usr"))
    assert here.log("a") == "/usr\n"


async def test_a_container_without_a_command_names_the_setting_that_gives_one(
    here: ProcessNode,
) -> None:
    with pytest.raises(StartError, match='in the file of --images fits image "any"') as error:
        await here.run(pod("a"))
    assert error.value.reason == "CreateContainerError"


async def test_an_image_can_stand_for_a_command(tmp_path: Path) -> None:
    images = ImageSettings(commands={"an*": ["echo", "from the image"]})
    async with node(tmp_path, images=images) as here:
        await here.run(pod("a", args=["and", "$(WHO)"], env=[{"name": "WHO", "value": "me"}]))
        assert here.log("a") == "from the image and me\n"


async def test_nothing_of_the_agents_environment_gets_into_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "of the agent")
    async with node(tmp_path) as here:
        await here.start(pod("a", "sleep", "100", env=[{"name": "MINE", "value": "yes"}]))
        (process,) = here.processes()
        environment = environment_of(process)
        assert sorted(environment) == ["HOME", "HOSTNAME", "MINE", "PATH", "REFLOAT_CONTAINER"]
        assert "A_SECRET" not in environment_of(here.runtime.features["pid"])
        assert here.runtime.stop("a", "main", 0)
        await here.ended("a")


async def test_a_container_inherits_three_open_files_and_no_other(here: ProcessNode) -> None:
    await here.run(pod("a", "ls", "/proc/self/fd"))
    assert here.log("a").split() == ["0", "1", "2", "3"]  # the last is of `ls` itself


def held_back(status: str) -> dict[str, int]:
    """The signals that a process blocks or ignores, as sets of bits.

    Without the two signals that the C library reserves.
    """
    signals = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    ours = sum(1 << (each - 1) for each in signal.valid_signals())
    return {name: int(signals[name], 16) & ours for name in ("SigBlk", "SigIgn")}


async def test_a_container_hears_every_signal_whatever_its_agent_does(tmp_path: Path) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2))
    ignored = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        async with node(tmp_path) as here:
            await here.run(pod("a", "cat", "/proc/self/status"))
            assert held_back(here.log("a")) == {"SigBlk": 0, "SigIgn": 0}
            keeper = Path(f"/proc/{here.runtime.features['pid']}/status").read_text()
            assert held_back(keeper)["SigBlk"] == 0
    finally:
        signal.signal(signal.SIGQUIT, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


async def test_containers_of_a_root_agent_run_as_nobody(here: ProcessNode) -> None:
    await here.run(sh("a", "id -u; id -g; id -G"))
    want = "65534" if IS_ROOT else str(os.getuid())
    assert here.log("a").split()[0] == want


def by_user(**security: Any) -> dict[str, Any]:
    return {"securityContext": security}


async def test_a_container_may_ask_for_another_user_but_not_for_root(tmp_path: Path) -> None:
    async with node(tmp_path, user=ContainerUser()) as here:
        with pytest.raises(StartError, match="runAsUser and runAsGroup: 0 would be root"):
            await here.start(pod("r", "true", **by_user(runAsUser=0)))
        if IS_ROOT:
            await here.run(sh("a", "id -u; id -g", **by_user(runAsUser=1234, runAsGroup=5678)))
            assert here.log("a").split() == ["1234", "5678"]


async def test_a_container_may_not_ask_for_groups_of_the_machine(tmp_path: Path) -> None:
    async with node(tmp_path, user=ContainerUser()) as here:
        manifest = pod("a", "true")
        manifest["spec"]["securityContext"] = {"supplementalGroups": [0]}
        with pytest.raises(StartError, match="0 would be groups of this machine") as error:
            await here.start(manifest)
        assert error.value.reason == "CreateContainerConfigError"


async def test_a_container_cannot_look_into_the_nodes_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    async with node(tmp_path) as here:
        assert here.settings.folder.stat().st_mode & 0o077 == 0
        if here.runtime.features["mounts"] != mounts.NONE:
            await here.run(pod("a", "ls", "-A", str(here.settings.folder)))
            assert service.SOCKET not in here.log("a")
            assert here.log("a") == "" or "Permission denied" in here.log("a")


async def test_a_hundred_containers_come_and_go(here: ProcessNode) -> None:
    """None is lost or stuck."""
    for number in range(100):
        await here.start(pod(f"p{number}", "true"))
    for number in range(100):
        assert (await here.ended(f"p{number}")).exit_code == 0


async def test_removing_a_pod_leaves_no_file_of_it(here: ProcessNode) -> None:
    volume: list[Any] = [{"name": "v", "emptyDir": {}}]
    mount = [{"name": "v", "mountPath": "/shut"}]
    shut = "cd ${REFLOAT_VOLUME_V:-/shut}; mkdir -p a/b; touch a/b/c; chmod 0 a"
    record = await here.run(sh("a", shut, volumes=volume, volumeMounts=mount))
    assert record.exit_code == 0
    assert (here.runtime.folder("a").volume("v") / "a").exists()
    here.runtime.remove("a")
    assert here.runtime.pods() == []
    await until(lambda: not here.runtime.folder("a").path.exists())


async def test_usage_is_told_of_what_runs(here: ProcessNode) -> None:
    await here.start(sh("a", "sleep 100 & echo ready; wait"))
    await here.printed("a", "ready")
    used = (await here.runtime.usage())["a"]["main"]
    assert used.processes == 2
    assert used.memory_bytes > 0
    here.runtime.stop("a", "main", 0)
    await here.ended("a")
    assert await here.runtime.usage() == {}


async def test_something_else_can_be_run_within_a_container(here: ProcessNode) -> None:
    await here.start(pod("a", "sleep", "100", env=[{"name": "WHO", "value": "main"}]))
    command = ["sh", "-c", "echo $WHO; echo oh >&2; exit 7"]
    assert await here.runtime.execute("a", "main", command, 10) == (7, "main\noh\n")
    assert await here.runtime.execute("a", "main", ["sleep", "100"], 0.05) == (None, "")
    here.runtime.stop("a", "main", 0)
    await here.ended("a")
