# SPDX-License-Identifier: Apache-2.0
"""The errors that stop a demo.

RefloatError
└── DemoFailed     the demo cannot go on; the text has the reason
    └── RequestRefused     the API server refused a request that must succeed
"""

from typing import Any

from refloat.base.errors import RefloatError


class DemoFailed(RefloatError):
    """The demo did not reach its end."""


class RequestRefused(DemoFailed):
    """A failure response, with its Status."""

    def __init__(self, method: str, path: str, status: dict[str, Any]) -> None:
        super().__init__(f"{method} {path}: {status.get('code')} {status.get('message')}")
        self.status = status
