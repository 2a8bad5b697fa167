# SPDX-License-Identifier: Apache-2.0
"""Impersonation: `kubectl --as`.

Only administrators may impersonate other users. The server reads the headers
before authorization, and then authorizes the impersonated user.
"""

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import unquote

from multidict import CIMultiDict, CIMultiDictProxy

from refloat.api import fields
from refloat.apiserver import authorization, identity
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.identity import ADMINS, ANONYMOUS, Identity

_PREFIX = "impersonate-"
_USER = "Impersonate-User"
_GROUP = "Impersonate-Group"
_UID = "Impersonate-Uid"
_EXTRA = "impersonate-extra-"

Headers = CIMultiDict[str] | CIMultiDictProxy[str]


def requested(headers: Headers) -> Identity | None:
    """The user that a request impersonates; raises 400 for headers without a user name."""
    names = [name for name in headers if name[: len(_PREFIX)].lower() == _PREFIX]
    if not names:
        return None
    groups = tuple(headers.getall(_GROUP, ()))
    extra = {
        unquote(name[len(_EXTRA) :].lower()): tuple(headers.getall(name))
        for name in sorted(set(names))
        if name.lower().startswith(_EXTRA)
    }
    pairs = tuple(sorted(extra.items()))
    other = Identity(headers.get(_USER, ""), groups, headers.get(_UID, ""), pairs)
    if other.name or other == Identity(""):
        return other if other.name else None
    message = f"requested {_shown(other)} without impersonating a user name"
    raise authorization.AccessDenied(400, "BadRequest", message)


def impersonate(
    user: Identity, other: Identity, request: Attributes, authorizer: authorization.Authorizer
) -> Identity:
    """The other user, with its implied groups; raises 403 if this user may not impersonate."""
    account = identity.account_of(other.name)
    if ADMINS not in user.groups:
        is_node = identity.is_node(other.name)
        mode = "serviceaccount" if account else "arbitrary-node" if is_node else "user-info"
        missing = replace(request, verb=f"impersonate-on:{mode}:{request.verb}")
        # For a node or account with groups or extra fields, Kubernetes names another right.
        if (account is not None or is_node) and other != Identity(other.name):
            namespace, name = account or ("", other.name)
            resource = "serviceaccounts" if account else "users"
            missing = Attributes("impersonate", resource=resource, namespace=namespace, name=name)
        raise authorization.denied(user, missing, authorizer.decide(user, missing).reason)
    groups = other.groups
    if account is not None and not groups:
        groups = identity.service_account(*account).groups[:-1]
    anonymous = other.name == ANONYMOUS.name
    implied = identity.UNAUTHENTICATED if anonymous else identity.AUTHENTICATED
    if implied not in groups and identity.UNAUTHENTICATED not in groups:
        groups = (*groups, implied)
    return replace(other, groups=groups)


def _shown(other: Identity) -> str:
    """The user as Go prints it."""
    extra = "map[string][]string(nil)"
    if other.extra:
        pairs = (f"{fields.quote(name)}:{_strings(values)}" for name, values in other.extra)
        extra = f"map[string][]string{{{', '.join(pairs)}}}"
    groups = _strings(other.groups) if other.groups else "[]string(nil)"
    uid = fields.quote(other.uid)
    return f'&user.DefaultInfo{{Name:"", UID:{uid}, Groups:{groups}, Extra:{extra}}}'


def _strings(values: Iterable[str]) -> str:
    return f"[]string{{{', '.join(map(fields.quote, values))}}}"
