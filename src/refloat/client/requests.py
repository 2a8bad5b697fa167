# SPDX-License-Identifier: Apache-2.0
"""A call on its way from a verb to a `RequestSender` or a local server."""

from dataclasses import dataclass

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One call, without connection and credentials."""

    method: str
    path: str  # with its query
    body: bytes | None = None
    content_type: str = JSON
    is_repeatable: bool = False
    accept: str = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"
