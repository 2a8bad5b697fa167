# SPDX-License-Identifier: Apache-2.0
"""Lists: which revision, which page, and what a token is worth."""

import base64
from typing import Any

import msgspec
import pytest

from refloat.apiserver import listing, options, selection
from tests import builders
from tests.apiserver_fixture import CONFIG_MAPS, ServerFixture, query
from tests.cases import cases
from tests.refusals import refusal

BAD_TOKEN = "invalid continue token: continue key is not valid: "


async def listed(world: ServerFixture, text: str = "", **more: str) -> listing.Listing:
    list_options = options.list_options(query(text, **more), watch=False)
    selected = selection.select(
        CONFIG_MAPS, "default", label_text=list_options.labels, field_text=list_options.fields
    )
    return await listing.plan(world.store, selected, list_options)


def names(page: listing.Listing) -> list[str]:
    return [entry.key.rpartition("/")[2] for entry in page.entries]


async def filled(world: ServerFixture, count: int = 6) -> list[int]:
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


async def test_list_without_a_limit_is_whole(world: ServerFixture) -> None:
    await filled(world)
    page = await listed(world)
    assert names(page) == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert page.metadata == {"resourceVersion": str(world.store.revision)}


async def test_pages_are_of_one_revision_while_others_write(world: ServerFixture) -> None:
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


async def test_pages_with_a_selector_are_of_one_revision_too(world: ServerFixture) -> None:
    await filled(world)
    first = await listed(world, "limit=1", labelSelector="even=true")
    await world.delete(CONFIG_MAPS, "c2")
    second = await listed(
        world, "limit=1", labelSelector="even=true", **{"continue": first.metadata["continue"]}
    )
    assert names(first) + names(second) == ["c0", "c2"]
    assert "remainingItemCount" not in first.metadata


async def test_full_page_goes_on_although_nothing_more_is_picked(world: ServerFixture) -> None:
    await filled(world)
    first = await listed(world, "limit=3", labelSelector="even=true")
    assert names(first) == ["c0", "c2", "c4"]
    last = await listed(
        world, "limit=3", labelSelector="even=true", **{"continue": first.metadata["continue"]}
    )
    assert names(last) == []
    assert "continue" not in last.metadata


async def test_full_page_ends_with_the_last_object(world: ServerFixture) -> None:
    await filled(world, 5)
    page = await listed(world, "limit=3", labelSelector="even=true")
    assert names(page) == ["c0", "c2", "c4"]
    assert "continue" not in page.metadata


async def test_sparse_selection_is_searched_for_piece_by_piece(
    world: ServerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SEARCHED", 2)
    await filled(world, 9)
    page = await listed(
        world, "limit=2", fieldSelector="metadata.name!=c0", labelSelector="even=true"
    )
    assert names(page) == ["c2", "c4"]
    assert "continue" in page.metadata


async def test_any_version_is_listed_whole_whatever_the_limit(world: ServerFixture) -> None:
    await filled(world)
    page = await listed(world, "limit=1&resourceVersion=0")
    assert len(page.entries) == 6
    assert "continue" not in page.metadata


async def test_single_object_does_not_go_on(world: ServerFixture) -> None:
    await filled(world)
    page = await listed(world, "limit=1", fieldSelector="metadata.name=c0")
    assert names(page) == ["c0"]
    assert "continue" not in page.metadata


# -- revisions --------------------------------------------------------------


@cases(
    "match limit want",
    {
        "at least this new": ("", "", 6),
        "not older": ("NotOlderThan", "", 6),
        "not older, in pages": ("NotOlderThan", "2", 6),
        "exactly": ("Exact", "", 3),
        "exactly, in pages": ("Exact", "2", 3),
        "pages are exact by default": ("", "2", 3),
    },
)
async def test_revision_is_matched(world: ServerFixture, match: str, limit: str, want: int) -> None:
    revisions = await filled(world)
    page = await listed(
        world, resourceVersion=str(revisions[2]), resourceVersionMatch=match, limit=limit
    )
    total = len(page.entries) + page.metadata.get("remainingItemCount", 0)
    assert total == want


@pytest.mark.parametrize("text", ["", "limit=1", "resourceVersionMatch=Exact"])
async def test_revision_to_come_is_too_large(world: ServerFixture, text: str) -> None:
    now = world.store.revision
    with refusal(504, f"Timeout: Too large resource version: 999999, current: {now}") as error:
        await listed(world, text, resourceVersion="999999")
    assert error.value.details == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


async def test_forgotten_revision_is_expired(world: ServerFixture) -> None:
    await filled(world)
    await world.store.compact(world.store.revision)
    with refusal(410, "The resourceVersion for the provided list is too old."):
        await listed(world, resourceVersion="1", resourceVersionMatch="Exact")


async def test_forgotten_token_brings_one_that_goes_on_inconsistently(world: ServerFixture) -> None:
    await filled(world)
    first = await listed(world, "limit=2")
    await world.create(builders.config_map("c1a"))
    await world.delete(CONFIG_MAPS, "c3")
    await world.store.compact(world.store.revision)
    with refusal(410, listing.LIST_TOO_OLD) as error:
        await listed(world, "limit=2", **{"continue": first.metadata["continue"]})
    assert error.value.reason == "Expired"
    rest = await listed(world, **{"continue": error.value.metadata["continue"]})
    assert names(rest) == ["c1a", "c2", "c4", "c5"]
    assert rest.metadata["resourceVersion"] == str(world.store.revision)


# -- tokens -----------------------------------------------------------------


@cases(
    "token why",
    {
        "no base64": ("*", "illegal base64 data at input byte 0"),
        "no base64 within": ("ab*d", "illegal base64 data at input byte 2"),
        "padding": ("ab==", "illegal base64 data at input byte 2"),
        "half a byte": ("a", "illegal base64 data at input byte 0"),
        "half a byte more": ("abcde", "illegal base64 data at input byte 4"),
        "no JSON": ("abc", "invalid character 'i' looking for beginning of value"),
        "another version": (
            armoured(v="v2", rv=5, start="x\0"),
            "server does not recognize this encoded version v2",
        ),
        "no revision": (
            armoured(v="meta.k8s.io/v1", rv=0, start="x\0"),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        "no start": (
            armoured(v="meta.k8s.io/v1", rv=5, start=""),
            "encoded start key empty (version meta.k8s.io/v1)",
        ),
        "a way out": (armoured(v="meta.k8s.io/v1", rv=5, start="../x"), "../x"),
    },
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
