# SPDX-License-Identifier: Apache-2.0
"""Who is asking, and the call that they make."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

FieldValidation = Literal["Strict", "Warn", "Ignore"]

ADMINS = "system:masters"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, as authentication found it."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = Identity("system:anonymous", ("system:unauthenticated",))


@dataclass(slots=True)
class Call:
    """What goes along with a write besides the object."""

    user: Identity
    now: datetime
    dry_run: bool = False
    manager: str = ""
    force: bool = False  # for apply: take over what others own
    validation: FieldValidation = "Warn"
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
