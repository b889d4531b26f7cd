"""The lease of the primary: a file lock that dies with its process, and a term that outlives it."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cordata.store.tx import Tx

if TYPE_CHECKING:
    from cordata.store.sqlite import SqliteStore


@dataclass(frozen=True, slots=True)
class Fence:
    """The term under which its holder writes; `run(unit, fence=)` refuses it once it is stale."""

    name: str
    term: int


class PrimaryLease:
    """At most one process holds it: `<state>/primary.lock` locked, and the row's term its own.

    Use: `fence = await lease.try_acquire()`; None means another holds it, so try again later.
    Pass the fence to every write of the primary's. `await lease.release()` on the way out; a
    killed process releases by dying.
    """

    def __init__(self, store: SqliteStore, *, state_dir: Path, holder: str) -> None:
        self._store = store
        self._path = state_dir / "primary.lock"
        self._holder = holder
        self._lock: int | None = None
        self._fence: Fence | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lease."""
        return self._fence is not None

    async def try_acquire(self) -> Fence | None:
        """Take the lease if it is free. Returns at once; None: another process holds it."""
        if self._fence is not None:
            return self._fence
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None

        async def take(tx: Tx) -> int:
            row = await tx.fetch_one(
                "lease.take", name="primary", holder=self._holder, acquired_at=tx.now_us
            )
            assert row is not None
            term: int = row["term"]
            return term

        try:
            await self._store.migrate(())
            term = await self._store.run(take)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        self._fence = Fence("primary", term)
        return self._fence

    async def release(self) -> None:
        """Give the lease back, so that a standby takes over at its next try."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = self._fence = None
