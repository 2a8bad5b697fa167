# SPDX-License-Identifier: Apache-2.0
"""A call on its way from a verb to whatever carries it."""

from dataclasses import dataclass

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One call, before anything is known of connections and credentials."""

    method: str
    path: str  # with its query
    body: bytes | None = None
    content_type: str = JSON
    is_repeatable: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"
