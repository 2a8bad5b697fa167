# SPDX-License-Identifier: Apache-2.0
"""Values that programs stumble over, and objects with such values in them."""

import copy
import json
from random import Random
from typing import Any

TEXTS = (
    "",
    " ",
    "a",
    "-",
    ".",
    "..",
    "A_b",
    "a/b",
    "a/b/c",
    "%",
    "%2f",
    "\x00",
    "\x7f",
    "\u2028",
    "\ufeff",
    "ä",
    "\U0001f6a2",
    "e\u0301",
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    "9223372036854775808",
    "1.5",
    "0x10",
    "1Ki",
    "1E",
    "1e",
    "5m",
    "2026-01-02T03:04:05Z",
    "2026-13-45T99:99:99Z",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:59.999999999+23:59",
    "kubernetes.io/x",
    "example.com/" + "a" * 63,
    "a" * 63,
    "a" * 64,
    "a" * 253,
    "a" * 254,
    "x" * 5000,
    "{{.}}",
    "$(HOME)",
    "../../etc/passwd",
    "10.0.0.1",
    "::1",
    "300.1.1.1",
    "1-3,5,7-",
    "*",
    "metadata.name",
    "Exists",
    "In",
)

NUMBERS: tuple[Any, ...] = (
    0,
    -0.0,
    1,
    -1,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    1e308,
    5e-324,
)

# As they stand in a body: some are no JSON, which is the point.
LITERALS = (
    b"null",
    b"true",
    b"1e400",
    b"-1e400",
    b"1E+2",
    b"NaN",
    b"Infinity",
    b"01",
    b"+1",
    b"-",
    b".5",
    b"1.",
    b"9" * 400,
    b"0." + b"9" * 400,
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff\xfe"',
    b'"\xc0\x80"',
    b'"\xed\xa0\x80"',
    b'"\t"',
    b"'x'",
    b"{}",
    b"[]",
    b'{"a":1,"a":2}',
    b'{"":{}}',
    b"/**/1",
    b"tru",
    b'"',
    b"[1,]",
    b'{"a":}',
)


def value(random: Random) -> Any:
    """Any value."""
    kind = random.randrange(8)
    if kind < 3:
        return random.choice(TEXTS)
    if kind < 5:
        return random.choice(NUMBERS)
    if kind == 5:
        return random.choice((None, True, False))
    if kind == 6:
        return [value(random) for _ in range(random.randrange(4))]
    return {random.choice(TEXTS): value(random) for _ in range(random.randrange(4))}


def spoiled(random: Random, obj: Any) -> Any:
    """A copy with some values exchanged, removed, added or repeated."""
    spoilt = copy.deepcopy(obj)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3, 6))):
        _spoil(random, _part(random, spoilt))
    return spoilt


def _part(random: Random, obj: Any) -> Any:
    """Some mapping or list within."""
    while True:
        inner = obj.values() if isinstance(obj, dict) else obj
        deeper = [each for each in inner if isinstance(each, dict | list)]
        if not deeper or random.random() < 0.25:
            return obj
        obj = random.choice(deeper)


def _spoil(random: Random, part: Any) -> None:
    if isinstance(part, list):
        if part and random.random() < 0.5:
            part[random.randrange(len(part))] = value(random)
        else:
            part.append(copy.deepcopy(random.choice(part)) if part else value(random))
        return
    names = list(part)
    act = random.randrange(4)
    if act == 0 and names:
        del part[random.choice(names)]
    elif act == 1:
        part[random.choice(TEXTS)] = value(random)
    elif names:
        part[random.choice(names)] = value(random)


def body(random: Random, obj: Any) -> bytes:
    """An object as bytes, which may no longer be what they were."""
    raw = json.dumps(obj, ensure_ascii=random.random() < 0.5, allow_nan=True).encode()
    act = random.randrange(24)
    if act == 0:
        return _flipped(random, raw)
    if act == 1:
        return raw[: random.randrange(len(raw) + 1)]
    if act == 2:
        return _with_literal(random, raw)
    if act == 3:
        return _repeated_key(random, raw)
    if act == 4:
        return nested(random)
    if act == 5:
        return random.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\n\n ", b"k8s\x00")) + raw
    return raw


def _flipped(random: Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(random.randrange(1, 4)):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _with_literal(random: Random, raw: bytes) -> bytes:
    """The value behind some colon exchanged for a literal."""
    places = [place for place, char in enumerate(raw) if char == ord(":")]
    if not places:
        return random.choice(LITERALS)
    place = random.choice(places)
    end = min((raw.find(mark, place) for mark in (b",", b"}") if mark in raw[place:]), default=-1)
    return raw[: place + 1] + random.choice(LITERALS) + (raw[end:] if end > 0 else b"")


def _repeated_key(random: Random, raw: bytes) -> bytes:
    name = random.choice((b'"metadata"', b'"kind"', b'"spec"', b'"name"'))
    return raw.replace(b"{", b"{" + name + b":" + random.choice(LITERALS) + b",", 1)


def nested(random: Random) -> bytes:
    """Deeper than anything sensible."""
    depth = random.choice((10, 100, 1000, 9999, 10001, 100_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"metadata":', b"}")))
    inner = random.choice((b"1", b"", b"null"))
    return opening * depth + inner + closing * random.choice((depth, depth - 1, 0))
