# SPDX-License-Identifier: Apache-2.0
"""Fields that stand twice in a patch, or mean nothing there; Kubernetes' answers."""

import pytest

from refloat.api import gojson
from refloat.api.errors import StatusError
from refloat.apiserver import apply_verb, patch_verb
from refloat.apiserver.patch import strict
from refloat.apiserver.routes import Target
from tests import builders
from tests.apiserver_fixture import CONFIG_MAPS, ServerFixture
from tests.cases import cases
from tests.refusals import refusal

NAME = "c"


@cases(
    "patch want",
    {
        "once in each": ('{"a":1,"b":{"a":1}}', []),
        "thrice is told once": ('{"data":{"a":1,"a":2,"a":3}}', ["data.a"]),
        "a key of many signs": ('{"a":{"b/c.d":1,"b/c.d":2}}', ["a.b/c.d"]),
        "in the order in which they are met": (
            '{"s":{"c":[{"n":1,"n":2,"e":[{"v":1,"v":2}]}]},"s":{"a":1,"a":2}}',
            ["s.c[0].n", "s.c[0].e[0].v", "s", "s.a"],
        ),
        "no object": ("[1]", []),
    },
)
def test_repeated_fields_are_named_by_their_places(patch: str, want: list[str]) -> None:
    mistakes = strict.repeated(gojson.parse(patch.encode()))
    assert mistakes == [f'duplicate field "{path}"' for path in want]


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        ('[{"op":"add","path":"/a","value":1}]', []),
        ("null", []),
        ('[{"x":1},null,{"y":1}]', ['unknown field "[0].x"', 'unknown field "[2].y"']),
        ('[{"x":{"a":1,"a":2},"x":1}]', ['unknown field "[0].x"']),
        (
            '[{"op":"add","op":"add","value":{"a":[{"b":1,"b":2}]}}]',
            ['duplicate field "[0].op"', 'duplicate field "[0].value.a[0].b"'],
        ),
    ],
)
def test_members_of_operations_are_known_and_there_once(patch: str, want: list[str]) -> None:
    mistakes = strict.operations(gojson.parse(patch.encode()))
    assert mistakes == [f"json patch {each}" for each in want]


def test_no_more_than_a_hundred_are_told() -> None:
    patch = "{" + ",".join(f'"k{index % 150}":1' for index in range(300)) + "}"
    assert len(strict.repeated(gojson.parse(patch.encode()))) == 100


async def patched(
    world: ServerFixture, patch_format: patch_verb.Format, body: str, validation: str
) -> list[str]:
    """What is warned of."""
    call = world.call(validation=validation)
    await patch_verb.patch(
        world.registry, call, Target(CONFIG_MAPS, "default", NAME), patch_format, body.encode()
    )
    return list(call.warnings)


FORMATS: list[tuple[patch_verb.Format, str, str]] = [
    ("merge", '{"data":{"a":"1","a":"2"},"z":1}', ""),
    ("strategic", '{"data":{"a":"1","a":"2"},"z":1}', ""),
    ("json", '[{"op":"add","path":"/z","path":"/z","value":1}]', "json patch "),
]


@pytest.mark.parametrize(
    ("patch_format", "body", "prefix"), FORMATS, ids=["merge", "strat", "json"]
)
async def test_mistakes_of_a_patch_come_before_those_of_the_object(
    world: ServerFixture, patch_format: patch_verb.Format, body: str, prefix: str
) -> None:
    await world.create(builders.config_map(NAME))
    place = "[0].path" if prefix else "data.a"
    want = [f'{prefix}duplicate field "{place}"', 'unknown field "z"']
    assert await patched(world, patch_format, body, "Warn") == want
    assert await patched(world, patch_format, body, "Ignore") == []
    with pytest.raises(StatusError) as error:
        await patched(world, patch_format, body, "Strict")
    assert error.value.code == 422
    assert error.value.message.endswith(f'": strict decoding error: {", ".join(want)}')


@pytest.mark.parametrize("validation", ["Warn", "Strict"])
async def test_patch_that_cannot_be_applied_is_told_of_nothing_else(
    world: ServerFixture, validation: str
) -> None:
    await world.create(builders.config_map(NAME))
    call = world.call(validation=validation)
    with pytest.raises(StatusError) as error:
        await patch_verb.patch(
            world.registry,
            call,
            Target(CONFIG_MAPS, "default", NAME),
            "json",
            b'[{"op":"test","path":"/x","value":1,"y":2}]',
        )
    assert error.value.message == "the server rejected our request due to an error in our request"
    assert call.warnings == []


async def test_applied_key_that_stands_twice_is_warned_of(world: ServerFixture) -> None:
    call = world.call(manager="m")
    await apply_verb.patch(
        world.registry,
        call,
        Target(CONFIG_MAPS, "default", NAME),
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","a":"2"}}',
    )
    assert call.warnings == ['line 1: key "a" already set in map']


@pytest.mark.parametrize("validation", ["Warn", "Strict"])
async def test_what_cannot_be_applied_is_told_of_nothing_else(
    world: ServerFixture, validation: str
) -> None:
    call = world.call(manager="m", validation=validation)
    with refusal(400, "invalid object type: /v1, Kind=Job"):
        await apply_verb.patch(
            world.registry,
            call,
            Target(CONFIG_MAPS, "default", NAME),
            b'{"apiVersion":"v1","kind":"Pod","kind":"Job"}',
        )
    assert call.warnings == []
