"""The lease of the primary: a lock that dies with its session, and a term that outlives it.

    holder      checks every second; trusts itself for 5 s after the last check that it began
    server      ends a session that says nothing for 7 s, and the lock with it
    standby     stands in the queue for the lock, which costs nothing, and is told when it has it

So a holder that is cut off, suspended or dead knows (if it knows anything) that it holds nothing
2 s before another can, whatever stands in between: a proxy that keeps answering for a dead host
deceives keepalives, not this. Its writes are checked against the term all the same.

    nothing --try_acquire--> locked --term taken--> held --lost, released--> nothing
       |  ^                    ^  |
       v  |10 s                |  | not taken soon: given back
      in the queue ------------+  v
                                nothing
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cordata import clock
from cordata.errors import LeaseLost, StoreUnavailable
from cordata.store.contract import Lease
from cordata.store.fence import Fence, check_fence
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError, cut
from cordata.store.postgres.lease_trust import CHECK_S, SILENT_S, is_trusted, trusted_until
from cordata.store.tx import Tx

if TYPE_CHECKING:
    from cordata.store.postgres.store import PostgresStore

#: lock_not_available: the queue was too long.
_NOT_AVAILABLE = "55P03"
#: A session that answers nothing is given up.
_ANSWER_S = 4.0
#: So long in the queue at a time: whoever waits in a statement keeps old rows from being removed.
_QUEUE_S = 10.0
#: A lock that came while nobody asked for the lease any more is given back after so long.
_CLAIM_S = 1.0
#: The server's word that the lock is ours may be so much behind another's that it is free.
_WORD_S = 0.02
_KEY = "hashtextextended('cordata lease ' || $1, 0)"
_LOCK = f"SELECT pg_try_advisory_lock({_KEY}) AS locked"
_WAIT = f"SELECT pg_advisory_lock({_KEY})"
_UNLOCK = f"SELECT pg_advisory_unlock({_KEY})"
#: The last four end the session of a host that died while the server was speaking to it, or while
#: it stood in the queue.
_WATCHED = (
    f"SELECT set_config('idle_session_timeout', '{SILENT_S * 1000:.0f}', false),"
    f" set_config('lock_timeout', '{_QUEUE_S * 1000:.0f}', false),"
    f" set_config('tcp_user_timeout', '{SILENT_S * 1000:.0f}', false),"
    " set_config('tcp_keepalives_idle', '3', false),"
    " set_config('tcp_keepalives_interval', '2', false),"
    " set_config('tcp_keepalives_count', '2', false),"
    " set_config('client_connection_check_interval', '2s', false)"
)


class SessionLease(Lease):
    """Held: this process' session has the lock and proved it a moment ago."""

    def __init__(self, store: PostgresStore, *, holder: str, name: str) -> None:
        self._store = store
        self._holder = holder
        self._name = name
        #: The session, while the lock is waited for and while it is held.
        self._session: Connection | None = None
        self._locked = False
        self._fence: Fence | None = None
        #: Monotonic time until which the lock is ours without a further proof.
        self._deadline = 0.0
        #: Somebody is changing the state.
        self._busy = asyncio.Lock()
        #: Set when the session is to be left alone.
        self._stop = asyncio.Event()
        #: Set when the lock came from the queue; when it was asked for since.
        self._came = asyncio.Event()
        self._claimed = asyncio.Event()
        #: What is done with the session in the background: the queue, then the checks.
        self._background: asyncio.Future[None] | None = None

    @property
    def held(self) -> bool:
        """As in Lease."""
        session = self._session
        return (
            self._locked
            and session is not None
            and not session.lost
            and is_trusted(self._deadline, clock.monotonic())
        )

    @property
    def fence(self) -> Fence | None:
        """As in Lease."""
        return self._fence

    async def try_acquire(self) -> Fence | None:
        """As in Lease."""
        async with self._busy:
            if self.held and self._fence is not None:
                return self._fence
            if self._fence is not None or (self._locked and not self.held):
                await self._let_go()
            if not self._locked and not await self._lock():
                return None
            self._claimed.set()
            try:
                await self._store.bootstrap()
                term = await self._store.run_now(self._take)
            except BaseException:
                await self._let_go()
                raise
            if not self.held:
                await self._let_go()
                raise cut("the lease was lost while it was taken")
            self._fence = Fence(self._name, term)
            return self._fence

    async def check(self) -> None:
        """As in Lease."""
        fence = self._fence
        if fence is None or not self.held:
            raise LeaseLost(
                f"the lease {self._name!r} is not held: the session with the database server was"
                " lost, or did not answer in time"
            )
        await self._store.read(lambda tx: check_fence(tx, fence))

    async def release(self) -> None:
        """As in Lease."""
        async with self._busy:
            fence, held = self._fence, self.held
            try:
                if fence is not None and held:
                    await self._store.run_now(lambda tx: self._give_back(tx, fence))
            except StoreUnavailable:
                pass  # the row is for people to read; the lock is what counts
            finally:
                await self._let_go()

    async def _lock(self) -> bool:
        """Get the lock if it is free; else stand in the queue for it from now on."""
        if self._background is not None and not self._background.done():
            try:  # it may have come with the word that made the caller ask
                async with asyncio.timeout(_WORD_S):
                    await self._came.wait()
            except TimeoutError:
                pass
            return self._locked
        if self._session is None or self._session.lost:
            self._session = await self._store.connect_session()
        session = self._session
        try:
            async with asyncio.timeout(_ANSWER_S):
                sent = clock.monotonic()
                session.send(_WATCHED)
                session.send(_LOCK, (self._name,))
                locked = (await session.sync())[1].rows()[0]["locked"]
        except (TimeoutError, ConnectionLost, ServerError) as error:
            session.close()
            raise cut(f"the lease's session: {error or 'no answer'}") from None
        except BaseException:
            session.close()
            raise
        self._stop.clear()
        self._claimed.clear()
        self._came.clear()
        if locked:
            self._locked, self._deadline = True, trusted_until(sent)
        self._background = self._store.start(self._attend(session))
        return bool(locked)

    async def _attend(self, session: Connection) -> None:
        """Stand in the queue until the lock is there, then see to it that it stays."""
        try:
            if not self._locked:
                await session.execute(_WAIT, (self._name,))
                self._deadline = trusted_until(await _prove(session))
                self._locked = True
                self._came.set()
            due = clock.monotonic() + _CLAIM_S
            while await self._unasked(CHECK_S):
                if not self._claimed.is_set() and clock.monotonic() >= due:
                    break  # whoever stood in the queue has gone
                self._deadline = trusted_until(await _prove(session))
            else:
                return
        except ServerError as error:
            if error.fault.sqlstate == _NOT_AVAILABLE:
                return  # it stands in the queue again at the next try
        except (TimeoutError, ConnectionLost):
            pass
        session.close()

    async def _unasked(self, seconds: float) -> bool:
        """Whether so much time passed without the session being asked for."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return True
        return False

    async def _let_go(self) -> None:
        """Unlock and forget the session. The server unlocks by itself when it cannot be told."""
        locked, self._locked, self._fence = self._locked, False, None
        self._stop.set()
        background, self._background = self._background, None
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if not locked:
                session.close()  # what waits in the queue is told by that
            if background is not None:
                await background
            if locked:
                async with asyncio.timeout(_ANSWER_S):
                    await session.execute(_UNLOCK, (self._name,))
        except (TimeoutError, ConnectionLost, ServerError):
            pass
        finally:
            session.close()

    async def _take(self, tx: Tx) -> int:
        row = await tx.fetch_one(
            "lease.take", name=self._name, holder=self._holder, acquired_at=tx.now_us
        )
        assert row is not None
        term: int = row["term"]
        return term

    async def _give_back(self, tx: Tx, fence: Fence) -> None:
        await tx.execute("lease.release", name=fence.name, term=fence.term, released_at=tx.now_us)


async def _prove(session: Connection) -> float:
    """See that the session lives; the monotonic time when it was asked.

    By a mere Sync: a sign of life for the server, and no transaction.
    """
    async with asyncio.timeout(_ANSWER_S):
        sent = clock.monotonic()
        await session.sync()
    return sent
