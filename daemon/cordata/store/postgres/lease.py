"""The lease of the primary: a lock that dies with its session, and a term that outlives it.

    holder      checks every second; trusts itself for 5 s after the last check that it began
    server      ends a session that says nothing for 7 s, and the lock with it
    standby     tries again, at every poll and at every word that the lease is free

So a holder that is cut off, suspended or dead knows (if it knows anything) that it holds nothing
2 s before another can, whatever stands in between: a proxy that keeps answering for a dead host
deceives keepalives, not this. Its writes are checked against the term all the same.
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
from cordata.store.tx import Tx

if TYPE_CHECKING:
    from cordata.store.postgres.store import PostgresStore

_CHECK_S = 1.0
_TRUST_S = 5.0
_SILENT_S = 7.0
#: A session that answers nothing is given up.
_ANSWER_S = 4.0
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('cordata lease ' || $1, 0)) AS locked"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('cordata lease ' || $1, 0))"
#: The last three end the session of a host that died while the server was speaking to it.
_WATCHED = (
    f"SELECT set_config('idle_session_timeout', '{_SILENT_S * 1000:.0f}', false),"
    f" set_config('tcp_user_timeout', '{_SILENT_S * 1000:.0f}', false),"
    " set_config('tcp_keepalives_idle', '3', false),"
    " set_config('tcp_keepalives_interval', '2', false),"
    " set_config('tcp_keepalives_count', '2', false)"
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
        self._stop = asyncio.Event()
        self._watch: asyncio.Future[None] | None = None

    @property
    def held(self) -> bool:
        """As in Lease."""
        session = self._session
        return (
            self._locked
            and session is not None
            and not session.lost
            and clock.monotonic() < self._deadline
        )

    @property
    def fence(self) -> Fence | None:
        """As in Lease."""
        return self._fence

    async def try_acquire(self) -> Fence | None:
        """As in Lease."""
        if self.held:
            return self._fence
        if self._locked:
            await self._let_go()
        if not await self._lock():
            return None
        try:
            await self._store.bootstrap()
            term = await self._store.run_alone(self._take)
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
            raise LeaseLost(f"the lease {self._name!r} is not held")
        await self._store.read(lambda tx: check_fence(tx, fence))

    async def release(self) -> None:
        """As in Lease."""
        fence, self._fence = self._fence, None
        try:
            if fence is not None and self.held:
                await self._store.run_alone(lambda tx: self._give_back(tx, fence))
        except StoreUnavailable:
            pass  # the row is for people to read; the lock is what counts
        finally:
            await self._let_go()

    async def _lock(self) -> bool:
        """Get the session's lock, and have the session watched from then on."""
        if self._session is None or self._session.lost:
            self._session = await self._store.connect_session()
        session = self._session
        try:
            async with asyncio.timeout(_ANSWER_S):
                proven = clock.monotonic()
                session.send(_WATCHED)
                session.send(_LOCK, (self._name,))
                locked = (await session.sync())[1].rows()[0]["locked"]
                if not locked:  # a standby may be silent for longer
                    await session.execute("SELECT set_config('idle_session_timeout', '0', false)")
        except (TimeoutError, ConnectionLost, ServerError) as error:
            session.close()
            raise cut(f"the lease's session: {error or 'no answer'}") from None
        except BaseException:
            session.close()
            raise
        if locked:
            self._locked = True
            self._deadline = proven + _TRUST_S
            self._stop.clear()
            self._watch = self._store.start(self._prove(session))
        return bool(locked)

    async def _prove(self, session: Connection) -> None:
        """Speak once a second, so that the server and we know that the session lives."""
        while not session.lost:
            try:
                async with asyncio.timeout(_CHECK_S):
                    await self._stop.wait()
                return
            except TimeoutError:
                pass
            try:
                async with asyncio.timeout(_ANSWER_S):
                    sent = clock.monotonic()
                    await session.sync()  # a mere Sync: a sign of life, and no transaction
            except (TimeoutError, ConnectionLost, ServerError):
                session.close()
                return
            self._deadline = sent + _TRUST_S

    async def _let_go(self) -> None:
        """Unlock and forget the session. The server unlocks by itself when it cannot be told."""
        self._locked = False
        self._stop.set()
        watch, self._watch = self._watch, None
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if watch is not None:
                await watch
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
