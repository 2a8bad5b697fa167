# SPDX-License-Identifier: Apache-2.0
"""What can stop a story.

RefloatError
└── StoryFailed     the story cannot go on; its text says at what
    └── Refused     the API said no where the story needed a yes
"""

from typing import Any

from refloat.base.errors import RefloatError


class StoryFailed(RefloatError):
    """The story did not come to its end."""


class Refused(StoryFailed):
    """An answer that is a failure, with its Status."""

    def __init__(self, method: str, path: str, status: dict[str, Any]) -> None:
        super().__init__(f"{method} {path}: {status.get('code')} {status.get('message')}")
        self.status = status
