# SPDX-License-Identifier: Apache-2.0
"""Lists: which revision, which page, and what a token is worth."""

import base64
from typing import Any

import msgspec
import pytest

from refloat.apiserver import listing, options, selection
from tests import builders
from tests.refusals import refusal
from tests.worlds import CONFIG_MAPS, World, query

BAD_TOKEN = "invalid continue token: continue key is not valid: "


async def listed(world: World, text: str = "", **more: str) -> listing.Listing:
    asked = options.list_options(query(text, **more), watch=False)
    wanted = selection.select(
        CONFIG_MAPS, "default", label_text=asked.labels, field_text=asked.fields
    )
    return await listing.plan(world.store, wanted, asked)


def names(found: listing.Listing) -> list[str]:
    return [entry.key.rpartition("/")[2] for entry in found.entries]


async def filled(world: World, count: int = 6) -> list[int]:
    """So many objects, every other one even; the revisions after each."""
    revisions = []
    for index in range(count):
        even = str(index % 2 == 0).lower()
        await world.create(builders.config_map(f"c{index}", labels={"even": even}))
        revisions.append(world.store.revision)
    return revisions


def armoured(**fields: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode().rstrip("=")


# -- pages ------------------------------------------------------------------


async def test_list_without_a_limit_is_whole(world: World) -> None:
    await filled(world)
    found = await listed(world)
    assert names(found) == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert found.metadata == {"resourceVersion": str(world.store.revision)}


async def test_pages_are_of_one_revision_while_others_write(world: World) -> None:
    await filled(world)
    revision = str(world.store.revision)
    first = await listed(world, "limit=2")
    assert names(first) == ["c0", "c1"]
    assert first.metadata["remainingItemCount"] == 4
    await world.delete(CONFIG_MAPS, "c3")
    await world.create(builders.config_map("c1a"))
    second = await listed(world, "limit=2", **{"continue": first.metadata["continue"]})
    third = await listed(world, "limit=2", **{"continue": second.metadata["continue"]})
    assert names(second) + names(third) == ["c2", "c3", "c4", "c5"]
    assert second.metadata["resourceVersion"] == third.metadata["resourceVersion"] == revision
    assert "continue" not in third.metadata


async def test_pages_with_a_selector_are_of_one_revision_too(world: World) -> None:
    await filled(world)
    first = await listed(world, "limit=1", labelSelector="even=true")
    await world.delete(CONFIG_MAPS, "c2")
    second = await listed(
        world, "limit=1", labelSelector="even=true", **{"continue": first.metadata["continue"]}
    )
    assert names(first) + names(second) == ["c0", "c2"]
    assert "remainingItemCount" not in first.metadata


async def test_full_page_goes_on_although_nothing_more_is_picked(world: World) -> None:
    await filled(world)
    first = await listed(world, "limit=3", labelSelector="even=true")
    assert names(first) == ["c0", "c2", "c4"]
    last = await listed(
        world, "limit=3", labelSelector="even=true", **{"continue": first.metadata["continue"]}
    )
    assert names(last) == []
    assert "continue" not in last.metadata


async def test_full_page_ends_with_the_last_object(world: World) -> None:
    await filled(world, 5)
    found = await listed(world, "limit=3", labelSelector="even=true")
    assert names(found) == ["c0", "c2", "c4"]
    assert "continue" not in found.metadata


async def test_sparse_selection_is_searched_for_piece_by_piece(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SEARCHED", 2)
    await filled(world, 9)
    found = await listed(
        world, "limit=2", fieldSelector="metadata.name!=c0", labelSelector="even=true"
    )
    assert names(found) == ["c2", "c4"]
    assert "continue" in found.metadata


async def test_any_version_is_listed_whole_whatever_the_limit(world: World) -> None:
    await filled(world)
    found = await listed(world, "limit=1&resourceVersion=0")
    assert len(found.entries) == 6
    assert "continue" not in found.metadata


async def test_single_object_does_not_go_on(world: World) -> None:
    await filled(world)
    found = await listed(world, "limit=1", fieldSelector="metadata.name=c0")
    assert names(found) == ["c0"]
    assert "continue" not in found.metadata


# -- revisions --------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "limit", "want"),
    [
        pytest.param("", "", 6, id="at least this new"),
        pytest.param("NotOlderThan", "", 6, id="not older"),
        pytest.param("NotOlderThan", "2", 6, id="not older, in pages"),
        pytest.param("Exact", "", 3, id="exactly"),
        pytest.param("Exact", "2", 3, id="exactly, in pages"),
        pytest.param("", "2", 3, id="pages are exact by default"),
    ],
)
async def test_revision_is_matched(world: World, match: str, limit: str, want: int) -> None:
    revisions = await filled(world)
    found = await listed(
        world, resourceVersion=str(revisions[2]), resourceVersionMatch=match, limit=limit
    )
    total = len(found.entries) + found.metadata.get("remainingItemCount", 0)
    assert total == want


@pytest.mark.parametrize("text", ["", "limit=1", "resourceVersionMatch=Exact"])
async def test_revision_to_come_is_too_large(world: World, text: str) -> None:
    now = world.store.revision
    with refusal(504, f"Timeout: Too large resource version: 999999, current: {now}") as refused:
        await listed(world, text, resourceVersion="999999")
    assert refused.value.details == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


async def test_forgotten_revision_is_expired(world: World) -> None:
    await filled(world)
    await world.store.compact(world.store.revision)
    with refusal(410, "The resourceVersion for the provided list is too old."):
        await listed(world, resourceVersion="1", resourceVersionMatch="Exact")


async def test_forgotten_token_brings_one_that_goes_on_inconsistently(world: World) -> None:
    await filled(world)
    first = await listed(world, "limit=2")
    await world.create(builders.config_map("c1a"))
    await world.delete(CONFIG_MAPS, "c3")
    await world.store.compact(world.store.revision)
    with refusal(410, listing.LIST_TOO_OLD) as refused:
        await listed(world, "limit=2", **{"continue": first.metadata["continue"]})
    assert refused.value.reason == "Expired"
    rest = await listed(world, **{"continue": refused.value.metadata["continue"]})
    assert names(rest) == ["c1a", "c2", "c4", "c5"]
    assert rest.metadata["resourceVersion"] == str(world.store.revision)


# -- tokens -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "why"),
    [
        pytest.param("*", "illegal base64 data at input byte 0", id="no base64"),
        pytest.param("ab*d", "illegal base64 data at input byte 2", id="no base64 within"),
        pytest.param("ab==", "illegal base64 data at input byte 2", id="padding"),
        pytest.param("a", "illegal base64 data at input byte 0", id="half a byte"),
        pytest.param("abcde", "illegal base64 data at input byte 4", id="half a byte more"),
        pytest.param("abc", "invalid character 'i' looking for beginning of value", id="no JSON"),
        pytest.param(
            armoured(v="v2", rv=5, start="x\0"),
            "server does not recognize this encoded version v2",
            id="another version",
        ),
        pytest.param(
            armoured(v="meta.k8s.io/v1", rv=0, start="x\0"),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            id="no revision",
        ),
        pytest.param(
            armoured(v="meta.k8s.io/v1", rv=5, start=""),
            "encoded start key empty (version meta.k8s.io/v1)",
            id="no start",
        ),
        pytest.param(armoured(v="meta.k8s.io/v1", rv=5, start="../x"), "../x", id="a way out"),
    ],
)
def test_token_is_refused_for(token: str, why: str) -> None:
    with refusal(400, BAD_TOKEN + why):
        listing.decode_token(token)


def test_token_comes_back_as_it_was() -> None:
    token = listing.Token(7, "default/c")
    assert listing.decode_token(token.encode()) == token


def test_token_of_any_negative_revision_is_for_the_newest() -> None:
    token = armoured(v="meta.k8s.io/v1", rv=-2, start="c\0")
    assert listing.decode_token(token) == listing.Token(-1, "c")
