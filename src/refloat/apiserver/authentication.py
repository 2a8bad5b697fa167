# SPDX-License-Identifier: Apache-2.0
"""Authentication: bearer tokens, and the anonymous user.

The server looks tokens up by their hash. So the timing of a comparison reveals
nothing, and no token stays in memory longer than its request.
"""

import hashlib
from collections.abc import Callable, Mapping

from refloat.api import errors
from refloat.apiserver.identity import ANONYMOUS, AUTHENTICATED, Identity

_SCHEME = "bearer"

SPACED = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)
"""The warning for a client whose token the server ignores for this reason."""


class Tokens:
    """The tokens that this server accepts.

    `more` looks up the hash of an unknown token: another process may create the
    token of a new node while this server runs.
    """

    def __init__(
        self,
        identities: Mapping[str, Identity] | None = None,
        *,
        more: Callable[[bytes], Identity | None] | None = None,
    ) -> None:
        self._identities: dict[bytes, Identity] = {}
        self._more = more
        for token, user in (identities or {}).items():
            self.add(token, user)

    def add(self, token: str, user: Identity) -> None:
        """Accept a token from now on."""
        self._identities[digest(token)] = _authenticated(user)

    def authenticate(self, authorization: str | None) -> Identity:
        """The user of an Authorization header; raises 401 for an unknown token.

        As in Kubernetes, a header with another scheme leaves the user anonymous.
        """
        if not authorization:
            return ANONYMOUS
        scheme, _, rest = authorization.strip().partition(" ")
        token = rest.partition(" ")[0]
        if scheme.lower() != _SCHEME or not token:
            return ANONYMOUS
        hashed = digest(token)
        user = self._identities.get(hashed)
        if user is None and self._more is not None and (new := self._more(hashed)) is not None:
            user = self._identities[hashed] = _authenticated(new)
        if user is None:
            raise errors.unauthorized()
        return user


def is_spaced(authorization: str | None) -> bool:
    """Is there a token, but after more than one space?"""
    scheme, _, rest = (authorization or "").strip().partition(" ")
    return scheme.lower() == _SCHEME and rest.startswith(" ") and bool(rest.strip())


def digest(token: str) -> bytes:
    """The hash of a token, as `Tokens` keeps it."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _authenticated(user: Identity) -> Identity:
    if AUTHENTICATED in user.groups:
        return user
    return Identity(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
