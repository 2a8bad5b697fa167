# SPDX-License-Identifier: Apache-2.0
"""Who is asking: bearer tokens, and nobody."""

import hashlib
from collections.abc import Mapping

from refloat.api import errors
from refloat.apiserver.identity import ANONYMOUS, AUTHENTICATED, Identity

_SCHEME = "bearer "


class Tokens:
    """The tokens that this server knows."""

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        self._identities = {
            hashlib.sha256(token.encode()).digest(): Identity(
                user.name, (*user.groups, AUTHENTICATED)
            )
            for token, user in identities.items()
        }

    def authenticate(self, authorization: str | None) -> Identity:
        """The user of an Authorization header; 401 for a token that is not known."""
        if not authorization:
            return ANONYMOUS
        if not authorization.lower().startswith(_SCHEME):
            raise errors.unauthorized()
        given = authorization[len(_SCHEME) :].strip().encode()
        # A look-up by hash tells nothing of a token of 256 random bits by its timing.
        found = self._identities.get(hashlib.sha256(given).digest())
        if found is None:
            raise errors.unauthorized()
        return found
