# SPDX-License-Identifier: Apache-2.0
"""What a store can answer besides a value.

RefloatError
└── StoreError
    ├── Exists          create: the key is there already; read the key
    ├── Conflict        update, delete: the key is at another revision, or gone; read again
    ├── Compacted       this revision is no longer kept; list anew
    ├── FutureRevision  this revision has not been written yet
    ├── WriteFailed     the disk refused (full, broken); nothing changed, try again later
    ├── Locked          another process has the file open; stop that one first
    ├── Damaged         the file is not a store of ours, or is broken; nothing was touched
    └── LostWrites      the file is whole, but lacks writes that were acknowledged

A bare StoreError means that the store is closed, or that the system does not open the
file (no such directory, no permission).
"""

from pathlib import Path

from refloat.base.errors import RefloatError


class StoreError(RefloatError):
    """The root of this package's errors."""


class Exists(StoreError):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} exists")
        self.key = key


class Conflict(StoreError):
    def __init__(self, key: str, *, expected: int, actual: int | None) -> None:
        now = "is gone" if actual is None else f"is at revision {actual}"
        super().__init__(f"key {key!r} {now}, expected revision {expected}")
        self.key = key
        self.actual = actual


class Compacted(StoreError):
    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"revision {revision} is compacted (kept since {compacted})")
        self.compacted = compacted


class FutureRevision(StoreError):
    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future (now {current})")
        self.current = current


class WriteFailed(StoreError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.reason = reason  # without the path, which is not for clients

    def __str__(self) -> str:
        return f"cannot write {self.args[0]}: {self.reason}"


class Locked(StoreError):
    pass


class Damaged(StoreError):
    pass


class LostWrites(StoreError):
    def __init__(self, path: Path, *, newest: int, present: int) -> None:
        what = f"ends at revision {present}" if path.exists() else "is missing"
        super().__init__(
            f"{path} {what}, but revision {newest} was acknowledged: the newest writes are lost "
            f"(a damaged disk, a removed {path.name}-wal, or an older copy); stop the writers, "
            "put a newer backup in its place, or start once with --accept-lost-writes to go on "
            "with what is there, at a higher revision"
        )
