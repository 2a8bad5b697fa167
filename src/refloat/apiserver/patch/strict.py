# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a patch itself, where fields are validated: some stand twice.

That the patched object has fields that its kind does not know is found when
that is read, and told after this.
"""

from collections.abc import Iterator
from typing import Any

from refloat.api import gojson, unmarshal

# The members of an operation of a JSON patch.
_OF_OPERATION = ("op", "path", "from", "value")


def repeated(patch: Any) -> list[str]:
    """Of a merge patch, parsed by `gojson`."""
    return _once(f'duplicate field "{path}"' for path in _repeated(patch, ""))


def operations(patch: Any) -> list[str]:
    """Of a JSON patch, parsed by `gojson` where a member may stand twice."""
    return _once(
        f"json patch {problem}"
        for index, operation in enumerate(patch or ())
        for problem in _operation(operation, f"[{index}]")
    )


def _once(problems: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(problems))[: unmarshal.MAX_PROBLEMS]


def _operation(operation: Any, place: str) -> Iterator[str]:
    seen = set()
    for name, item in gojson.members(operation) or ():
        if name not in _OF_OPERATION:
            yield f'unknown field "{place}.{name}"'
            continue
        if name in seen:
            yield f'duplicate field "{place}.{name}"'
        seen.add(name)
        for path in _repeated(item, f"{place}.{name}"):
            yield f'duplicate field "{path}"'


def _repeated(value: Any, place: str) -> Iterator[str]:
    members = gojson.members(value)
    if members is None:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _repeated(item, f"{place}[{index}]")
        return
    seen = set()
    for key, item in members:
        path = f"{place}.{key}" if place else key
        if key in seen:
            yield path
        seen.add(key)
        yield from _repeated(item, path)
