"""The lease of the primary: a lock that dies with its session, and a term that outlives it.

    holder      checks every second; trusts itself for 5 s after the last check that it began
    server      ends a session that says nothing for 7 s, and the lock with it
    standby     waits in the queue for the lock, which costs nothing, and is told when it has it

    clock of the holder   asked ─────────────5 s─────────────> trusts itself no more
    clock of the server      heard ────────────────7 s────────────────> ends the session, its lock
                             (later than `asked`)

A holder counts from the moment it *asked* for its last proof, the server from the moment it *heard*
that, which is later. So a holder that is cut off or suspended stops two seconds before another can
begin, whatever the network does in between and however far the two clocks are apart; a proxy that
keeps answering for a dead host deceives keepalives, not this. The two seconds are for clocks that
run at different speeds, and for what a holder has begun and not finished. What it sent before and
what arrives after that is refused by its term.

    nothing --try_acquire--> locked --term taken--> held --lost, released--> nothing
       |  ^                    ^  |
       v  |10 s                |  | not taken soon: given back
      in the queue ------------+  v
                                nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cordata import clock
from cordata.errors import LeaseLost, StoreUnavailable
from cordata.store.contract import Lease
from cordata.store.fence import Fence, check_fence, end_term, take_term
from cordata.store.migrate import Schema
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError, cut
from cordata.store.postgres.reader import Reader
from cordata.store.postgres.runner import Runner
from cordata.store.tasks import StoreTasks

#: How often a holder asks for a proof.
CHECK_S = 1.0
#: How long one proof is good for, by the monotonic clock of the holder.
TRUST_S = 5.0
#: A session that says nothing for so long is ended by the server, by its clock.
SILENT_S = 7.0
#: lock_not_available: the queue was too long.
_NOT_AVAILABLE = "55P03"
#: A session that answers nothing is given up.
_ANSWER_S = 4.0
#: So long in the queue at a time: a statement that waits keeps old rows from being removed.
_QUEUE_S = 10.0
#: A lock that came while no caller asks for the lease any more is given back after so long.
_CLAIM_S = 1.0
#: The server's word that the lock is ours may be so much behind another's that it is free.
_WORD_S = 0.02
_KEY = "hashtextextended('cordata lease ' || $1, 0)"
_LOCK = f"SELECT pg_try_advisory_lock({_KEY}) AS locked"
_WAIT = f"SELECT pg_advisory_lock({_KEY})"
_UNLOCK = f"SELECT pg_advisory_unlock({_KEY})"
#: The last four end the session of a host that died while the server was speaking to it, or while
#: it waited in the queue.
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

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        runner: Runner,
        reader: Reader,
        schema: Schema,
        tasks: StoreTasks,
        *,
        holder: str,
        name: str,
    ) -> None:
        """`connect` makes a session of its own."""
        self._connect = connect
        self._runner = runner
        self._reader = reader
        self._schema = schema
        self._tasks = tasks
        self._holder = holder
        self._name = name
        #: The session, while the lock is waited for and while it is held.
        self._session: Connection | None = None
        self._locked = False
        self._fence: Fence | None = None
        #: Monotonic time until which the lock is ours without a further proof.
        self._deadline = 0.0
        #: Held while the state changes.
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
                await self._schema.bootstrap()
                taken: Fence = await self._runner.run_now(
                    lambda tx: take_term(tx, self._name, holder=self._holder)
                )
            except BaseException:
                await self._let_go()
                raise
            if not self.held:
                await self._let_go()
                raise cut("the lease was lost while it was taken")
            self._fence = taken
            return taken

    async def check(self) -> None:
        """As in Lease."""
        fence = self._fence
        if fence is None or not self.held:
            raise LeaseLost(
                f"the lease {self._name!r} is not held: the session with the database server was"
                " lost, or did not answer in time"
            )
        await self._reader.read(lambda tx: check_fence(tx, fence))

    async def release(self) -> None:
        """As in Lease."""
        async with self._busy:
            fence, held = self._fence, self.held
            try:
                if fence is not None and held:
                    await self._runner.run_now(lambda tx: end_term(tx, fence))
            except StoreUnavailable:
                pass  # the row is for people to read; the lock is what counts
            finally:
                await self._let_go()

    async def _lock(self) -> bool:
        """Get the lock if it is free; else wait in the queue for it from now on."""
        if self._background is not None and not self._background.done():
            try:  # it may have come with the word that made the caller ask
                async with asyncio.timeout(_WORD_S):
                    await self._came.wait()
            except TimeoutError:
                pass
            return self._locked
        if self._session is None or self._session.lost:
            self._session = await self._connect()
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
        self._background = self._tasks.start(self._attend(session))
        return bool(locked)

    async def _attend(self, session: Connection) -> None:
        """Wait in the queue until the lock is there, then keep it."""
        try:
            if not self._locked:
                await session.execute(_WAIT, (self._name,))
                self._deadline = trusted_until(await _prove(session))
                self._locked = True
                self._came.set()
            due = clock.monotonic() + _CLAIM_S
            while await self._unasked(CHECK_S):
                if not self._claimed.is_set() and clock.monotonic() >= due:
                    break  # the caller that waited has gone
                self._deadline = trusted_until(await _prove(session))
            else:
                return
        except ServerError as error:
            if error.fault.sqlstate == _NOT_AVAILABLE:
                return  # it waits in the queue again at the next try
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


def trusted_until(asked: float) -> float:
    """Until when a proof is good that was asked for at this moment, and that came."""
    return asked + TRUST_S


def is_trusted(deadline: float, now: float) -> bool:
    """Whether a holder may begin something in the lease's name; both by its own clock."""
    return now < deadline


async def _prove(session: Connection) -> float:
    """See that the session lives; the monotonic time when it was asked.

    By a mere Sync: a sign of life for the server, and no transaction.
    """
    async with asyncio.timeout(_ANSWER_S):
        sent = clock.monotonic()
        await session.sync()
    return sent
