# SPDX-License-Identifier: Apache-2.0
"""Who is asking: bearer tokens, and nobody.

Tokens are looked up by their hash, so that no comparison tells anything of
them by its timing, and none lies in the server's memory longer than a request.
"""

import hashlib
from collections.abc import Callable, Mapping

from refloat.api import errors
from refloat.apiserver.identity import ANONYMOUS, AUTHENTICATED, Identity

_SCHEME = "bearer"

SPACED = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)
"""What a client is warned of when its token is passed over for this reason."""


class Tokens:
    """The tokens that this server knows.

    `more` is asked for a token that is not known, by its hash, because the
    token of a new node may have been made by another process while this
    server runs.
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
        """The user of an Authorization header; 401 for a token that is not known.

        A header of any other kind is no attempt to be somebody, as in
        Kubernetes.
        """
        if not authorization:
            return ANONYMOUS
        scheme, _, rest = authorization.strip().partition(" ")
        token = rest.partition(" ")[0]
        if scheme.lower() != _SCHEME or not token:
            return ANONYMOUS
        found = self._found(digest(token))
        if found is None:
            raise errors.unauthorized()
        return found

    def _found(self, hashed: bytes) -> Identity | None:
        found = self._identities.get(hashed)
        if found is None and self._more is not None:
            user = self._more(hashed)
            if user is not None:
                found = self._identities[hashed] = _authenticated(user)
        return found


def is_spaced(authorization: str | None) -> bool:
    """Is there a token, but after more than one space?"""
    scheme, _, rest = (authorization or "").strip().partition(" ")
    return scheme.lower() == _SCHEME and rest.startswith(" ") and bool(rest.strip())


def digest(token: str) -> bytes:
    """What a token is looked up by."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _authenticated(user: Identity) -> Identity:
    if AUTHENTICATED in user.groups:
        return user
    return Identity(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
