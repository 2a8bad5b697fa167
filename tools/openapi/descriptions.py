# SPDX-License-Identifier: Apache-2.0
"""The descriptions of kinds and fields, in Refloat's own words.

`descriptions.json` has them by the struct's name in `refloat.api.schema` and
then by the field's; the empty field is the struct itself. `kubectl explain`
shows them.
"""

from functools import cache
from pathlib import Path

import msgspec

from refloat.api.schema import Struct

_IN_EVERY_KIND = {
    "apiVersion": "The API group and version that this is written in.",
    "kind": "The kind of this.",
    "metadata": "Name, namespace, labels, and what else every object has.",
    "spec": "What is wanted.",
    "status": "What is the case. Written by the system, not by users.",
}

_IN_EVERY_LIST = {
    **_IN_EVERY_KIND,
    "items": "The objects.",
    "metadata": "The version of the list, and how to get the rest of it.",
}


@cache
def texts() -> dict[str, dict[str, str]]:
    """All texts, by struct and field; not to be changed."""
    text = Path(__file__).with_suffix(".json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def named(name: str) -> str:
    """The description of the type of this name; empty if there is none."""
    return texts().get(name, {}).get("", "")


def of(struct: Struct) -> str:
    """The description of a struct; empty if there is none."""
    if _is_list(struct):
        return f"A list of objects of kind {struct.kind.removesuffix('List')}."
    return named(struct.name)


def of_field(struct: Struct, field: str) -> str:
    """The description of a field; empty if there is none."""
    own = texts().get(struct.name, {}).get(field)
    if own is not None:
        return own
    if not struct.kind:
        return ""
    return (_IN_EVERY_LIST if _is_list(struct) else _IN_EVERY_KIND).get(field, "")


def _is_list(struct: Struct) -> bool:
    return struct.kind.endswith("List") and "items" in struct.fields
