"""The wire: a connection of libpq on the event loop.

The socket is watched all the time, so that a server that goes away is noticed when nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from psycopg import pq

from cordata.store.postgres.fault import ConnectionLost
from cordata.store.postgres.result import reason

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

#: A long result may be read in several pieces; how it ended is seen behind the last one.
_LOOKS = 2

OnNotify = Callable[[str, int], None]


class Wire:
    """Sends what libpq has queued, collects the results up to the next sync."""

    def __init__(self, pgconn: PGconn, on_notify: OnNotify | None) -> None:
        self._pg = pgconn
        self._loop = asyncio.get_running_loop()
        self._on_notify = on_notify
        #: Called once, on the loop, when the connection is lost while nobody waits for it.
        self.on_lost: Callable[[], None] | None = None
        #: Why the connection is of no use any more.
        self.lost: str = ""
        self._results: list[PGresult] = []
        self._syncing = False
        #: Loop time when the last sync was sent.
        self._asked = 0.0
        self._writing = False
        self._waiter: asyncio.Future[None] | None = None
        self._socket = self._pg.socket
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._readable)

    @property
    def silent_s(self) -> float:
        """For how long the server has been silent although it was asked."""
        return self._loop.time() - self._asked

    def close(self) -> None:
        """Close it; the server rolls back what was open."""
        if not self.lost:
            self._lose("closed", tell=False)

    async def _wait(self) -> None:
        while self._syncing and not self.lost:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self.lost:
            raise ConnectionLost(self.lost)

    def _flush(self) -> None:
        try:
            pending = self._pg.flush()
        except Exception as error:  # noqa: BLE001
            self._lose(str(error))
            return
        if self._pg.status == pq.ConnStatus.BAD:
            # libpq found it closed as it wrote, and closed the socket: no event would ever come.
            self._lose(self._pg.get_error_message())
            return
        if pending and not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket, self._flush)
        elif not pending and self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        pg = self._pg
        try:
            pg.consume_input()
            if self._writing:  # room may have come with what was read
                self._flush()
            if self._syncing:
                self._read_results()
            # After a reset by the server uvloop calls us once and never again, so whatever comes
            # behind the data (the end, perhaps) has to be seen now.
            for _ in range(_LOOKS):
                if self._syncing and not self.lost:
                    pg.consume_input()
                    self._read_results()
            self._read_notifications()
            if not self._syncing and pg.status == pq.ConnStatus.BAD:
                self._lose(pg.get_error_message())
        except Exception as error:  # noqa: BLE001
            self._lose(reason(self._results) or str(error))

    def _read_results(self) -> None:
        pg = self._pg
        piped = pg.pipeline_status != pq.PipelineStatus.OFF
        missing = False
        while not pg.is_busy():
            result = pg.get_result()
            if result is None:
                if missing or not piped:  # no more of them at all
                    self._done(lost=piped)
                    return
                missing = True
                continue
            missing = False
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                self._done()
                return
            self._results.append(result)
            if pg.status == pq.ConnStatus.BAD:
                break
        if pg.status == pq.ConnStatus.BAD:
            self._lose(reason(self._results) or pg.get_error_message())

    def _done(self, *, lost: bool = False) -> None:
        if lost:
            self._lose(reason(self._results) or self._pg.get_error_message())
            return
        self._syncing = False
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _read_notifications(self) -> None:
        while (notification := self._pg.notifies()) is not None:
            if self._on_notify is not None:
                text = notification.extra.decode("utf-8", "replace")
                self._on_notify(text, notification.be_pid)

    def _lose(self, reason: str, *, tell: bool = True) -> None:
        if self.lost:
            return
        self.lost = " ".join(reason.split()) or "the connection is lost"
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._loop.remove_writer(self._socket)
        self._pg.finish()
        waited = self._waiter is not None and not self._waiter.done()
        self._wake()
        if tell and not waited and self.on_lost is not None:
            self.on_lost()
