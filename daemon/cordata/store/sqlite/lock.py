"""The write lock: one file lock for every write and every checkpoint of every process.

SQLite's own waiting is sleeping and trying again, for up to 100 ms at a time; a blocking flock is
woken by the kernel. It also keeps two processes from writing and checkpointing at the same moment,
which SQLite before 3.51.3 could answer with a corrupt file (the WAL-reset bug).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from cordata.errors import CordataError, StoreUnavailable
from cordata.store.sqlite.crew import Hand, Job
from cordata.store.sqlite.fault import DIRECTORY_HINT


class LockUnusable(StoreUnavailable):
    """The file of the write lock cannot be opened."""


class WriteLock:
    """flock on one file; the kernel gives it back when its process dies."""

    def __init__(self, path: Path) -> None:
        """Raises: LockUnusable when the file cannot be opened or made."""
        self._path = path
        self._fd = self._open()

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> LockUnusable:
        return LockUnusable(
            f"{self._path} cannot be locked: {error.strerror}",
            hint=DIRECTORY_HINT,
        )

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Raises: LockUnusable."""
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._unusable(error) from error
            if self._is_the_file():
                return True

    def acquire(self) -> None:
        """Wait for the lock; only in a thread. Raises: LockUnusable."""
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
            except OSError as error:
                raise self._unusable(error) from error
            if self._is_the_file():
                return

    def _is_the_file(self) -> bool:
        """A lock on a deleted file excludes nobody: open the new one."""
        if os.fstat(self._fd).st_nlink:
            return True
        try:
            new = self._open()
        except LockUnusable:
            self.release()
            raise
        os.close(self._fd)
        self._fd = new
        return False

    def release(self) -> None:
        """Give the lock back; from any thread."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def marked(self) -> bool:
        """Whether a database was ever made beside this file."""
        return os.fstat(self._fd).st_size > 0

    def mark(self) -> None:
        """Note that the database exists, so that its loss is told from a first start."""
        os.pwrite(self._fd, b"The database beside this file is in use.\n", 0)

    def close(self) -> None:
        """Close the file, which also gives the lock back."""
        os.close(self._fd)


class Ticket:
    """One wish for the lock."""

    __slots__ = ("failed", "ready", "timer")

    def __init__(self, ready: Callable[[], None], failed: Callable[[CordataError], None]) -> None:
        self.ready = ready
        self.failed = failed
        self.timer: asyncio.TimerHandle | None = None


class Turn:
    """The order of one process' own wishes for the lock, first come first served."""

    def __init__(
        self, lock: WriteLock, hand: Hand, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self.lock = lock
        self._hand = hand
        self._loop = loop
        self._timeout_s = timeout_s
        self._queue: deque[Ticket] = deque()
        self._current: Ticket | None = None
        self._blocked = False

    def request(self, ready: Callable[[], None], failed: Callable[[CordataError], None]) -> Ticket:
        """Call `ready()` on the loop when this process holds the lock for this wish.

        Whoever was called calls `release`. `failed(error)` instead when it took too long, or the
        lock file is unusable. A free lock is taken at once, without a thread.
        """
        ticket = Ticket(ready, failed)
        self._queue.append(ticket)
        self._next()
        if ticket in self._queue:  # not granted, and not over already: `ready` may release at once
            ticket.timer = self._loop.call_later(self._timeout_s, self._expire, ticket)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Take a wish back: gives the lock back if it was granted already."""
        if self._current is ticket:
            self.release()
        elif ticket in self._queue:
            self._queue.remove(ticket)
            self._settle(ticket)

    def release(self, *, unlock: bool = True) -> None:
        """The current wish is over. `unlock=False`: its thread has given the lock back already."""
        if unlock:
            self.lock.release()
        self._current = None
        if self._queue:
            self._loop.call_soon(self._next)

    async def acquire(self) -> None:
        """Wait for the lock. Raises: StoreUnavailable after the timeout. Safe to cancel."""
        granted: asyncio.Future[None] = self._loop.create_future()

        def ready() -> None:
            if not granted.done():
                granted.set_result(None)

        def failed(error: CordataError) -> None:
            if not granted.done():
                granted.set_exception(error)

        ticket = self.request(ready, failed)
        try:
            await granted
        except asyncio.CancelledError:
            self.withdraw(ticket)
            raise

    def _next(self) -> None:
        if self._current is not None or self._blocked or not self._queue:
            return
        try:
            free = self.lock.try_acquire()
        except LockUnusable as error:
            self._fail_all(error)
            return
        if free:
            self._grant()
        else:
            self._blocked = True
            self._hand.submit(self.lock.acquire, self._unblocked)

    def _unblocked(self, job: Job[None]) -> None:
        self._blocked = False
        if isinstance(job.error, CordataError):
            self._fail_all(job.error)
        elif job.error is not None:
            raise job.error
        elif self._queue:
            self._grant()
        else:  # everyone lost patience meanwhile
            self.lock.release()

    def _grant(self) -> None:
        ticket = self._current = self._queue.popleft()
        self._settle(ticket)
        try:
            ticket.ready()
        except BaseException:
            # A mistake of ours must neither keep the lock of the whole fleet nor leave callers.
            if self._current is ticket:
                self.release()
                ticket.failed(StoreUnavailable("the store failed inside; see the log"))
            raise

    def _fail_all(self, error: CordataError) -> None:
        while self._queue:
            ticket = self._queue.popleft()
            self._settle(ticket)
            ticket.failed(error)

    def _expire(self, ticket: Ticket) -> None:
        self._queue.remove(ticket)
        if self._current is None:
            hint = "another process holds it: a long transaction, migration or stopped process"
        else:
            hint = (
                "this process holds it: a long transaction(), or a commit that waits for the disk;"
                " see the kernel's messages about the disk: `journalctl -k`"
            )
        ticket.failed(
            StoreUnavailable(f"the write lock was not free for {self._timeout_s:g} s", hint=hint)
        )

    @staticmethod
    def _settle(ticket: Ticket) -> None:
        if ticket.timer is not None:
            ticket.timer.cancel()
            ticket.timer = None
