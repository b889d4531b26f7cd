"""The lease of the primary: a file lock that ends with its process, and a term that remains."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from cordata.errors import LeaseLost, StoreUnavailable
from cordata.store.contract import Lease, Store
from cordata.store.fence import Fence, check_fence, end_term, take_term
from cordata.store.sqlite.fault import DIRECTORY_HINT


class FileLease(Lease):
    """Held while this process locks `<state>/<name>.lock` and its term is the newest."""

    def __init__(
        self,
        store: Store,
        make_tables: Callable[[], Awaitable[None]],
        state_dir: Path,
        *,
        holder: str,
        name: str,
    ) -> None:
        """`make_tables` creates the tables of the lease, which is taken before the migrations."""
        self._store = store
        self._make_tables = make_tables
        self._path = state_dir / f"{name}.lock"
        self._holder = holder
        self._name = name
        self._lock: int | None = None
        self._fence: Fence | None = None

    @property
    def held(self) -> bool:
        """As in Lease; a deleted lock file ends it, too."""
        return self._lock is not None and os.fstat(self._lock).st_nlink > 0

    @property
    def fence(self) -> Fence | None:
        """As in Lease."""
        return self._fence

    async def try_acquire(self) -> Fence | None:
        """As in Lease."""
        if self.held:
            return self._fence
        self._close()
        lock = self._try_lock()
        if lock is None:
            return None
        try:
            await self._make_tables()
            fence = await self._store.run(lambda tx: take_term(tx, self._name, holder=self._holder))
        except BaseException:
            os.close(lock)
            raise
        self._lock, self._fence = lock, fence
        return fence

    async def check(self) -> None:
        """As in Lease."""
        fence = self._fence
        if fence is None or not self.held:
            raise LeaseLost(f"the lease {self._name!r} is not held")
        await self._store.read(lambda tx: check_fence(tx, fence))

    async def release(self) -> None:
        """As in Lease."""
        fence, self._fence = self._fence, None
        try:
            if fence is not None and self._lock is not None:
                await self._store.run(lambda tx: end_term(tx, fence))
        except StoreUnavailable:
            pass  # the row is for people to read; the lock is what counts
        finally:
            self._close()

    def _try_lock(self) -> int | None:
        try:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path} cannot be opened: {error.strerror}",
                hint=DIRECTORY_HINT,
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
