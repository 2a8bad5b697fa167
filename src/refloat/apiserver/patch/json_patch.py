# SPDX-License-Identifier: Apache-2.0
"""JSON patches (RFC 6902), with the liberties that Kubernetes takes.

These are: `replace` adds a missing member, `copy` of a missing member gives null,
`test` takes a missing member as null, indices may be negative (-1 is the last), and
the text before a path's first slash does not count. The client does not learn why an
operation fails.
"""

from typing import Any, TypeAlias

import msgspec

from refloat.api import errors, integers
from refloat.api.meta import Object
from refloat.apiserver.patch import go_values, rejections

MAX_OPERATIONS = 10_000  # Kubernetes' bound, so that one request cannot occupy the server

# The JSON of all copies of a patch together, also Kubernetes' bound. Thirty copies
# of a document into itself would otherwise make a billion documents.
MAX_COPIED_BYTES = 3 * 1024 * 1024

Operation: TypeAlias = dict[str, Any]

_TEXT_FIELDS = ("op", "path", "from")
_ENCODER = msgspec.json.Encoder()
# The Go types of a patch and an operation, and the prefix of the message.
_FIRST = ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp", "error decoding patch: ")
_SECOND = ("jsonpatch.Patch", "jsonpatch.Operation", "")


class _Mismatch(Exception):
    """An operation does not fit the document."""


def apply(doc: Object, operations: Any) -> Any:
    """The document after all operations, or a StatusError and no change."""
    check_shape(operations)
    if not operations:
        return doc
    if len(operations) > MAX_OPERATIONS:
        raise errors.StatusError(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(operations)}",
        )
    work = _PatchedDocument(doc)
    try:
        for operation in operations:
            work.perform(operation or {})
    except (_Mismatch, KeyError) as error:
        raise rejections.unprocessable() from error
    return work.doc


def check_shape(operations: Any, *, decodes_twice: bool = True) -> None:
    """Refuse a patch that is no list of operations.

    With field validation, Kubernetes decodes a patch twice. The first time the Go type
    is another one, and so is the message.
    """
    whole, one, prefix = _FIRST if decodes_twice else _SECOND
    if operations is not None and not isinstance(operations, list):
        raise _undecodable(operations, prefix, f"Go value of type {whole}")
    for operation in operations or ():
        if not isinstance(operation, dict):
            if operation is not None:
                raise _undecodable(operation, prefix, f"Go value of type {one}")
            continue
        for name in (name for name in operation if name in _TEXT_FIELDS):
            if not isinstance(operation[name], str | None):
                if not decodes_twice:
                    raise rejections.unprocessable()
                target = f"Go struct field jsonPatchOp.{name} of type string"
                raise _undecodable(operation[name], prefix, target)


def _undecodable(value: Any, prefix: str, target: str) -> errors.StatusError:
    kind = go_values.json_type(value)
    return errors.bad_request(f"{prefix}json: cannot unmarshal {kind} into {target}")


class _PatchedDocument:
    """The document during the patch; the first change of a container copies it."""

    def __init__(self, doc: Any) -> None:
        self.doc = doc
        self._copied = 0
        # By id, with the container itself, so that Python does not use an id twice.
        self._owned: dict[int, Any] = {}

    def perform(self, operation: Operation) -> None:
        """Change the document; raises `_Mismatch` or KeyError if the operation does not fit."""
        match operation.get("op"):
            case "add":
                self._insert(_text(operation, "path"), operation.get("value"))
            case "remove":
                self._take(_text(operation, "path"))
            case "replace":
                pointer, value = _text(operation, "path"), operation.get("value")
                if pointer:
                    container, part = self.writable(pointer)
                    container[_key(container, part)] = value
                else:
                    self.doc = _container(value)
            case "move":
                value = self._take(_text(operation, "from"))
                self._insert(_text(operation, "path"), value)
            case "copy":
                value = self.read(_text(operation, "from"))
                self.share(value)
                self._insert(_text(operation, "path"), value)
            case "test":
                pointer = _text(operation, "path")
                value = self.read(pointer) if pointer else self.doc
                if not _equal(value, operation.get("value")):
                    raise _Mismatch(pointer)
            case unknown:
                raise _Mismatch(unknown)

    def _insert(self, pointer: str, value: Any) -> None:
        container, part = self.writable(pointer)
        if isinstance(container, dict):
            container[part] = value
        elif part == "-":
            container.append(value)
        else:
            container.insert(_index(part, len(container) + 1), value)

    def _take(self, pointer: str) -> Any:
        container, part = self.writable(pointer)
        return container.pop(_key(container, part))

    def read(self, pointer: str) -> Any:
        """The value at a pointer; None for a missing member."""
        parts = _parts(pointer)
        container = self.doc
        for part in parts[:-1]:
            container = _container(_get(container, part))
        return _get(container, parts[-1])

    def writable(self, pointer: str) -> tuple[Any, str]:
        """A copy of the value's container that may change, and the value's key."""
        parts = _parts(pointer)
        self.doc = container = self._own(self.doc)
        for part in parts[:-1]:
            child = self._own(_container(_get(container, part)))
            container[_key(container, part)] = child
            container = child
        return container, parts[-1]

    def share(self, value: Any) -> None:
        """Note that a value is in two places: the next change copies its parts."""
        try:
            self._copied += len(_ENCODER.encode(value))
        except OverflowError as error:  # a number that no field can have
            raise _Mismatch("a number is too large") from error
        if self._copied > MAX_COPIED_BYTES:
            raise _Mismatch("too much is copied")
        pending = [value]
        while pending:
            part = pending.pop()
            if isinstance(part, dict | list):
                self._owned.pop(id(part), None)
                pending.extend(part.values() if isinstance(part, dict) else part)

    def _own(self, container: Any) -> Any:
        if id(container) in self._owned:
            return container
        copy = container.copy()
        self._owned[id(copy)] = copy
        return copy


def _parts(pointer: str) -> list[str]:
    parts = pointer.split("/")
    if len(parts) == 1:
        raise _Mismatch(pointer)
    return [part.replace("~1", "/").replace("~0", "~") for part in parts[1:]]


def _container(value: Any) -> Any:
    if not isinstance(value, dict | list):
        raise _Mismatch(value)
    return value


def _get(container: Any, part: str) -> Any:
    if isinstance(container, dict):
        return container.get(part)
    return container[_index(part, len(container))]


def _key(container: Any, part: str) -> Any:
    return part if isinstance(container, dict) else _index(part, len(container))


def _index(part: str, size: int) -> int:
    try:
        index = integers.signed(part)
    except integers.NotInteger as problem:
        raise _Mismatch(part) from problem
    if not -size <= index < size:
        raise _Mismatch(part)
    return index + size if index < 0 else index


def _text(operation: Operation, name: str) -> str:
    text = operation.get(name)
    if text is None:
        raise _Mismatch(name)
    return str(text)


def _equal(one: Any, other: Any) -> bool:
    """JSON equality where 1 is neither 1.0 nor true."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
