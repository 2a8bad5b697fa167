# SPDX-License-Identifier: Apache-2.0
"""Users, and the context of their calls.

The rights of users are in `roles` and `node_rights`.
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
    """An authenticated user."""

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
    """The node's name if the user is a node.

    As in Kubernetes, a node needs both the name and the group.
    """
    if NODES in user.groups and user.name.startswith(_NODE):
        return user.name[len(_NODE) :]
    return None


def service_account(namespace: str, name: str) -> Identity:
    """A service account; Refloat's controllers run as such in `kube-system`."""
    groups = (_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)
    return Identity(f"{_SERVICE_ACCOUNT}{namespace}:{name}", groups)


def account_of(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account with this user name."""
    namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not user.startswith(_SERVICE_ACCOUNT):
        return None
    if names.dns_label(namespace) or names.dns_subdomain(name):
        return None
    return namespace, name


def is_node(user: str) -> bool:
    """Whether this user name is that of a node."""
    return user.startswith(_NODE)


# The bound for all warnings of an answer, and for each warning beyond it:
# Kubernetes' numbers, within what clients accept of headers.
WARNED_CHARACTERS = 4096
WARNING_CHARACTERS = 256


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LazyArgument:
    """An argument that the loop reads when the computation begins.

    A computation may wait for its turn. An object that was read before the wait would
    be old, and its write would lose every race.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def read(self) -> Any:
        return self.function(*self.args)


def arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a computation that begins now."""
    return tuple(each.read() if isinstance(each, LazyArgument) else each for each in args)


class Offload(Protocol):
    """Runs a computation on so many bytes; if they are many, in a thread.

    An argument may be `LazyArgument`.
    """

    def __call__(
        self, _size: int, function: Callable[..., _T], /, *args: Any
    ) -> Coroutine[Any, Any, _T]: ...


async def run_inline(_size: int, function: Callable[..., _T], /, *args: Any) -> _T:
    """Run the computation at once, for trusted callers."""
    return function(*arguments(args))


Hold: TypeAlias = Callable[[int], Coroutine[Any, Any, Callable[[], None]]]
"""Waits for the memory for so many bytes; the caller calls the result to give it back."""


async def hold_nothing(_size: int) -> Callable[[], None]:
    """Hold nothing, for trusted callers."""
    return _nothing


def _nothing() -> None:
    """Give nothing back."""


@dataclass(slots=True)
class Call:
    """The context of a write: user, time and options."""

    user: Identity
    now: datetime
    dry_run: bool = False
    manager: str = ""
    force: bool = False  # apply takes over fields of other managers
    validation: FieldValidation = "Warn"
    warnings: list[str] = field(default_factory=list)
    offload: Offload = run_inline  # runs long computations
    size: int = 0  # bytes of the body
    _warned: int = 0

    async def run(self, size: int, function: Callable[..., _T], *args: Any) -> _T:
        """Run a computation on the body and on other data of this size."""
        return await self.offload(max(size, self.size), function, *args)

    def warn(self, text: str) -> None:
        """Add a warning to the answer, once, and within the bound."""
        if self._warned <= WARNED_CHARACTERS and text not in self.warnings:
            self._warned += min(len(text), WARNING_CHARACTERS)
            self.warnings.append(text)
