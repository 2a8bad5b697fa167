# SPDX-License-Identifier: Apache-2.0
"""What SQLite asks of the operating system, recorded, and failing on demand.

SQLite does all of its file work through a table of functions, the VFS. Here a
second one is registered with the very library that Python's `sqlite3` uses:
a copy of the default, in which opening a file puts recorders in front of
write, truncate and sync. That needs no tracer, no compiler and no privilege.

The proof ends where SQLite's default VFS begins: that a successful sync
there is one `fdatasync` of the file.
"""

import _sqlite3
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

OK = 0
FULL = 13
IOERR_FSYNC = 10 | 4 << 8

Kind = Literal["write", "truncate", "sync", "delete", "note"]


@dataclass(frozen=True, slots=True)
class DiskCall:
    """One call that was done, or a note of the test between two calls."""

    kind: Kind
    file: str = ""
    offset: int = 0
    data: bytes = b""
    note: Any = None


@dataclass
class DiskTrace:
    """The calls in order; `fail` may answer a call with an error code instead."""

    calls: list[DiskCall] = field(default_factory=list)
    fail: Callable[[DiskCall], int] = lambda call: OK

    def note(self, note: Any) -> None:
        self.calls.append(DiskCall("note", note=note))


_POINTER = ctypes.c_void_p
_INT = ctypes.c_int
_INT64 = ctypes.c_int64
_OPEN = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _POINTER, _INT, _POINTER)
_DELETE = ctypes.CFUNCTYPE(_INT, _POINTER, ctypes.c_char_p, _INT)
_WRITE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _INT64)
_TRUNCATE = ctypes.CFUNCTYPE(_INT, _POINTER, _INT64)
_SYNC = ctypes.CFUNCTYPE(_INT, _POINTER, _INT)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = (
        ("version", _INT),
        ("file_size", _INT),
        ("longest_path", _INT),
        ("next", _POINTER),
        ("name", ctypes.c_char_p),
        ("data", _POINTER),
        ("open", _POINTER),
        ("delete", _POINTER),
        ("others", _POINTER * 14),
    )


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (
        ("version", _INT),
        ("close", _POINTER),
        ("read", _POINTER),
        ("write", _POINTER),
        ("truncate", _POINTER),
        ("sync", _POINTER),
        ("others", _POINTER * 13),
    )


def _library() -> ctypes.CDLL:
    """The SQLite that `sqlite3` is linked with; a symbol is looked up in both."""
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    library.sqlite3_vfs_find.restype = _POINTER
    library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
    library.sqlite3_vfs_register.argtypes = [_POINTER, _INT]
    library.sqlite3_vfs_unregister.argtypes = [_POINTER]
    return library


class _Recorder:
    """A VFS in front of the default one."""

    def __init__(self, trace: DiskTrace, default: int) -> None:
        self.vfs = _Vfs()
        ctypes.memmove(ctypes.byref(self.vfs), default, ctypes.sizeof(_Vfs))
        self._trace = trace
        self._names: dict[int, str] = {}
        self._really_open = _OPEN(self.vfs.open)
        self._really_delete = _DELETE(self.vfs.delete)
        # Kept alive: SQLite has only their addresses.
        self._callbacks: list[Any] = [_OPEN(self._open), _DELETE(self._delete)]
        self._methods: dict[int, _Methods] = {}
        self.vfs.name = b"recording"
        self.vfs.open = ctypes.cast(self._callbacks[0], _POINTER)
        self.vfs.delete = ctypes.cast(self._callbacks[1], _POINTER)

    def _done(self, call: DiskCall, really: Callable[[], int]) -> int:
        code = self._trace.fail(call) or really()
        if code == OK:
            self._trace.calls.append(call)
        return code

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code: int = self._really_open(vfs, name, file, flags, out)
        if code == OK and name is not None:
            path = ctypes.string_at(name).decode()
            self._names[file] = Path(path).name
            slot = ctypes.cast(file, ctypes.POINTER(_POINTER))
            slot[0] = ctypes.addressof(self._wrapped(slot[0]))
        return code

    def _delete(self, vfs: int, name: bytes, sync: int) -> int:
        call = DiskCall("delete", Path(name.decode()).name)
        return self._done(call, lambda: self._really_delete(vfs, name, sync))

    def _wrapped(self, original: int) -> _Methods:
        """The method table at this address with recorders."""
        if original in self._methods:
            return self._methods[original]
        methods = _Methods()
        ctypes.memmove(ctypes.byref(methods), original, ctypes.sizeof(_Methods))
        write, truncate, sync = (
            _WRITE(methods.write),
            _TRUNCATE(methods.truncate),
            _SYNC(methods.sync),
        )

        def on_write(file: int, data: int, size: int, offset: int) -> int:
            call = DiskCall("write", self._names[file], offset, ctypes.string_at(data, size))
            return self._done(call, lambda: write(file, data, size, offset))

        def on_truncate(file: int, size: int) -> int:
            call = DiskCall("truncate", self._names[file], size)
            return self._done(call, lambda: truncate(file, size))

        def on_sync(file: int, flags: int) -> int:
            return self._done(DiskCall("sync", self._names[file]), lambda: sync(file, flags))

        wrappers = (_WRITE(on_write), _TRUNCATE(on_truncate), _SYNC(on_sync))
        self._callbacks.extend(wrappers)
        methods.write, methods.truncate, methods.sync = (
            ctypes.cast(wrapper, _POINTER) for wrapper in wrappers
        )
        self._methods[original] = methods
        return methods


@contextmanager
def recording() -> Iterator[DiskTrace]:
    """Record every SQLite connection that opens during the block; close each before the end."""
    library = _library()
    default = library.sqlite3_vfs_find(None)
    trace = DiskTrace()
    recorder = _Recorder(trace, default)
    library.sqlite3_vfs_register(ctypes.byref(recorder.vfs), 1)
    try:
        yield trace
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(recorder.vfs))
        library.sqlite3_vfs_register(default, 1)
