# SPDX-License-Identifier: Apache-2.0
"""The lines of a demo, without their layout."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["step", "note", "event", "answer", "refusal", "table", "board"]
"""The title of a step; an explanation; an event of a watch; a response of the server, a
refusal of the server; a line of a table, with its layout; a picture that replaces the
last picture on a live terminal."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line to show."""

    kind: Kind
    text: str
    seconds: float  # since the demo began
