# SPDX-License-Identifier: Apache-2.0
"""What somebody asked of Kubernetes, as the API server's audit log has it."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    resource: str
    verb: str
    refused: bool
    """By who it is or what it may do; what an object must not be is another matter."""


def asked(user: str) -> Iterator[Asked]:
    """All requests of a user about resources."""
    text = Path(os.environ["REFLOAT_TEST_AUDIT"]).read_text()
    for line in text.rpartition("\n")[0].splitlines():  # the last one may be half written
        event = json.loads(line)
        about = event.get("objectRef")
        if about is not None and event["user"]["username"] == user:
            parts = (about["resource"], about.get("subresource"))
            resource = "/".join(each for each in parts if each)
            yield Asked(resource, event["verb"], _is_refused(event))


def _is_refused(event: Object) -> bool:
    decision: str | None = event.get("annotations", {}).get("authorization.k8s.io/decision")
    code: int | None = event["responseStatus"].get("code")
    return decision == "forbid" or code == 401
