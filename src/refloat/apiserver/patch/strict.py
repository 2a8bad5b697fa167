# SPDX-License-Identifier: Apache-2.0
"""Field validation of the patch itself: repeated fields.

The decoder reports unknown fields of the patched object, after these.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from refloat.api import gojson, unmarshal

# The members of an operation of a JSON patch.
_OF_OPERATION = ("op", "path", "from", "value")


def repeated(patch: Any) -> list[str]:
    """The repeated fields of a merge patch, parsed by `gojson`."""
    return _once(f'duplicate field "{path}"' for path in _repeated(patch, ""))


def operations(patch: Any) -> list[str]:
    """The unknown and repeated fields of a JSON patch, parsed by `gojson` if any repeats."""
    problems = []
    for index, operation in enumerate(patch or ()):
        names: set[str] = set()
        for name, value in gojson.members(operation) or ():
            path = f"[{index}].{name}"
            if name not in _OF_OPERATION:
                problems.append(f'json patch unknown field "{path}"')
                continue
            repeats = [path] if name in names else []
            names.add(name)
            repeats += _repeated(value, path)
            problems += [f'json patch duplicate field "{each}"' for each in repeats]
    return _once(problems)


def _once(problems: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(problems))[: unmarshal.MAX_PROBLEMS]


def _repeated(value: Any, place: str) -> Iterator[str]:
    members = gojson.members(value)
    if members is None:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _repeated(item, f"{place}[{index}]")
        return
    keys = set()
    for key, item in members:
        path = f"{place}.{key}" if place else key
        if key in keys:
            yield path
        keys.add(key)
        yield from _repeated(item, path)
