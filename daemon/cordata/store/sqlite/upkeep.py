"""Upkeep: folding the log back as commits fill it, and probing a store that takes no writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordata import log
from cordata.store.health import Health, OnState
from cordata.store.sqlite.exclusive import Exclusive
from cordata.store.sqlite.wake import WakeUps
from cordata.store.sqlite.wal import Checkpoint, Wal
from cordata.store.sqlite.writer import Writer
from cordata.store.tx import CHECKPOINT_TOPIC

_log = log.logger("cordata.store")

#: Commits between looks at the size of the log: 10 us each.
_LOOK_EVERY = 8
#: A writer folds the log back itself when it is so many times over its limit.
_FAR_OVER = 4
#: A writer that found a reader in the way leaves the log alone for a while.
_PAUSE_S = 1.0


class LogKeeper:
    """Keeps the write-ahead log near its limit."""

    def __init__(self, wal: Wal, exclusive: Exclusive, wake: WakeUps, *, limit_bytes: int) -> None:
        self.wal = wal
        self._exclusive = exclusive
        self._wake = wake
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._commits = 0
        self._folding = False
        self._next_deadline = 0.0

    async def checkpoint(self, *, force: bool) -> Checkpoint | None:
        """Fold the log back if it is over its limit (None: it was not), or in any case: then the
        file is cut as well.
        """
        if not force and self.wal.live_bytes() <= self._limit_bytes:
            return None
        return await self._start(truncate=force)

    def committed(self) -> None:
        """Look at the log now and then; wake the primary, or act if that was not enough."""
        self._commits += 1
        if self._commits % _LOOK_EVERY:
            return
        live = self.wal.live_bytes()
        if live <= self._limit_bytes:
            return
        self._wake.notify((CHECKPOINT_TOPIC,))
        if live > _FAR_OVER * self._limit_bytes and not self._folding:
            if self._loop.time() >= self._next_deadline:
                self._folding = True
                self._start().add_done_callback(self._folded)

    def _folded(self, call: asyncio.Future[Checkpoint]) -> None:
        self._folding = False
        if call.cancelled():
            return
        if (error := call.exception()) is not None:
            _log.warning("the log could not be folded back: %s", error)
        if error is not None or not call.result().complete:
            self._next_deadline = self._loop.time() + _PAUSE_S

    def _start(self, *, truncate: bool = False) -> asyncio.Future[Checkpoint]:
        # Else only a file that grew far beyond its limit is cut: written over, it is quicker.
        truncate = truncate or self.wal.file_bytes() > _FAR_OVER * self._limit_bytes
        return self._exclusive.call(lambda c: self.wal.checkpoint(c, truncate=truncate))


class Prober:
    """While the store takes no writes, tries one now and then, so that it heals without traffic."""

    def __init__(self, health: Health, writer: Writer, told: Callable[[], OnState | None]) -> None:
        self._health = health
        self._writer = writer
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def state_changed(self, state: str, reason: str) -> None:
        """Called at each change; starts the attempts."""
        if state != "ok":
            self._arm()
        if (tell := self._told()) is not None:
            tell(state, reason)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._health.pause_s, self._probe)

    def _probe(self) -> None:
        self._timer = None
        if self._health.state != "ok":
            self._writer.probe()
            self._arm()

    def stop(self) -> None:
        """No more attempts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
