# SPDX-License-Identifier: Apache-2.0
"""Which credentials the next request carries."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from refloat.client import cluster_access, errors
from refloat.client.credentials import Credentials
from tests.clocks import ManualClock
from tests.unit.client.conftest import SETTINGS, script

V1 = "client.authentication.k8s.io/v1"

Make = Callable[..., Credentials]


@pytest.fixture
async def make(clock: ManualClock) -> AsyncIterator[Make]:
    opened: list[Credentials] = []

    def credentials(**user: object) -> Credentials:
        where = cluster_access.Access(
            cluster_access.ClusterEndpoint("https://h"),
            cluster_access.User(**user),  # type: ignore[arg-type]
        )
        opened.append(Credentials(where, clock, SETTINGS))
        return opened[-1]

    yield credentials
    for each in opened:
        await each.close()


def plugin(folder: Path, expires: str = "", before: str = "") -> cluster_access.Plugin:
    """A plugin whose token counts its runs."""
    status = {"token": "run-'$n'"} | ({"expirationTimestamp": expires} if expires else {})
    text = json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status})
    count = folder / "count"
    count.write_text("")
    lines = [f"echo >> {count}", f"n=$(wc -l < {count})", before, f"echo '{text}'"]
    return cluster_access.Plugin(script(folder, "\n".join(lines)), V1, interactive="Never")


async def authorization(credentials: Credentials) -> str:
    return dict((await credentials.current()).headers).get("Authorization", "")


class TestGiven:
    async def test_a_token(self, make: Make) -> None:
        assert await authorization(make(token="t")) == "Bearer t"

    async def test_a_user_and_a_password(self, make: Make) -> None:
        assert await authorization(make(username="u", password="p")) == "Basic dTpw"

    async def test_nothing(self, make: Make) -> None:
        assert (await make().current()).headers == ()

    async def test_a_token_file_wins_over_a_token(self, make: Make, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("of-the-file\n")
        assert await authorization(make(token="t", token_file=file)) == "Bearer of-the-file"

    async def test_whom_to_act_as(self, make: Make) -> None:
        target = cluster_access.Impersonation("you", "u", ("g", "h"), (("acme.com/a b", "v"),))
        assert (await make(impersonate=target).current()).headers == (
            ("Impersonate-User", "you"),
            ("Impersonate-Uid", "u"),
            ("Impersonate-Group", "g"),
            ("Impersonate-Group", "h"),
            ("Impersonate-Extra-acme.com%2Fa%20b", "v"),
        )

    async def test_an_unchanged_identity_is_the_same_object(
        self, make: Make, tmp_path: Path, clock: ManualClock
    ) -> None:
        file = tmp_path / "token"
        file.write_text("t")
        credentials = make(token_file=file)
        first = await credentials.current()
        await clock.advance(60)
        assert await credentials.current() is first

    async def test_a_changed_file_is_seen_after_a_second(
        self, make: Make, tmp_path: Path, clock: ManualClock
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        credentials = make(token_file=file)
        assert await authorization(credentials) == "Bearer old"
        file.write_text("newer")
        await clock.advance(1)
        assert await authorization(credentials) == "Bearer newer"

    async def test_a_file_that_was_lost_still_counts(
        self, make: Make, tmp_path: Path, clock: ManualClock
    ) -> None:
        file = tmp_path / "token"
        file.write_text("t")
        credentials = make(token_file=file)
        await credentials.current()
        file.unlink()
        await clock.advance(60)
        assert await authorization(credentials) == "Bearer t"

    async def test_a_link_that_points_elsewhere_is_a_change(
        self, make: Make, tmp_path: Path, clock: ManualClock
    ) -> None:
        """Kubernetes renews a mounted volume by swapping a link to its folder."""
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "token").write_text(name)
        link = tmp_path / "data"
        link.symlink_to("one")
        credentials = make(token_file=link / "token")
        assert await authorization(credentials) == "Bearer one"
        link.unlink()
        link.symlink_to("two")
        await clock.advance(1)
        assert await authorization(credentials) == "Bearer two"


class TestRefused:
    async def test_a_token_that_cannot_change_is_not_renewed(self, make: Make) -> None:
        credentials = make(token="t")
        assert await credentials.renewed(await credentials.current()) is None

    async def test_a_file_is_looked_at_at_once(self, make: Make, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        credentials = make(token_file=file)
        identity = await credentials.current()
        assert await credentials.renewed(identity) is None
        file.write_text("newer")
        renewed = await credentials.renewed(identity)
        assert renewed is not None
        assert renewed.headers == (("Authorization", "Bearer newer"),)

    async def test_a_plugin_is_run_again(self, make: Make, tmp_path: Path) -> None:
        credentials = make(plugin=plugin(tmp_path))
        renewed = await credentials.renewed(await credentials.current())
        assert renewed is not None
        assert renewed.headers == (("Authorization", "Bearer run-2"),)

    async def test_a_plugin_is_run_once_for_all_who_were_refused(
        self, make: Make, tmp_path: Path
    ) -> None:
        credentials = make(plugin=plugin(tmp_path))
        identity = await credentials.current()
        together = await asyncio.gather(*[credentials.renewed(identity) for _ in range(5)])
        later = await credentials.renewed(identity)
        assert {each.headers for each in (*together, later) if each} == {
            (("Authorization", "Bearer run-2"),)
        }


class TestPlugins:
    async def test_it_is_run_once_for_all_who_wait(self, make: Make, tmp_path: Path) -> None:
        credentials = make(plugin=plugin(tmp_path))
        headers = await asyncio.gather(*[authorization(credentials) for _ in range(5)])
        assert headers == ["Bearer run-1"] * 5
        assert await authorization(credentials) == "Bearer run-1"

    async def test_it_is_run_again_when_its_token_has_expired(
        self, make: Make, tmp_path: Path, clock: ManualClock
    ) -> None:
        credentials = make(plugin=plugin(tmp_path, expires="2026-01-02T03:05:05Z"))
        await credentials.current()
        await clock.advance(60)
        assert await authorization(credentials) == "Bearer run-1"
        await clock.advance(1)
        assert await authorization(credentials) == "Bearer run-2"

    async def test_without_an_end_it_is_not_run_again(
        self, make: Make, tmp_path: Path, clock: ManualClock
    ) -> None:
        credentials = make(plugin=plugin(tmp_path))
        await credentials.current()
        await clock.advance(1e6)
        assert await authorization(credentials) == "Bearer run-1"

    async def test_who_stops_waiting_does_not_stop_it_for_others(
        self, make: Make, tmp_path: Path
    ) -> None:
        credentials = make(plugin=plugin(tmp_path))
        one = asyncio.ensure_future(authorization(credentials))
        other = asyncio.ensure_future(authorization(credentials))
        await asyncio.sleep(0)
        one.cancel()
        assert await other == "Bearer run-1"

    async def test_all_who_wait_hear_of_a_failure_and_the_next_tries_again(
        self, make: Make, tmp_path: Path
    ) -> None:
        credentials = make(plugin=plugin(tmp_path, before='[ "$n" -gt 1 ] || exit 1'))
        headers = await asyncio.gather(
            credentials.current(), credentials.current(), return_exceptions=True
        )
        assert [type(each) for each in headers] == [errors.Unauthorized] * 2
        assert await authorization(credentials) == "Bearer run-2"

    async def test_closing_ends_a_plugin_and_tells_who_waits(
        self, make: Make, tmp_path: Path
    ) -> None:
        credentials = make(plugin=plugin(tmp_path, before="sleep 1000"))
        waiting = asyncio.ensure_future(credentials.current())
        await asyncio.sleep(0)
        await credentials.close()
        with pytest.raises(errors.Unauthorized, match="closed"):
            await waiting
