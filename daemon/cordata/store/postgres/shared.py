"""A transaction that many units share: what differs from that of one.

    BEGIN + limits + id + reads --sync--> ... --sync--> ... last writes + COMMIT --sync--> committed

Its id is asked for at once, not with the first write: so COMMIT travels with the last writes, and a
connection that is lost then still leaves no doubt. And it waits for nothing for long, neither for a
lock nor for a slow statement: what one unit waits for, its neighbours would wait for as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordata.store.postgres.fault import ConnectionLost, ServerError
from cordata.store.postgres.result import Result, encode
from cordata.store.postgres.transaction import REFUSED, InDoubt, Transaction, to_ms

#: Long enough for the commits of other batches that lock the same rows, on a busy machine, too.
_LOCK_TIMEOUT = "250"
#: The statements that belong here take a hundredth of it.
_STATEMENT_S = 1.0
#: Plans are kept here, unlike elsewhere: planning would cost more than all the rest, and so would
#: that of each foreign key's check. So that none is kept which reads a table through because it was
#: small, reading through is the last resort (whose price must not look like one worth compiling).
_OPEN = (
    "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),"
    " set_config('plan_cache_mode', 'auto', true),"
    " set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),"
    " pg_current_xact_id()::text AS xid"
)


class SharedTransaction(Transaction):
    """A transaction on a connection that is idle when it begins and when it has ended well."""

    def send(self, sql: str, args: Sequence[object] = (), *, writes: bool = False) -> None:
        """As in Transaction."""
        self.send_encoded(sql, [encode(value) for value in args])

    def send_encoded(
        self, sql: str, values: Sequence[bytes | None], formats: Sequence[int] | None = None
    ) -> None:
        """As `Connection.send_encoded`."""
        if not self._begun:
            self._begun = True
            self._ahead = self._prologue.begin(self.connection, "write", limited=False) + 1
            limit_s = min(_STATEMENT_S, self._prologue.write_s)
            self.connection.send(_OPEN, (_LOCK_TIMEOUT, to_ms(limit_s)))
        self.connection.send_encoded(sql, values, formats)
        self._queued += 1

    async def sync(self) -> list[Result]:
        """As in Transaction."""
        ahead, self._ahead = self._ahead, 0
        self._queued = 0
        try:
            results = await self.connection.sync()
        except ServerError as error:
            raise ServerError(error.fault, error.position - ahead) from None
        if ahead:
            self._xid = results[ahead - 1].rows()[0]["xid"]
            return results[ahead:]
        return results

    async def commit(self) -> None:
        """As in Transaction; what was sent since the last sync goes with it.

        Raises: InDoubt; ServerError with the position of what failed; ConnectionLost.
        """
        if not self._begun:
            return
        if not self._xid:
            await self.sync()
        last = self._queued
        self.connection.send("COMMIT")
        self.ending = True
        try:
            await self.connection.sync()
        except ConnectionLost:
            raise InDoubt(self._xid, self.connection.history) from None
        except ServerError as error:
            if error.position == last and error.fault.sqlstate[:2] not in REFUSED:
                raise InDoubt(self._xid, self.connection.history) from None
            raise
