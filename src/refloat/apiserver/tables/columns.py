# SPDX-License-Identifier: Apache-2.0
"""The parts of the printers of all kinds: columns and cells.

Clients show the columns of priority 0, and in the wide format all.
The descriptions are Refloat's own; names, types, formats and priorities are
Kubernetes'.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from refloat.api import printing
from refloat.api.meta import Object

Column: TypeAlias = dict[str, Any]
Cells: TypeAlias = list[Any]


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of one kind, and its cells."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]
    # The conditions of a row; only those of finished pods have any.
    conditions: Callable[[Object], list[dict[str, str]] | None] | None = None


def column(
    name: str, description: str, *, type_: str = "string", format_: str = "", wide: bool = False
) -> Column:
    return {
        "name": name,
        "type": type_,
        "format": format_,
        "description": description,
        "priority": 1 if wide else 0,
    }


NAME = column("Name", "The object's name.", format_="name")
AGE = column("Age", "The time since the object was created.")


def name(obj: Object) -> str:
    """The object's name; a bookmark of a watch has none."""
    text: str = obj["metadata"].get("name", "")
    return text


def age(obj: Object, now: datetime) -> str:
    return printing.age(obj["metadata"].get("creationTimestamp"), now)
