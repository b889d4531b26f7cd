"""A transaction that many units share: what differs from that of one.

    BEGIN + limits + id + reads --sync--> ... --sync--> ... last writes + COMMIT --sync--> committed

Its id is asked for at once, not with the first write: so COMMIT travels with the last writes, and a
connection that is lost then still leaves no doubt. And it waits for nothing for long, neither for a
lock nor for a slow statement: what one unit waits for, its neighbours would wait for as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordata.store.postgres.fault import ServerError
from cordata.store.postgres.result import Result, encode
from cordata.store.postgres.transaction import KEEP, Transaction, to_ms

#: Long enough for the commits of other batches that lock the same rows, on a busy machine, too.
_LOCK_TIMEOUT = "250"
#: The statements that belong here take a hundredth of it.
_STATEMENT_S = 1.0
#: Planning would cost more than all the rest, and so would that of each foreign key's check.
_OPEN = (
    "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),"
    f" {KEEP}, pg_current_xact_id()::text AS xid"
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
            self._ahead = self._prologue.begin(self.connection, self._kind, limited=False) + 1
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
