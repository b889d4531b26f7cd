"""The write lock: one file lock for every write and every checkpoint of every process.

SQLite's own waiting is sleeping and trying again, for up to 100 ms at a time; a blocking flock is
woken by the kernel. It also keeps two processes from writing and checkpointing at the same moment,
which SQLite before 3.51.3 could answer with a corrupt file (the WAL-reset bug).

    task --> queue of this process, in order --> flock --> the database's one writer
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from cordata.errors import StoreUnavailable
from cordata.store.health import Busy
from cordata.store.sqlite.fault import open_hint
from cordata.store.sqlite.thread import CallThreads


class FileLock:
    """flock on one file; the kernel releases it when the process dies."""

    def __init__(self, path: Path) -> None:
        """Raises: StoreUnavailable when the file cannot be opened or made."""
        self._path = path
        self._fd = self._open()

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Raises: StoreUnavailable."""
        try:
            return self._acquire(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False

    def acquire(self) -> None:
        """Wait for the lock; only in a thread. Raises: StoreUnavailable."""
        self._acquire(fcntl.LOCK_EX)

    def release(self) -> None:
        """Give the lock back; from any thread."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def in_place(self) -> bool:
        """Whether the file is still there: a lock on a deleted one excludes no process."""
        return os.fstat(self._fd).st_nlink > 0

    @property
    def marked(self) -> bool:
        """Whether a database was ever created beside this file."""
        return os.fstat(self._fd).st_size > 0

    def mark(self) -> None:
        """Record that the database exists, to distinguish its loss from a first start."""
        os.pwrite(self._fd, b"The database beside this file is in use.\n", 0)

    def close(self) -> None:
        """Close the file, which also gives the lock back."""
        os.close(self._fd)

    def _acquire(self, operation: int) -> bool:
        while True:
            try:
                fcntl.flock(self._fd, operation)
            except BlockingIOError:
                raise
            except OSError as error:
                raise self._unusable(error) from error
            if self.in_place:
                return True
            try:
                new = self._open()
            except StoreUnavailable:
                self.release()
                raise
            os.close(self._fd)
            self._fd = new

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._path} cannot be locked: {error.strerror}", hint=open_hint(error)
        )


class LockQueue:
    """The file lock for the tasks of one process, first come first served."""

    def __init__(self, lock: FileLock, thread: CallThreads, *, timeout_s: float) -> None:
        self._lock = lock
        self._thread = thread
        self._timeout_s = timeout_s
        #: Held by the task that has the file lock or is the next to get it.
        self._first = asyncio.Lock()
        #: Whether this process has the file lock.
        self._locked = False
        #: A thread that waits for the file lock, even after its task has given up.
        self._waiting: asyncio.Future[None] | None = None

    async def acquire(self) -> None:
        """Wait for the lock. Safe to cancel.

        Raises: Busy after the timeout; StoreUnavailable when its file cannot be used.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._first.acquire()
                try:
                    await self._acquire_file()
                except BaseException:
                    self._first.release()
                    raise
        except TimeoutError:
            raise Busy(
                f"the write lock was not free for {self._timeout_s:g} s", hint=self._holder()
            ) from None

    def release(self) -> None:
        """Release the lock to the next task. Call it once for each `acquire`."""
        self.release_file()
        self._first.release()

    def release_file(self) -> None:
        """Release only the file lock, to other processes; from any thread. Call `release` later."""
        if self._locked:
            self._locked = False
            self._lock.release()

    async def _acquire_file(self) -> None:
        if self._waiting is None:
            if self._lock.try_acquire():
                self._locked = True
                return
            self._waiting = self._thread.call(self._lock.acquire)
            self._waiting.add_done_callback(self._file_acquired)
        try:
            await asyncio.shield(self._waiting)
        except asyncio.CancelledError:
            self.release_file()  # it came at the same moment
            raise

    def _file_acquired(self, waiting: asyncio.Future[None]) -> None:
        self._waiting = None
        if waiting.cancelled() or waiting.exception() is not None:
            return
        self._locked = True
        if not self._first.locked():  # all have given up
            self.release_file()

    def _holder(self) -> str:
        if self._waiting is not None:
            return "another process holds it: a long transaction, migration or stopped process"
        return (
            "this process holds it: a long transaction(), or a commit that waits for the disk;"
            " see the kernel's messages about the disk: `journalctl -k` or `dmesg`"
        )
