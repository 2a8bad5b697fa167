# SPDX-License-Identifier: Apache-2.0
"""Each field of a security context: honoured, or a reason to refuse the container."""

import os
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import mounts, start_request
from refloat.agent.process import security_context
from refloat.agent.process.security_context import Machine
from refloat.agent.process.settings import ContainerUser
from refloat.agent.runtime import StartError
from tests.unit.agent.process.node import IS_ROOT, File, ProcessNode, node, pod, sh
from tests.unit.agent.process.test_volumes import with_volume

# A machine with the groups 4 and 100; user 1000 is in 100.
ROOT = Machine(
    uid=0,
    gid=0,
    groups=lambda: [0],
    is_known_group=lambda gid: gid in (0, 4, 100, 65534),
    primary_group=lambda uid: 100 if uid == 1000 else None,
)
USER = Machine(uid=1000, gid=100, groups=lambda: [100, 4], is_known_group=lambda _: True)
POOR = Machine(view=mounts.NONE, read_only_root=False, seccomp=False, uid=1000, gid=100)


def judged(
    machine: Machine, *, spec: Any = None, of_pod: Any = None, **container: Any
) -> dict[str, Any]:
    manifest = pod("a", "true", securityContext=container)
    manifest["spec"] |= {"securityContext": of_pod or {}, **(spec or {})}
    user = ContainerUser() if machine.uid == 0 else None
    return security_context.resolve(user, manifest, manifest["spec"]["containers"][0], machine)


@pytest.mark.parametrize(
    ("machine", "context", "why"),
    [
        (ROOT, {"runAsUser": 0}, "runAsUser and runAsGroup: 0 would be root of this machine"),
        (ROOT, {"runAsGroup": 0}, "runAsUser and runAsGroup: 0 would be root of this machine"),
        (ROOT, {"runAsGroup": 4}, "runAsGroup: 4 is a group of this machine"),
        (ROOT, {"runAsUser": 5, "runAsGroup": 100}, "runAsGroup: 100 is a group of this machine"),
        (ROOT, {"of_pod": {"supplementalGroups": [7, 4]}}, "4 would be groups of this machine"),
        (ROOT, {"of_pod": {"fsGroup": 4}}, "fsGroup: 4 would be groups of this machine"),
        (ROOT, {"privileged": True}, "privileged: a process of this runtime gets no rights"),
        (ROOT, {"capabilities": {"add": ["NET_ADMIN", "SYS_TIME"]}}, "add: NET_ADMIN, SYS_TIME:"),
        (ROOT, {"procMount": "Unmasked"}, "procMount: Unmasked: "),
        (ROOT, {"seLinuxOptions": {"level": "s0"}}, "seLinuxOptions: "),
        (ROOT, {"of_pod": {"seLinuxOptions": {"level": "s0"}}}, "seLinuxOptions: "),
        (ROOT, {"windowsOptions": {"hostProcess": True}}, "windowsOptions: "),
        (ROOT, {"seccompProfile": {"type": "Localhost"}}, "seccompProfile: Localhost: "),
        (ROOT, {"appArmorProfile": {"type": "Localhost"}}, "appArmorProfile: Localhost: "),
        (ROOT, {"appArmorProfile": {"type": "RuntimeDefault"}}, "appArmorProfile: RuntimeDefault"),
        (ROOT, {"of_pod": {"sysctls": [{"name": "x", "value": "1"}]}}, "sysctls: "),
        (ROOT, {"spec": {"hostUsers": False}}, "hostUsers: false: "),
        (POOR, {"readOnlyRootFilesystem": True}, "readOnlyRootFilesystem: the agent cannot"),
        (POOR, {"seccompProfile": {"type": "RuntimeDefault"}}, "seccompProfile: RuntimeDefault: "),
        (USER, {"runAsUser": 1}, "runAsUser: 1: an agent without root runs containers as 1000"),
        (USER, {"runAsUser": 0}, "runAsUser: 0: an agent without root runs containers as 1000"),
        (USER, {"runAsGroup": 1}, "runAsGroup: 1: an agent without root runs containers as 100 "),
        (USER, {"of_pod": {"supplementalGroups": [5]}}, "supplementalGroups and fsGroup: 5: "),
        (USER, {"of_pod": {"fsGroup": 5}}, "supplementalGroups and fsGroup: 5: "),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else "",
)
def test_what_cannot_be_honoured_is_refused(machine: Machine, context: Any, why: str) -> None:
    with pytest.raises(StartError) as error:
        judged(machine, **context)
    assert why in str(error.value)
    assert error.value.reason == "CreateContainerConfigError"


PLAIN = {"uid": 65534, "gid": 65534, "groups": []}


@pytest.mark.parametrize(
    ("machine", "context", "want"),
    [
        (ROOT, {}, {"user": PLAIN, "read_only_root": False, "seccomp": False}),
        (ROOT, {"runAsUser": 7, "runAsGroup": 8}, {"user": PLAIN | {"uid": 7, "gid": 8}}),
        (ROOT, {"of_pod": {"runAsUser": 7}, "runAsUser": 9}, {"user": PLAIN | {"uid": 9}}),
        (ROOT, {"of_pod": {"runAsUser": 7}}, {"user": PLAIN | {"uid": 7}}),
        (ROOT, {"runAsUser": 1000, "runAsGroup": 100}, {"user": PLAIN | {"uid": 1000, "gid": 100}}),
        (
            ROOT,
            {"of_pod": {"supplementalGroups": [7, 8], "fsGroup": 9}},
            {"user": PLAIN | {"groups": [7, 8, 9]}},
        ),
        (ROOT, {"runAsNonRoot": True, "privileged": False}, {"user": PLAIN}),
        (ROOT, {"capabilities": {"drop": ["ALL"]}, "procMount": "Default"}, {"user": PLAIN}),
        (ROOT, {"allowPrivilegeEscalation": True}, {"user": PLAIN}),
        (ROOT, {"readOnlyRootFilesystem": True}, {"read_only_root": True}),
        (ROOT, {"of_pod": {"seccompProfile": {"type": "RuntimeDefault"}}}, {"seccomp": True}),
        (ROOT, {"seccompProfile": {"type": "Unconfined"}}, {"seccomp": False}),
        (ROOT, {"appArmorProfile": {"type": "Unconfined"}}, {"user": PLAIN}),
        (ROOT, {"spec": {"hostPID": True, "hostIPC": True, "hostNetwork": True}}, {"user": PLAIN}),
        (USER, {"runAsUser": 1000, "runAsGroup": 100, "runAsNonRoot": True}, {"user": None}),
        (USER, {"of_pod": {"supplementalGroups": [4], "fsGroup": 100}}, {"user": None}),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else "",
)
def test_what_can_be_honoured_is(machine: Machine, context: Any, want: Any) -> None:
    fields = judged(machine, **context)
    assert {name: fields[name] for name in want} == want


async def test_no_container_can_gain_rights_nor_has_any(here: ProcessNode) -> None:
    await here.run(pod("a", "cat", "/proc/self/status"))
    status = dict(line.split(":\t", 1) for line in here.log("a").splitlines())
    assert status["NoNewPrivs"] == "1"
    for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        assert int(status[name], 16) == 0, name
    if here.runtime.features["mounts"] != mounts.NONE:
        assert int(status["CapBnd"], 16) == 0


async def test_a_container_of_the_agents_own_user_cannot_gain_rights_either(tmp_path: Path) -> None:
    async with node(tmp_path, user=None) as here:
        await here.run(pod("a", "grep", "NoNewPrivs", "/proc/self/status"))
        assert here.log("a").split() == ["NoNewPrivs:", "1"]


async def test_a_hook_has_no_more_rights_than_its_container(here: ProcessNode) -> None:
    security = {"seccompProfile": {"type": "RuntimeDefault"}}
    await here.start(pod("a", "sleep", "1001", securityContext=security))
    look = ["grep", "-E", "NoNewPrivs|CapEff|Seccomp:", "/proc/self/status"]
    _, output = await here.runtime.execute("a", "main", look, 10)
    assert output.split()[1::2] == ["0000000000000000", "1", "2"]


async def test_a_read_only_root_lets_volumes_and_nothing_else_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    writable = tmp_path / "writable"
    writable.mkdir()
    writable.chmod(0o777)
    script = (
        f"touch {writable}/f /tmp/refloat-f && echo wrong; echo x > $V/f && echo volume;"
        "echo x > /dev/termination-log && echo message; echo x > /dev/null && echo device"
    )
    async with node(tmp_path) as here:
        if not here.runtime.features["read_only_root"]:
            return  # then the runtime refuses the container: see above
        manifest = with_volume("a", script, "/refloat-data")
        manifest["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
        record = await here.run(manifest)
        lines = [line for line in here.log("a").splitlines() if "touch" not in line]
        assert (lines, record.message) == (["volume", "message", "device"], "x\n")
    assert list(writable.iterdir()) == []


async def test_a_volume_for_reading_stays_so_under_a_read_only_root(here: ProcessNode) -> None:
    if not here.runtime.features["read_only_root"]:
        return  # then the runtime refuses the container: see above
    here.inputs.volumes["v"] = {"key": File(b"value")}
    manifest = with_volume("a", "echo x > $V/new", "/refloat-data", {"configMap": {}})
    manifest["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
    assert (await here.run(manifest)).exit_code != 0
    assert "Read-only file system" in here.log("a")


async def test_default_filter_refuses_namespaces_and_lets_programs_run(here: ProcessNode) -> None:
    if not here.runtime.features["seccomp"]:
        return  # then the runtime refuses the container: see above
    script = "unshare --user true && echo wrong; (echo from a shell | cat); uname -s"
    for uid, profile in (("a", "RuntimeDefault"), ("b", "Unconfined")):
        security = {"seccompProfile": {"type": profile}}
        await here.run(sh(uid, script, securityContext=security))
    assert here.log("a").splitlines() == [
        "unshare: unshare failed: Operation not permitted",
        "from a shell",
        "Linux",
    ]
    assert "Operation not permitted" not in here.log("b") or not IS_ROOT


async def test_groups_are_those_of_the_pod_and_own_its_volumes(tmp_path: Path) -> None:
    if not IS_ROOT:
        return  # without root the runtime refuses all groups but the agent's own
    async with node(tmp_path) as here:
        here.inputs.volumes["c"] = {"key": File(b"value", 0o600)}
        manifest = with_volume("a", "id -G; stat -c '%g %a' $V /c/key; cat /c/key", "/data")
        manifest["spec"]["securityContext"] = {"supplementalGroups": [71_001], "fsGroup": 71_002}
        manifest["spec"]["volumes"].append({"name": "c", "configMap": {}})
        main = manifest["spec"]["containers"][0]
        main["volumeMounts"].append({"name": "c", "mountPath": "/c"})
        await here.run(manifest)
        assert here.log("a").splitlines()[0].split()[0] == "65534"
        assert set(here.log("a").splitlines()[0].split()[1:]) == {"71001", "71002"}
        assert here.log("a").splitlines()[1:] == ["71002 2777", "71002 640", "value"]


async def test_a_refused_container_leaves_no_volume_behind(here: ProcessNode) -> None:
    manifest = with_volume("a", "true", "/data")
    manifest["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(StartError, match="privileged"):
        await here.start(manifest)
    assert not here.runtime.folder("a").path.exists()


def test_the_facts_of_a_machine_are_its_own() -> None:
    features = {"mounts": mounts.NONE, "read_only_root": False, "seccomp": True}
    machine = Machine.of({"protocol": start_request.PROTOCOL, **features})
    assert (machine.view, machine.uid) == (mounts.NONE, os.geteuid())
    assert machine.is_known_group(0)
    assert not machine.is_known_group(71_001)
    assert machine.primary_group(0) == 0
    assert machine.primary_group(71_001) is None
