# SPDX-License-Identifier: Apache-2.0
"""The lines of a story, before anybody decides how they look."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["step", "note", "event", "answer", "refusal", "table", "board"]
"""A step's title; what the story says; what a watch saw; what the server
answered, well or not; a line of a table, to be kept as it is; the lines of a
picture of how things are, in the place of the last one, for who watches live."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something to show."""

    kind: Kind
    text: str
    seconds: float  # since the story began
