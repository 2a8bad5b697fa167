# SPDX-License-Identifier: Apache-2.0
"""Which group of a machine is divided. What groups do, the other tests show with real ones."""

import os
from pathlib import Path

import pytest

from refloat.agent.keeper import cgroups
from refloat.agent.keeper.cgroups import CgroupTree


class Machine:
    """Files as a kernel would have them, in a folder; nothing acts on them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._proc = {"/proc/self/cgroup": "", "/proc/self/mountinfo": ""}
        self._patch = monkeypatch
        monkeypatch.setattr(cgroups, "read", self._read)
        self.boots_with_systemd(False)

    def _read(self, path: str) -> str:
        if path in self._proc:
            return self._proc[path]
        return Path(path).read_text() if Path(path).exists() else ""

    def boots_with_systemd(self, does: bool) -> None:
        self._patch.setattr(cgroups, "_SYSTEMD", str(self.folder if does else self.folder / "no"))

    def has(self, controller: str, own: str) -> None:
        """A hierarchy of version 1, and the keeper's own group."""
        self._proc["/proc/self/cgroup"] += f"4:{controller}:{own}\n"
        at = f"{self.folder}/{controller}"
        self._proc["/proc/self/mountinfo"] += (
            f"31 30 0:27 / {at} rw - cgroup cgroup rw,{controller}\n"
        )

    def has_unified(self, own: str, controllers: str = "cpu memory pids") -> Path:
        """The hierarchy of version 2, and the keeper's own group."""
        self._proc["/proc/self/cgroup"] += f"0::{own}\n"
        at = self.folder / "unified"
        self._proc["/proc/self/mountinfo"] += f"32 30 0:28 / {at} rw - cgroup2 cgroup2 rw\n"
        group = at / own.strip("/")
        for each in (group, group / "refloat-a", group / "refloat-agents"):
            each.mkdir(parents=True)
            for name in ("cgroup.subtree_control", "cgroup.procs"):
                (each / name).touch()
        (group / "cgroup.controllers").write_text(controllers)
        return group

    def homes(self, tree: CgroupTree) -> list[str]:
        return [str(Path(each).relative_to(self.folder)) for each in tree._homes]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def delegate(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(path: str, name: str) -> bytes:
        if (path, name) != (str(group), "user.delegate"):
            raise OSError("no such attribute")
        return b"1"

    monkeypatch.setattr(os, "getxattr", found)


def test_without_any_there_are_none(machine: Machine) -> None:
    assert CgroupTree.make("a") is None


def test_of_version_1_the_own_group_is_divided(machine: Machine) -> None:
    machine.has("pids", "/")
    machine.has("memory", "/outer")
    tree = CgroupTree.make("a")
    assert tree is not None
    assert machine.homes(tree) == ["pids/refloat-a", "memory/outer/refloat-a"]
    assert (tree.processes, tree.memory) == ("cgroup v1", "cgroup v1")


def test_memory_is_measured_where_only_processes_can_be_bounded(machine: Machine) -> None:
    machine.has("pids", "/")
    tree = CgroupTree.make("a")
    assert tree is not None
    assert (tree.processes, tree.memory) == ("cgroup v1", "measured")


def test_a_group_that_systemd_made_is_not_divided(machine: Machine) -> None:
    machine.boots_with_systemd(True)
    machine.has("pids", "/user.slice")
    machine.has("memory", "/")
    assert CgroupTree.make("a") is None


def test_of_version_2_the_root_is_divided(machine: Machine) -> None:
    root = machine.has_unified("/")
    tree = CgroupTree.make("a")
    assert tree is not None
    assert machine.homes(tree) == ["unified/refloat-a"]
    assert (tree.processes, tree.memory) == ("cgroup v2", "cgroup v2")
    for each in (root, root / "refloat-a"):
        assert (each / "cgroup.subtree_control").read_text() == "+pids +memory"


def test_of_version_2_somebody_elses_group_is_not_divided(machine: Machine) -> None:
    machine.has_unified("/outer")
    assert CgroupTree.make("a") is None


@pytest.mark.parametrize("own", ["/outer", "/outer/refloat-agents"], ids=["first", "again"])
def test_of_version_2_a_group_that_was_delegated_is_divided_and_cleared(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    machine.boots_with_systemd(True)
    group = machine.has_unified("/outer")
    machine._proc["/proc/self/cgroup"] = f"0::{own}\n"
    delegate(group, monkeypatch)
    (group / "cgroup.procs").write_text("7\n")
    tree = CgroupTree.make("a")
    assert tree is not None
    assert machine.homes(tree) == ["unified/outer/refloat-a"]
    assert (group / "refloat-agents" / "cgroup.procs").read_text() == "7"


def test_version_2_without_its_controllers_leaves_version_1(machine: Machine) -> None:
    machine.has_unified("/", controllers="hugetlb")
    machine.has("pids", "/")
    tree = CgroupTree.make("a")
    assert tree is not None
    assert tree.processes == "cgroup v1"


def test_what_a_container_of_version_2_gets(machine: Machine) -> None:
    machine.has_unified("/")
    tree = CgroupTree.make("a")
    assert tree is not None
    folder = Path(f"{machine.folder}/unified/refloat-a/c")
    folder.mkdir()
    want = {"pids.max": "9", "memory.max": "1000", "memory.swap.max": "0", "memory.oom.group": "1"}
    for name in want:
        (folder / name).touch()
    group = tree.add("c", pids=9, memory=1000)
    assert group.folders == [str(folder)]
    assert {name: (folder / name).read_text() for name in want} == want
    (folder / "memory.events").write_text("oom 3\noom_kill 0\n")
    assert not group.had_oom_kill()
    (folder / "memory.events").write_text("oom 3\noom_kill 1\n")
    assert group.had_oom_kill()
