# SPDX-License-Identifier: Apache-2.0
"""The token files of a data directory."""

import os
import stat
from pathlib import Path

import pytest

from refloat.api import errors
from refloat.apiserver import identity
from refloat.app import private_files, tokens
from refloat.base import rand
from refloat.base.errors import UsageError
from tests.cases import cases


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_token_files_are_for_their_owner_only(tmp_path: Path) -> None:
    tokens.accepted(tmp_path)
    tokens.node_token(tmp_path, "n1")
    assert _mode(tmp_path / "admin.token") == 0o600
    assert _mode(tmp_path / "readonly.token") == 0o600
    assert _mode(tmp_path / "nodes" / "n1.token") == 0o600
    assert _mode(tmp_path / "nodes") == 0o700


def test_a_token_stays_the_same(tmp_path: Path) -> None:
    first = tokens.admin_token(tmp_path), tokens.node_token(tmp_path, "n1")
    assert (tokens.admin_token(tmp_path), tokens.node_token(tmp_path, "n1")) == first


def test_no_two_tokens_are_equal(tmp_path: Path) -> None:
    texts = [tokens.admin_token(tmp_path), tokens.readonly_token(tmp_path)]
    texts += [tokens.node_token(tmp_path, f"n{number}") for number in range(3)]
    assert len(set(texts)) == len(texts)
    assert all(len(token) >= 43 for token in texts)  # 256 bits


def test_an_empty_file_is_no_token(tmp_path: Path) -> None:
    private_files.write(tmp_path / "admin.token", b"\n")
    assert tokens.admin_token(tmp_path)
    assert (tmp_path / "admin.token").read_text() == tokens.admin_token(tmp_path)


def test_the_first_of_two_that_make_a_token_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A finds no file. 2. B finds none, and makes one. 3. A comes to make its own."""
    path, first = tmp_path / "admin.token", "made-by-the-other"

    def meanwhile() -> str:
        private_files.write(path, first.encode())
        return "made too late"

    monkeypatch.setattr(rand, "token", meanwhile)
    assert tokens.admin_token(tmp_path) == first
    assert [each.name for each in tmp_path.iterdir()] == ["admin.token"]


def test_a_maker_that_was_killed_before_its_last_step_does_no_harm(tmp_path: Path) -> None:
    """It left the token with two names, as a planted file may have."""
    token = tokens.node_token(tmp_path, "n1")
    path = tmp_path / "nodes" / "n1.token"
    path.with_name(".n1.token.123").hardlink_to(path)
    accepted = tokens.accepted(tmp_path)
    assert accepted.authenticate(f"Bearer {token}") == identity.node("n1")
    assert [each.name for each in path.parent.iterdir()] == ["n1.token"]


BAD = {
    "binary": (b"\xff\xfe\x00", "is not a token"),
    "beyond ASCII": ("tökén".encode(), "is not a token"),
    "a space in it": (b"two words", "is not a token"),
    "two lines": (b"two\nlines", "is not a token"),
    "too long": (b"x" * 100_000, "has more than 65536 bytes"),
}


@cases("content want", BAD)
def test_a_file_that_is_no_token_is_refused_with_what_to_do(
    tmp_path: Path, content: bytes, want: str
) -> None:
    private_files.write(tmp_path / "admin.token", content)
    with pytest.raises(UsageError, match=f"admin.token {want}.*remove it") as error:
        tokens.admin_token(tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_a_node_token_that_another_user_may_have_put_there_admits_nobody(tmp_path: Path) -> None:
    accepted = tokens.accepted(tmp_path)
    folder = tmp_path / "nodes"
    folder.mkdir(mode=0o700)
    (tmp_path / "planted").write_text("planted")
    (folder / "n1.token").symlink_to(tmp_path / "planted")
    (folder / "n2.token").hardlink_to(tmp_path / "planted")
    (folder / "n3.token").write_text("planted")
    (folder / "n3.token").chmod(0o666)
    with pytest.raises(errors.StatusError):
        accepted.authenticate("Bearer planted")


def test_each_token_is_its_identity(tmp_path: Path) -> None:
    accepted = tokens.accepted(tmp_path)
    admin, reader = tokens.admin_token(tmp_path), tokens.readonly_token(tmp_path)
    assert accepted.authenticate(f"Bearer {admin}") == identity.ADMIN
    assert accepted.authenticate(f"Bearer {reader}") == identity.READ_ONLY


def test_the_token_of_a_node_is_accepted_at_once(tmp_path: Path) -> None:
    accepted = tokens.accepted(tmp_path)
    for name in ("n1", "n2", "a.b"):
        token = tokens.node_token(tmp_path, name)
        assert accepted.authenticate(f"Bearer {token}") == identity.node(name)


def test_the_token_of_a_node_is_accepted_after_a_restart(tmp_path: Path) -> None:
    token = tokens.node_token(tmp_path, "n1")
    assert tokens.accepted(tmp_path).authenticate(f"Bearer {token}") == identity.node("n1")


def test_a_wrong_token_stays_wrong(tmp_path: Path) -> None:
    accepted = tokens.accepted(tmp_path)
    tokens.node_token(tmp_path, "n1")
    for _ in range(2):
        with pytest.raises(errors.StatusError):
            accepted.authenticate("Bearer wrong")


def test_an_empty_node_token_admits_nobody(tmp_path: Path) -> None:
    accepted = tokens.accepted(tmp_path)
    folder = tmp_path / "nodes"
    folder.mkdir()
    (folder / "n1.token").write_text("")
    with pytest.raises(errors.StatusError):
        accepted.authenticate("Bearer x")


def test_two_tokens_within_one_tick_of_the_clock_are_both_accepted(tmp_path: Path) -> None:
    accepted = tokens.accepted(tmp_path)
    first = tokens.node_token(tmp_path, "n1")
    assert accepted.authenticate(f"Bearer {first}") == identity.node("n1")
    folder = tmp_path / "nodes"
    before = folder.stat()
    second = tokens.node_token(tmp_path, "n2")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert accepted.authenticate(f"Bearer {second}") == identity.node("n2")


@pytest.mark.parametrize("name", ["", "../admin", "a/b", "A", ".", "a\nb", "x" * 254])
def test_a_name_that_no_node_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="node name"):
        tokens.node_token(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
