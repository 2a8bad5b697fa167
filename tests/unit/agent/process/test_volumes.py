# SPDX-License-Identifier: Apache-2.0
"""Volumes and termination messages of containers."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import mounts
from refloat.agent.runtime import StartError
from tests.cases import cases
from tests.unit.agent.process.node import IS_ROOT, File, ProcessNode, node, pod, sh, until


def with_volume(uid: str, script: str, at: str, volume: Any = None, **mount: Any) -> Any:
    """A script that has the path of volume v in $V."""
    volumes = [{"name": "v", **(volume or {"emptyDir": {}})}]
    where = f"V=${{REFLOAT_VOLUME_V:-{at}}}; {script}"
    return sh(uid, where, volumes=volumes, volumeMounts=[{"name": "v", "mountPath": at, **mount}])


@cases(
    "at",
    {
        "beside the root's folders": "/refloat-new",
        "some folders deep": "/refloat-new/and/below",
        "in a folder of the machine's": "/usr/refloat-new/x",
        "on a folder that is there": "/mnt",
    },
)
async def test_a_volume_appears_at_its_path_and_the_machine_stays_as_it_is(
    tmp_path: Path, at: str
) -> None:
    before = Path(at).exists() and sorted(Path(at).iterdir())
    async with node(tmp_path) as here:
        record = await here.run(with_volume("a", "echo hi > $V/f; ls $V; ls -d /usr/bin /etc", at))
        assert record.exit_code == 0
        assert here.log("a") == "f\n/etc\n/usr/bin\n"
        assert (here.runtime.folder("a").volume("v") / "f").read_text() == "hi\n"
        assert (Path(at).exists() and sorted(Path(at).iterdir())) == before


async def test_an_empty_folder_outlives_a_container_but_not_its_pod(here: ProcessNode) -> None:
    await here.run(with_volume("a", "echo one >> $V/f", "/data"))
    await here.run(with_volume("a", "echo two >> $V/f; cat $V/f", "/data"), attempt=1)
    assert here.log("a", 1) == "one\ntwo\n"


CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}


async def test_what_is_behind_a_claim_outlives_its_pod(tmp_path: Path) -> None:
    async with node(tmp_path / "node") as here:
        here.inputs.folders["v"] = tmp_path / "volumes" / "data"
        await here.run(with_volume("a", "echo one >> $V/f", "/data", CLAIM))
        assert list(await here.runtime.disk_usage("a")) == ["logs/main"]
        here.runtime.remove("a")
        await until(lambda: not here.runtime.folder("a").path.exists())
        await here.run(with_volume("b", "echo two >> $V/f; cat $V/f", "/data", CLAIM))
        assert here.log("b") == "one\ntwo\n"


async def test_a_claim_can_be_for_reading_only(tmp_path: Path) -> None:
    async with node(tmp_path / "node") as here:
        if here.runtime.features["mounts"] == mounts.NONE:
            return  # root can always write
        here.inputs.folders["v"] = tmp_path / "data"
        claim = {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
        record = await here.run(with_volume("a", "echo x > $V/f", "/data", claim))
        assert record.exit_code != 0
        assert not (tmp_path / "data" / "f").exists()


async def test_files_are_shown_with_their_modes_and_cannot_be_changed(here: ProcessNode) -> None:
    here.inputs.volumes["v"] = {"key": File(b"value\n"), "in/side": File(b"x", 0o444)}
    script = "cat $V/key; stat -c %a $V/in/side; touch $V/key || echo kept"
    await here.run(with_volume("a", script, "/etc/refloat-config", {"configMap": {}}))
    assert [line for line in here.log("a").splitlines() if "touch" not in line] == [
        "value",
        "444",
        "kept",
    ]


async def test_a_part_of_a_volume_can_be_shown(here: ProcessNode) -> None:
    here.inputs.volumes["v"] = {"key": File(b"value\n")}
    mount = with_volume("a", "cat $V", "/etc/refloat.conf", {"configMap": {}}, subPath="key")
    await here.run(mount)
    assert here.log("a") == "value\n"


async def test_a_link_does_not_lead_out_of_a_volume(here: ProcessNode) -> None:
    await here.run(with_volume("a", "ln -s /etc $V/out", "/data"))
    with pytest.raises(StartError, match=r'volumeMount "v" .*: out: a symbolic link'):
        await here.start(with_volume("a", "true", "/data", subPath="out"), attempt=1)


async def test_a_folder_of_the_machine_can_be_shown(tmp_path: Path) -> None:
    async with node(tmp_path, user=None) as here:
        target = tmp_path / "shown"
        target.mkdir()
        host = {"hostPath": {"path": str(target)}}
        await here.run(with_volume("a", "echo hi > $V/f", "/host", host))
        assert (target / "f").read_text() == "hi\n"
        assert (
            await here.run(with_volume("b", "echo hi > $V/g", "/host", host, readOnly=True))
        ).exit_code != (0 if here.runtime.features["mounts"] != mounts.NONE else None)


async def test_what_lies_in_the_machines_folder_outlives_the_pod(tmp_path: Path) -> None:
    async with node(tmp_path, user=None) as here:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "file").touch()
        host = {"hostPath": {"path": str(tmp_path / "precious")}}
        await here.run(with_volume("a", "ls $V", "/host", host))
        here.runtime.remove("a")
    assert (tmp_path / "precious" / "file").exists()


@cases(
    "volume want",
    {
        "another kind": ({"nfs": {"path": "/x"}}, "nfs is not a volume of this runtime"),
        "a folder that is not there": (
            {"hostPath": {"path": "/nosuch", "type": "Directory"}},
            "hostPath type check failed: /nosuch is not a directory",
        ),
    },
)
async def test_a_volume_that_cannot_be_is_named(here: ProcessNode, volume: Any, want: str) -> None:
    with pytest.raises(StartError, match=want):
        await here.start(with_volume("a", "true", "/data", volume))


async def test_a_mount_of_no_volume_is_named(here: ProcessNode) -> None:
    manifest = pod("a", "true", volumeMounts=[{"name": "x", "mountPath": "/x"}])
    want = 'cannot find volume "x" to mount into container "main"'
    with pytest.raises(StartError, match=want):
        await here.start(manifest)


MESSAGE = "> ${REFLOAT_TERMINATION_LOG:-/dev/termination-log}"


@cases(
    "script more want",
    {
        "written": (f"printf done {MESSAGE}", {}, "done"),
        "nothing written": ("true", {}, ""),
        "the last 4096 bytes": (f"yes | head -c 10000 {MESSAGE}", {}, "y\n" * 2048),
        "not from the log unless it is said": ("echo why; exit 1", {}, ""),
        "from the log": (
            "echo why; exit 1",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "why\n",
        ),
        "not from the log when it went well": (
            "echo why",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "",
        ),
        "the log's last 80 lines": (
            "seq 1 100; exit 1",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "".join(f"{each}\n" for each in range(21, 101)),
        ),
        "a message comes before the log": (
            f"printf said {MESSAGE}; echo logged; exit 1",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "said",
        ),
        "another path": (
            "printf here > ${REFLOAT_TERMINATION_LOG:-/refloat/said}",
            {"terminationMessagePath": "/refloat/said"},
            "here",
        ),
    },
)
async def test_the_termination_message(
    here: ProcessNode, script: str, more: dict[str, Any], want: str
) -> None:
    record = await here.run(sh("a", script, **more))
    assert record.message == want
    await here.runtime.close()
    await here.reopen()
    assert here.current("a").message == want


def _plant_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _plant_device(path: Path) -> None:
    if IS_ROOT:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    else:
        path.symlink_to("/dev/zero")


@cases("plant", {"a link": _plant_link, "a pipe": os.mkfifo, "a device": _plant_device})
async def test_a_message_that_is_no_file_is_not_read(
    tmp_path: Path, plant: Callable[[Path], object]
) -> None:
    """Where nothing can be mounted the file is in the container's hands."""
    async with node(tmp_path, user=None) as here:
        await here.start(sh("a", "sleep 1001"))
        path = here.runtime.folder("a").message("main", 0)
        path.unlink()
        plant(path)
        here.runtime.stop("a", "main", 0)
        assert (await here.ended("a")).message == ""
