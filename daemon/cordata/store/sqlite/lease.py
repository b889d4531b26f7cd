"""The lease of the primary: a file lock that ends with its process, and a term that remains."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from cordata.errors import LeaseLost, StoreUnavailable
from cordata.store.contract import Lease, Store
from cordata.store.fence import Fence, check_fence, end_term, take_term
from cordata.store.sqlite.lock import FileLock


class FileLease(Lease):
    """Held while this process locks `<state>/primary.lock` and its term is the newest."""

    def __init__(
        self,
        store: Store,
        make_tables: Callable[[], Awaitable[None]],
        state_dir: Path,
        *,
        holder: str,
    ) -> None:
        """`make_tables` creates the tables of the lease, which is taken before the migrations."""
        self._store = store
        self._make_tables = make_tables
        self._path = state_dir / "primary.lock"
        self._holder = holder
        self._lock: FileLock | None = None
        self._fence: Fence | None = None

    @property
    def held(self) -> bool:
        """As in Lease; a deleted lock file ends it, too."""
        return self._lock is not None and self._lock.in_place

    async def try_acquire(self) -> Fence | None:
        """As in Lease."""
        if self.held:
            return self._fence
        self._close()
        lock = FileLock(self._path)
        try:
            if not lock.try_acquire():
                lock.close()
                return None
            await self._make_tables()
            fence = await self._store.run(lambda tx: take_term(tx, holder=self._holder))
        except BaseException:
            lock.close()
            raise
        self._lock, self._fence = lock, fence
        return fence

    async def check(self) -> None:
        """As in Lease."""
        fence = self._fence
        if fence is None or not self.held:
            raise LeaseLost("the lease of the primary is not held")
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

    def _close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
