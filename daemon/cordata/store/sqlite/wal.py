"""The write-ahead log: how much of it is alive, and the checkpoints that keep it near its limit.

They also keep it small enough for its disk: a checkpoint makes the database file larger by the
pages that are new.

The file keeps its size after a checkpoint (RESTART) and is written over from its start: a commit
then syncs blocks that exist already, which takes half the time of growing a file. So its size says
little; how far the current round has come is read from the salts in its frame headers.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import struct
from pathlib import Path

from cordata import log
from cordata.disk import Space, space_of
from cordata.errors import CordataError
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.tasks import StoreTasks

_log = log.logger("cordata.store")

#: https://www.sqlite.org/fileformat2.html#walformat: header of 32 bytes, frame headers of 24.
_HEADER = struct.Struct(">IIIIIIII")
_FRAME_HEADER_BYTES = 24
_SALTS_AT = 8
#: A full disk has room again when so much is free. The write that finds out is one page, so it may
#: fit where no write of an application does; and a disk with less would soon be full again.
_FREE_AGAIN_BYTES = 1 << 20
#: The same for small file systems: one part in so many of their size.
_FREE_AGAIN_PART = 8
#: A checkpoint waits at most this long, with the lock, for readers that still use the log.
_READERS_MS = 100
#: Commits between looks at the size of the log and the free space: 20 us each.
_LOOK_EVERY = 8
#: The file is cut when it is larger than this many times the limit, or than the disk has room for.
_FAR_OVER = 4
#: A process that found a reader in the way leaves the log alone for a while.
_PAUSE_S = 1.0


class Wal:
    """The log beside one database file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Salts of the round that a checkpoint of ours finished; the next write starts a new one.
        self._finished: bytes | None = None

    def file_bytes(self) -> int:
        """Size of the file, including its unused part."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def has_room(self) -> bool:
        """Whether the disk has room for commits."""
        if (disk := self._disk()) is None:
            return True  # not known: the commit that was just made decides
        return disk.free_bytes >= min(_FREE_AGAIN_BYTES, disk.total_bytes // _FREE_AGAIN_PART)

    def exceeds_disk(self, size: int) -> bool:
        """Whether the disk has less free space than `size`."""
        return (disk := self._disk()) is not None and disk.free_bytes < size

    def _disk(self) -> Space | None:
        """None: not known, as where the file system does not count its blocks."""
        try:
            disk = space_of(self._path.parent)
        except OSError:
            return None
        return disk if disk.total_bytes else None

    def live_bytes(self) -> int:
        """Bytes written since the last restart of the log; 0 when it cannot be read."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            header = os.pread(fd, _HEADER.size, 0)
            if len(header) < _HEADER.size:
                return 0
            salts = header[16:24]
            if salts == self._finished:
                return 0
            frame: int = _FRAME_HEADER_BYTES + _HEADER.unpack(header)[2]
            frames = (os.fstat(fd).st_size - _HEADER.size) // frame
            return _live_frames(fd, salts, frame, frames) * frame
        except OSError:
            return 0
        finally:
            os.close(fd)

    def checkpoint(self, connection: sqlite3.Connection, *, truncate: bool) -> bool:
        """Move the log into the database file; blocking, under the write lock, in a thread.

        Waits a moment for readers, since the log starts over only when none uses it; what could be
        moved is moved in any case. Returns whether all was, so that the log starts over; False: a
        reader was in the way. Raises: sqlite3.Error.
        """
        salts = self._salts()
        mode = "TRUNCATE" if truncate else "RESTART"
        connection.execute(f"PRAGMA busy_timeout = {_READERS_MS}")
        try:
            busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
        if not busy:
            self._finished = salts
        return not busy

    def _salts(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                return file.read(_HEADER.size)[16:24] or None
        except OSError:
            return None


def _live_frames(fd: int, salts: bytes, frame: int, frames: int) -> int:
    """The frames of this round come first; the first one of an older round ends them."""
    low, high = 0, frames
    while low < high:
        middle = (low + high) // 2
        if os.pread(fd, 8, _HEADER.size + middle * frame + _SALTS_AT) == salts:
            low = middle + 1
        else:
            high = middle
    return low


class Checkpointer:
    """Keeps the write-ahead log near its limit, and not larger than the free space of its disk.

    The process whose commit makes it larger checkpoints it, in its thread: all others wait for the
    lock meanwhile, whichever process it is.
    """

    def __init__(
        self, wal: Wal, connection: WriteConnection, tasks: StoreTasks, *, limit_bytes: int
    ) -> None:
        self.wal = wal
        self._connection = connection
        self._tasks = tasks
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._commits = 0
        self._running = False
        self._next_deadline = 0.0

    async def truncate(self) -> bool:
        """Checkpoint, and cut the file. Returns as `Wal.checkpoint`. Raises: StoreUnavailable."""
        work = self._connection.call(lambda c: self.wal.checkpoint(c, truncate=True))
        return await asyncio.shield(self._tasks.start(work))

    async def reduce(self) -> bool:
        """Checkpoint if it is due. Returns as `Wal.checkpoint`. Raises: StoreUnavailable."""
        return not self._is_due() or await self._connection.call(self._reduce)

    def committed(self) -> None:
        """Look at the log after some commits, and checkpoint it if necessary."""
        self._commits += 1
        if self._commits % _LOOK_EVERY or self._running or not self._is_due():
            return
        if self._loop.time() >= self._next_deadline:
            self._running = True
            self._tasks.start(self._run())

    async def _run(self) -> None:
        complete = False
        try:
            complete = await self.reduce()
        except CordataError as error:
            _log.warning("checkpoint failed: %s", error)
        finally:
            self._running = False
        if not complete:
            self._next_deadline = self._loop.time() + _PAUSE_S

    def _is_due(self) -> bool:
        live = self.wal.live_bytes()
        # The disk must have room for all that is in the log: all its pages may be new ones.
        return live > self._limit_bytes or self.wal.exceeds_disk(live)

    def _reduce(self, connection: sqlite3.Connection) -> bool:
        """In the thread, with the lock; another process may have made a checkpoint just before."""
        # A file is cut only if it grew far beyond its limit, or if the disk is nearly full: written
        # over, it is quicker.
        size = self.wal.file_bytes()
        cut = size > _FAR_OVER * self._limit_bytes or self.wal.exceeds_disk(size)
        return not self._is_due() or self.wal.checkpoint(connection, truncate=cut)
