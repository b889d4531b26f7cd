"""While the store takes no writes, tries one now and then, so that it heals without traffic."""

from __future__ import annotations

import asyncio

from cordata.errors import PermanentError, StoreUnavailable
from cordata.store.health import OnState
from cordata.store.postgres.alone import Again, Parts, tell
from cordata.store.postgres.fault import ConnectionLost, ServerError, lost
from cordata.store.postgres.unit import UnitTx

#: Needs what a unit needs: a server that takes writes, and room for a table to grow (256 KiB of
#: it). A temporary one that is rolled back again leaves nothing behind.
_WRITE = (
    "CREATE TEMPORARY TABLE cordata_probe ON COMMIT DROP AS"
    " SELECT repeat('x', 1000) AS filler FROM generate_series(1, 256)"
)
_LIMIT_S = 5.0


class Prober:
    """Probes while the state is not "ok"."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        #: Called with state and reason at each change.
        self.on_state: OnState | None = None

    def state_changed(self, state: str, reason: str) -> None:
        """Called at each change; starts the attempts."""
        if state != "ok":
            self._arm()
        if self.on_state is not None:
            self.on_state(state, reason)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._parts.health.pause_s, self._again)

    def _again(self) -> None:
        self._timer = None
        if self._parts.health.state == "ok":
            return
        self._arm()
        if not self._busy:
            self._busy = True
            self._parts.crew.start(self._probe())

    async def _probe(self) -> None:
        parts = self._parts
        deadline = self._loop.time() + _LIMIT_S
        tx = UnitTx(parts.queries, 0)
        try:
            async with parts.pool.connection(deadline) as connection:
                transaction = parts.begin(connection)
                try:
                    async with asyncio.timeout_at(deadline):
                        transaction.send(_WRITE)
                        await transaction.sync()
                except TimeoutError:
                    connection.close()
                    raise lost(f"no answer within {_LIMIT_S:g} s") from None
                finally:
                    await transaction.roll_back()
        except (StoreUnavailable, ConnectionLost, ServerError) as error:
            told = tell(error, tx, parts)
            if isinstance(told, Again):
                told = told.error
            if not isinstance(told, PermanentError):  # no right to make such a table, say
                parts.failed(told)
                return
        finally:
            self._busy = False
        parts.health.succeeded()

    def stop(self) -> None:
        """No more attempts."""
        if self._timer is not None:
            self._timer.cancel()
