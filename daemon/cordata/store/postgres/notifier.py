"""The session of this process for wake-ups (LISTEN, NOTIFY) and for the server's time.

    connecting --LISTEN--> listening --lost--> connecting (then all waiters are woken)

NOTIFY is sent after the commit, on this connection, and not within the transaction: commits with
NOTIFY hold one lock of the whole server until they are on disk, so no two of them would share a
sync. If a process dies between commit and NOTIFY, the waiters end by their timeouts.
"""

from __future__ import annotations

import asyncio
import json

from cordata import log
from cordata.core.retry import Backoff
from cordata.errors import StoreUnavailable
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.connector import Connector, store_unavailable
from cordata.store.postgres.fault import ConnectionLost, ServerError, server_unreachable, translate
from cordata.store.tasks import StoreTasks
from cordata.store.topic import Topics

_log = log.logger("cordata.store")

_CHANNEL = "cordata"
_NOTIFY = f"SELECT pg_notify('{_CHANNEL}', topic) FROM json_array_elements_text($1::json) AS topic"
#: The server's time is measured at this interval, which also shows whether the session is alive.
_MEASURE_S = 60.0
#: A server that does not answer within this time is taken for dead.
_ANSWER_S = 10.0
_FINISH_S = 1.0
#: Between attempts to connect.
_BACKOFF = Backoff(0.2, 3.0, least=0.5)


class Notifier(Topics):
    """One connection that listens; it is replaced when it is lost."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(asyncio.get_running_loop())
        self._connector = connector
        self._connection: Connection | None = None
        #: Topics to notify other processes of.
        self._outgoing: dict[str, None] = {}
        self._something = asyncio.Event()
        #: Whether `_run` is to end when it has sent these.
        self._finishing = False
        self._running: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        """The server's process id of the session; 0 while there is none."""
        return 0 if self._connection is None else self._connection.pid

    async def open(self) -> None:
        """Connect and listen. Raises: StoreUnavailable."""
        connection = await self._connector.connect_session(self._on_notify)
        connection.on_lost = self._something.set
        try:
            async with asyncio.timeout(_ANSWER_S):
                await connection.execute(f"LISTEN {_CHANNEL}")
        except ServerError as error:
            connection.close()
            raise store_unavailable(translate(error.fault, "LISTEN")) from None
        except (TimeoutError, ConnectionLost) as error:
            connection.close()
            raise server_unreachable(f"LISTEN: {error or 'no answer'}") from None
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def start(self, tasks: StoreTasks) -> None:
        """Listen and send in a task of the store, until `finish`."""
        self._running = tasks.start(self._run())

    async def _run(self) -> None:
        attempt = 0
        try:
            while not self._finishing:
                if self._connection is None:
                    attempt += 1
                    await asyncio.sleep(_BACKOFF.delay_s(attempt))
                    try:
                        await self.open()
                    except StoreUnavailable:
                        continue
                    self.wake_all()  # what was sent meanwhile is lost
                attempt = 0
                await self._serve()
        finally:
            if self._connection is not None:
                self._connection.close()

    def broadcast(self, names: list[str]) -> None:
        """As in Topics."""
        self._outgoing.update(dict.fromkeys(names))
        self._something.set()

    async def finish(self) -> None:
        """Send the remaining notifications, for at most _FINISH_S."""
        self._finishing = True
        self.broadcast(self.take_pending())
        if self._running is not None and self._connection is not None:
            await asyncio.wait([self._running], timeout=_FINISH_S)

    async def _serve(self) -> None:
        """Send notifications and measure the time until the connection is lost."""
        connection = self._connection
        assert connection is not None
        due = self._loop.time() + _MEASURE_S
        while not connection.lost and (self._outgoing or not self._finishing):
            try:
                async with asyncio.timeout_at(due):
                    await self._something.wait()
            except TimeoutError:
                pass
            self._something.clear()
            names, self._outgoing = self._outgoing, {}
            try:
                async with asyncio.timeout(_ANSWER_S):
                    if names:
                        await connection.execute(_NOTIFY, (json.dumps(list(names)).encode(),))
                    if self._loop.time() >= due:
                        due = self._loop.time() + _MEASURE_S
                        await self._connector.measure(connection)
            except (TimeoutError, ConnectionLost):
                connection.close()
                self._outgoing = {**names, **self._outgoing}
                self._something.set()  # for the next connection
            except ServerError as error:
                _log.warning("NOTIFY failed: %s", error.fault.message)
        connection.close()
        self._connection = None

    def _on_notify(self, name: str, pid: int) -> None:
        if pid != self.pid:  # `Topics.notify` has woken the waiters of this process already
            self.wake(name)
