# SPDX-License-Identifier: Apache-2.0
"""A server starts only in a directory where no other user can have put a file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from refloat.app import data_dir, private_files, tokens
from refloat.base.errors import UsageError

# A user that the tests do not run as: what is ours is then another user's.
STRANGER = os.geteuid() + 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    data_dir.prepare(folder)
    return folder


def test_a_new_directory_is_for_its_owner_only(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    data_dir.prepare(folder)


def test_one_that_others_may_only_read_is_accepted(folder: Path) -> None:
    folder.chmod(0o755)
    data_dir.prepare(folder)


def test_a_link_of_our_own_leads_to_the_directory(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    data_dir.prepare(tmp_path / "link")


def test_a_directory_of_another_user_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=f"--data-dir: {folder} belongs to user .* use another"):
        data_dir.prepare(folder, user=STRANGER)


def test_a_link_of_another_user_is_refused(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    if os.geteuid() == 0:  # whose links are trusted
        os.chown(link, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match="is a symbolic link of another user"):
        data_dir.prepare(link, user=os.geteuid() if os.geteuid() == 0 else STRANGER)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_one_that_others_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(UsageError, match=f"other users may put files into .*chmod 700 {folder}"):
        data_dir.prepare(folder)


def test_one_that_every_user_may_replace_is_refused(folder: Path) -> None:
    folder.parent.chmod(0o777)
    with pytest.raises(UsageError, match=f"every user may replace {folder}.*chmod o-w"):
        data_dir.prepare(folder)
    folder.parent.chmod(0o1777)  # as /tmp is
    data_dir.prepare(folder)


@pytest.mark.parametrize("name", ["pki", "nodes"])
def test_a_folder_in_it_that_others_may_write_to_is_refused(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name).chmod(0o777)
    with pytest.raises(UsageError, match=f"{name} .*chmod 700"):
        data_dir.prepare(folder)


def test_a_folder_in_it_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "pki").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="pki is a symbolic link"):
        data_dir.prepare(folder)


def be_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def be_linked_twice(path: Path) -> None:
    path.with_name("elsewhere").hardlink_to(path)


def be_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def be_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


PLANTED = [
    pytest.param(be_link, "symbolic link|not a regular file", id="a symbolic link"),
    pytest.param(be_linked_twice, "has 2 names", id="a hard link"),
    pytest.param(lambda path: path.chmod(0o660), "other users may .*chmod 600", id="the group's"),
    pytest.param(lambda path: path.chmod(0o606), "other users may .*chmod 600", id="everybody's"),
    pytest.param(be_folder, "is not a regular file", id="a folder"),
    pytest.param(be_pipe, "is not a regular file", id="a pipe"),
]


@pytest.mark.parametrize(("plant", "want"), PLANTED)
@pytest.mark.parametrize("name", ["admin.token", "readonly.token"])
def test_a_planted_token_is_refused(
    folder: Path, plant: Callable[[Path], None], want: str, name: str
) -> None:
    path = folder / name
    private_files.write(path, b"known-to-another")
    plant(path)
    with pytest.raises(UsageError, match=want) as error:
        tokens.accepted(folder)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(("plant", "want"), PLANTED)
@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db.newest"])
def test_a_planted_store_is_refused(
    folder: Path, plant: Callable[[Path], None], want: str, name: str
) -> None:
    path = folder / name
    private_files.write(path, b"anything")
    plant(path)
    with pytest.raises(UsageError, match=want):
        data_dir.prepare(folder)


def test_a_token_of_another_user_is_refused(folder: Path) -> None:
    path = folder / "admin.token"
    private_files.write(path, b"known-to-another")
    with pytest.raises(UsageError, match=f"{path} belongs to user .* use another data directory"):
        private_files.read(path, secret=True, user=STRANGER)


def test_a_secret_that_others_may_read_is_refused_and_no_other_file(folder: Path) -> None:
    path = folder / "admin.token"
    private_files.write(path, b"secret")
    path.chmod(0o644)
    assert private_files.read(path, secret=False) == b"secret"
    with pytest.raises(UsageError, match="other users may read or change"):
        private_files.read(path, secret=True)


def test_a_file_is_written_again_only_if_it_says_something_else(folder: Path) -> None:
    """A server on a full disk can then start again."""
    path = folder / "kubeconfig"
    private_files.write(path, b"one")
    before = path.stat().st_ino
    private_files.write(path, b"one")
    assert path.stat().st_ino == before
    private_files.write(path, b"two")
    assert path.read_bytes() == b"two"
    path.chmod(0o644)
    private_files.write(path, b"two")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in folder.iterdir()] == ["kubeconfig"]
