# SPDX-License-Identifier: Apache-2.0
"""Who is asking, and the call that they make.

What a user may do is not said here but in `roles` and `node_rights`.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from refloat.api import names

FieldValidation = Literal["Strict", "Warn", "Ignore"]

ADMINS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
NODES = "system:nodes"
READERS = "refloat:readers"

_NODE = "system:node:"
_SERVICE_ACCOUNT = "system:serviceaccount:"
_SERVICE_ACCOUNTS = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, as authentication found it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = Identity("system:anonymous", (UNAUTHENTICATED,))
ADMIN = Identity("kubernetes-admin", (ADMINS, AUTHENTICATED))
READ_ONLY = Identity("refloat:readonly", (READERS, AUTHENTICATED))


def node(name: str) -> Identity:
    """The agent of a node."""
    return Identity(_NODE + name, (NODES, AUTHENTICATED))


def node_name(user: Identity) -> str | None:
    """The node that a user is, None when it is none.

    Both the name and the group make a node, as in Kubernetes: who has only
    one of them has no rights from it.
    """
    if NODES in user.groups and user.name.startswith(_NODE):
        return user.name[len(_NODE) :]
    return None


def service_account(namespace: str, name: str) -> Identity:
    """A service account; Refloat's controllers run as such in `kube-system`."""
    groups = (_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)
    return Identity(f"{_SERVICE_ACCOUNT}{namespace}:{name}", groups)


def account_of(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user's name stands for."""
    namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not user.startswith(_SERVICE_ACCOUNT):
        return None
    if names.dns_label(namespace) or names.dns_subdomain(name):
        return None
    return namespace, name


def is_node(user: str) -> bool:
    """Does a user's name stand for a node?"""
    return user.startswith(_NODE)


# Of all warnings of an answer together, and of each when that is exceeded:
# Kubernetes' numbers, within what clients accept of headers.
WARNED_CHARACTERS = 4096
WARNING_CHARACTERS = 256


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Late:
    """An argument that the loop reads when its computation begins.

    An object that was read before the computation waits for its turn would be
    old by then, and its write would lose the race to each other writer.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def read(self) -> Any:
        return self.function(*self.args)


def arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a computation that begins now."""
    return tuple(each.read() if isinstance(each, Late) else each for each in args)


class Aside(Protocol):
    """Runs a computation on so many bytes; if they are many, where it does not hold the loop.

    An argument may be `Late`.
    """

    def __call__(
        self, _size: int, function: Callable[..., _T], /, *args: Any
    ) -> Coroutine[Any, Any, _T]: ...


async def directly(_size: int, function: Callable[..., _T], /, *args: Any) -> _T:
    """Here and now, for callers that are not hostile."""
    return function(*arguments(args))


Hold: TypeAlias = Callable[[int], Coroutine[Any, Any, Callable[[], None]]]
"""Waits until there is memory for so many bytes; what it returns gives that back."""


async def freely(_size: int) -> Callable[[], None]:
    """For callers that are not hostile."""
    return _nothing


def _nothing() -> None:
    """There is nothing to give back."""


@dataclass(slots=True)
class Call:
    """What goes along with a write besides the object."""

    user: Identity
    now: datetime
    dry_run: bool = False
    manager: str = ""
    force: bool = False  # for apply: take over what others own
    validation: FieldValidation = "Warn"
    warnings: list[str] = field(default_factory=list)
    aside: Aside = directly  # runs what may take long
    size: int = 0  # bytes of the body
    _warned: int = 0

    async def run(self, size: int, function: Callable[..., _T], *args: Any) -> _T:
        """Compute something from the body and something else of this size."""
        return await self.aside(max(size, self.size), function, *args)

    def warn(self, text: str) -> None:
        """Tell the client something, once, and nothing more once it is told enough."""
        if self._warned <= WARNED_CHARACTERS and text not in self.warnings:
            self._warned += min(len(text), WARNING_CHARACTERS)
            self.warnings.append(text)
