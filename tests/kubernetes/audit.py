# SPDX-License-Identifier: Apache-2.0
"""The requests of one user in the API server's audit log."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A request."""

    resource: str
    verb: str
    refused: bool
    """Refused for the user or the rights; refusals of invalid objects do not count."""


def asked(user: str) -> Iterator[AuditEntry]:
    """All requests of a user about resources."""
    text = Path(os.environ["REFLOAT_TEST_AUDIT"]).read_text()
    for line in text.rpartition("\n")[0].splitlines():  # the last one may be half written
        event = json.loads(line)
        about = event.get("objectRef")
        if about is not None and event["user"]["username"] == user:
            parts = (about["resource"], about.get("subresource"))
            resource = "/".join(each for each in parts if each)
            yield AuditEntry(resource, event["verb"], _is_refused(event))


def _is_refused(event: Object) -> bool:
    decision: str | None = event.get("annotations", {}).get("authorization.k8s.io/decision")
    code: int | None = event["responseStatus"].get("code")
    return decision == "forbid" or code == 401
