"""The lease of the primary: an advisory lock that ends with its session, and a term that remains.

    holder      proves its session every second; has the lease for 5 s after it sent the last
                successful proof
    server      ends a session that sends nothing for 7 s, and its lock with it
    standby     looks several times a second whether the lock is free

    clock of the holder   sent ──────────────5 s─────────────> the lease has ended
    clock of the server      received ─────────────7 s────────────────> ends the session, its lock
                             (later than `sent`)

A proof is one exchange with the server on the session (`_prove`); `check` is another thing: it
looks at the term in the store. The holder counts from the time it *sent* its last successful proof,
the server from the time it *received* that, which is later. So a holder that is disconnected or
suspended stops two seconds before another can begin, however slow the network is and however
different the two clocks are. (A proxy that answers for a dead host deceives keepalives, but not
this proof.) The two seconds allow
for clocks of different speed, and for work that the holder has begun. A write that arrives later is
refused because of its term.

    nothing --try_acquire--> locked --term taken--> held --lost, released--> nothing
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
from cordata.store.postgres.fault import ConnectionLost, ServerError, connection_lost
from cordata.store.postgres.reader import Reader
from cordata.store.postgres.unit_runner import UnitRunner
from cordata.store.tasks import StoreTasks

#: Pause between the proofs of a holder.
PROVE_S = 1.0
#: How long one proof is valid, by the monotonic clock of the holder.
TRUST_S = 5.0
#: The server ends a session that sends nothing for this long, by the server's clock.
SILENT_S = 7.0
#: Limit of one answer; then the session is closed.
_ANSWER_S = 4.0
_KEY = "hashtextextended('cordata lease primary', 0)"
_LOCK = f"SELECT pg_try_advisory_lock({_KEY}) AS locked"
_UNLOCK = f"SELECT pg_advisory_unlock({_KEY})"
#: The last four end the session of a host that died while the server was sending to it.
_WATCHED = (
    f"SELECT set_config('idle_session_timeout', '{SILENT_S * 1000:.0f}', false),"
    f" set_config('tcp_user_timeout', '{SILENT_S * 1000:.0f}', false),"
    " set_config('tcp_keepalives_idle', '3', false),"
    " set_config('tcp_keepalives_interval', '2', false),"
    " set_config('tcp_keepalives_count', '2', false),"
    " set_config('client_connection_check_interval', '2s', false)"
)


class SessionLease(Lease):
    """Held while this process's session has the lock and its last proof is valid."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        runner: UnitRunner,
        reader: Reader,
        schema: Schema,
        tasks: StoreTasks,
        *,
        holder: str,
    ) -> None:
        """`connect` makes a session for this lease."""
        self._connect = connect
        self._runner = runner
        self._reader = reader
        self._schema = schema
        self._tasks = tasks
        self._holder = holder
        #: The session that has the lock, or asks for it.
        self._session: Connection | None = None
        self._locked = False
        self._fence: Fence | None = None
        #: Monotonic time until which the last proof is valid.
        self._deadline = 0.0
        #: Held while the state changes.
        self._busy = asyncio.Lock()
        #: Sends the proofs while the lock is held, until `_stop` is set.
        self._proving: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()

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

    async def try_acquire(self) -> Fence | None:
        """As in Lease."""
        async with self._busy:
            if self.held and self._fence is not None:
                return self._fence
            if self._fence is not None or (self._locked and not self.held):
                await self._let_go()
            if not self._locked and not await self._lock():
                return None
            try:
                await self._schema.bootstrap()
                taken: Fence = await self._runner.run_now(
                    lambda tx: take_term(tx, holder=self._holder)
                )
            except BaseException:
                await self._let_go()
                raise
            if not self.held:
                await self._let_go()
                raise connection_lost(
                    "the session of the lease was lost or silent while the lease was taken"
                )
            self._fence = taken
            return taken

    async def check(self) -> None:
        """As in Lease."""
        fence = self._fence
        if fence is None or not self.held:
            raise LeaseLost(
                "the lease of the primary is not held: the session with the database server was"
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
        """Take the lock, if it is free."""
        session, statements = self._session, [_LOCK]
        if session is None or session.lost:
            session = self._session = await self._connect()
            statements = [_WATCHED, _LOCK]
        try:
            async with asyncio.timeout(_ANSWER_S):
                sent = clock.monotonic()
                for statement in statements:
                    session.send(statement)
                self._locked = (await session.sync())[-1].rows()[0]["locked"]
        except (TimeoutError, ConnectionLost, ServerError) as error:
            session.close()
            raise connection_lost(f"the lease's session: {error or 'no answer'}") from None
        except BaseException:
            session.close()
            raise
        if self._locked:
            self._deadline = trusted_until(sent)
            self._stop.clear()
            self._proving = self._tasks.start(self._keep_proving(session))
        return self._locked

    async def _keep_proving(self, session: Connection) -> None:
        """Prove the session until the stop; close it when that fails."""
        try:
            while not await self._is_stopped():
                self._deadline = trusted_until(await _prove(session))
        except (TimeoutError, ConnectionLost, ServerError):
            session.close()

    async def _is_stopped(self) -> bool:
        """Wait for the stop; False after PROVE_S."""
        try:
            async with asyncio.timeout(PROVE_S):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def _let_go(self) -> None:
        """Unlock and close the session. If that fails, the server unlocks at the session's end."""
        locked, self._locked, self._fence = self._locked, False, None
        self._stop.set()
        proving, self._proving = self._proving, None
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if proving is not None:
                await proving
            if locked:
                async with asyncio.timeout(_ANSWER_S):
                    await session.execute(_UNLOCK)
        except (TimeoutError, ConnectionLost, ServerError):
            pass
        finally:
            session.close()


def trusted_until(asked: float) -> float:
    """Until when a successful proof is valid that was sent at `asked` (monotonic)."""
    return asked + TRUST_S


def is_trusted(deadline: float, now: float) -> bool:
    """Whether the holder may still begin something as the primary; both are monotonic times."""
    return now < deadline


async def _prove(session: Connection) -> float:
    """Prove that the session is alive. Returns the monotonic time of sending.

    Sends only a Sync: the server counts it as activity, and it needs no transaction.
    """
    async with asyncio.timeout(_ANSWER_S):
        sent = clock.monotonic()
        await session.sync()
    return sent
