# SPDX-License-Identifier: Apache-2.0
"""When a disk counts as nearly full, and what becomes of the reserve."""

from pathlib import Path

import pytest

from refloat.store import disk_space
from refloat.store.disk_space import MEBIBYTE, DiskSpace, SpaceSettings

SETTINGS = SpaceSettings(low_bytes=10 * MEBIBYTE, reserve_bytes=2 * MEBIBYTE)


class Disk:
    """A disk whose room a test chooses."""

    def __init__(self, folder: Path) -> None:
        self.free = 100 * MEBIBYTE
        self.looks = 0
        self.reserve = folder / "store.db.reserve"
        self.space = DiskSpace(folder / "store.db", SETTINGS, self._look)

    def _look(self, folder: Path) -> int:
        self.looks += 1
        if self.free < 0:
            raise OSError("gone")
        return self.free

    def shortage(self, mebibytes: float) -> str:
        self.free = int(mebibytes * MEBIBYTE)
        self.space.check()
        return self.space.shortage


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_with_room_there_is_a_reserve_and_no_shortage(disk: Disk) -> None:
    assert disk.shortage(100) == ""
    status = disk.reserve.stat()
    assert status.st_blocks * 512 >= SETTINGS.reserve_bytes
    assert status.st_mode & 0o777 == 0o600


def test_below_the_bound_there_is_a_shortage_that_names_no_path(disk: Disk, tmp_path: Path) -> None:
    assert disk.shortage(10) == ""
    shortage = disk.shortage(9.5)
    assert "9 MiB are free, fewer than 10 MiB" in shortage
    assert str(tmp_path) not in shortage


def test_a_shortage_ends_above_its_bound_so_that_it_does_not_alternate(disk: Disk) -> None:
    assert disk.shortage(9)
    assert disk.shortage(10)
    assert disk.shortage(11.9)
    assert disk.shortage(12) == ""
    assert disk.shortage(11.9) == ""


def test_a_full_disk_gets_the_reserve_once_and_takes_it_back_when_there_is_room(disk: Disk) -> None:
    disk.shortage(100)
    assert disk.space.give_up_reserve()
    assert disk.space.shortage
    assert not disk.reserve.exists()
    assert not disk.space.give_up_reserve(), "it is gone"
    assert disk.shortage(11)
    assert not disk.reserve.exists()
    assert disk.shortage(13) == ""
    assert disk.reserve.exists()


def test_a_disk_without_room_for_the_reserve_has_none(disk: Disk) -> None:
    assert disk.shortage(11) == ""
    assert not disk.reserve.exists()


def test_a_disk_that_cannot_be_asked_changes_nothing(disk: Disk) -> None:
    assert disk.shortage(9)
    assert disk.shortage(-1)
    assert disk.shortage(100) == ""
    assert disk.shortage(-1) == ""


def test_the_disk_is_looked_at_while_it_fills_and_not_for_each_write(disk: Disk) -> None:
    for _ in range(disk_space.CHECK_BYTES // 1024):
        disk.space.written(1024)
    assert disk.looks == 1
