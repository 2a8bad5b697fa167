# SPDX-License-Identifier: Apache-2.0
"""Acting as somebody else: `kubectl --as`.

Administrators may; nobody else has a rule that allows it. The headers decide
on the user before the question of rights is asked, so that it is asked of the
user that is impersonated.
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


def wished(headers: Headers) -> Identity | None:
    """The user that a request wants to be; raises 400 for half a wish."""
    asked = [name for name in headers if name[: len(_PREFIX)].lower() == _PREFIX]
    if not asked:
        return None
    groups = tuple(headers.getall(_GROUP, ()))
    extra = _extra(headers, asked)
    wish = Identity(headers.get(_USER, ""), groups, headers.get(_UID, ""), extra)
    if wish.name or wish == Identity(""):
        return wish if wish.name else None
    message = f"requested {_shown(wish)} without impersonating a user name"
    raise authorization.Refused(400, "BadRequest", message)


def become(
    user: Identity, wish: Identity, asked: Attributes, authorizer: authorization.Authorizer
) -> Identity:
    """The user that was wished for; raises 403 unless this user may act as that one."""
    if ADMINS not in user.groups:
        wanted = _wanted(wish, asked)
        raise authorization.denied(user, wanted, authorizer.decide(user, wanted).reason)
    return replace(wish, groups=_groups(wish))


def _wanted(wish: Identity, asked: Attributes) -> Attributes:
    """The right that is missing.

    A node or service account that is wished for by its name alone is a right
    on the request, as any other user is; with more, it is one on the user.
    """
    account = identity.account_of(wish.name)
    is_node = identity.is_node(wish.name)
    if (account is not None or is_node) and wish != Identity(wish.name):
        namespace, name = account or ("", wish.name)
        resource = "serviceaccounts" if account else "users"
        return Attributes("impersonate", resource=resource, namespace=namespace, name=name)
    named = "arbitrary-node" if is_node else "user-info"
    mode = "serviceaccount" if account else named
    return replace(asked, verb=f"impersonate-on:{mode}:{asked.verb}")


def _extra(headers: Headers, asked: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    names = sorted({name for name in asked if name.lower().startswith(_EXTRA)})
    found = {unquote(name[len(_EXTRA) :].lower()): tuple(headers.getall(name)) for name in names}
    return tuple(sorted(found.items()))


def _groups(wish: Identity) -> tuple[str, ...]:
    """The groups asked for, and those that come by themselves."""
    groups = wish.groups
    account = identity.account_of(wish.name)
    if account is not None and not groups:
        groups = identity.service_account(*account).groups[:-1]
    anonymous = wish.name == ANONYMOUS.name
    implied = identity.UNAUTHENTICATED if anonymous else identity.AUTHENTICATED
    if implied in groups or identity.UNAUTHENTICATED in groups:
        return groups
    return (*groups, implied)


def _shown(wish: Identity) -> str:
    """The wish as Go prints it."""
    extra = "map[string][]string(nil)"
    if wish.extra:
        pairs = (f"{fields.quote(name)}:{_strings(values)}" for name, values in wish.extra)
        extra = f"map[string][]string{{{', '.join(pairs)}}}"
    groups = _strings(wish.groups) if wish.groups else "[]string(nil)"
    uid = fields.quote(wish.uid)
    return f'&user.DefaultInfo{{Name:"", UID:{uid}, Groups:{groups}, Extra:{extra}}}'


def _strings(values: Iterable[str]) -> str:
    return f"[]string{{{', '.join(map(fields.quote, values))}}}"
