"""A unit that shares its transaction with nobody, because nobody else was waiting.

It may do whatever it likes in any order; what it fails with is its own, at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from cordata.errors import CordataError
from cordata.store.postgres.alone import Parts, answer
from cordata.store.postgres.entry import Entry
from cordata.store.postgres.fault import ConnectionLost, Fault, ServerError
from cordata.store.postgres.lockstep import Broken
from cordata.store.postgres.shared import SharedTransaction
from cordata.store.postgres.unit import unsendable


class Single:
    """One unit and its transaction; to be used as a Lockstep is."""

    def __init__(self, transaction: SharedTransaction, parts: Parts, *, snapshot: bool) -> None:
        """`snapshot`: the transaction sees one; else the newest state."""
        self._snapshot = snapshot
        self._transaction = transaction
        self._parts = parts
        self._entry: Entry
        self._now_us = 0
        self.alone: list[Entry] = []
        self.later: list[Entry] = []
        #: The unit, once it waits for the COMMIT.
        self.written: list[Entry] = []
        #: 1 when it ended without it.
        self.answered = 0

    def start(self, entries: Sequence[Entry], now_us: int) -> None:
        """Take the only unit."""
        (self._entry,) = entries
        self._entry.course = None
        self._now_us = now_us

    async def run(self) -> None:
        """Take the unit to its end. Raises: Broken, ConnectionLost."""
        entry = self._entry
        error = self._step(None)
        while error is None and entry.ask is not None:
            if self._snapshot and entry.tx.newest:
                self._run_otherwise()
            error = self._step(await answer(self._transaction, entry.tx, entry.ask))
        if error is not None:
            await self._fail(error)
        else:
            self.written.append(entry)

    def _step(self, answer: object) -> BaseException | None:
        """Go on with the unit; what it raised."""
        try:
            if self._entry.course is None:
                self._entry.begin(self._parts.queries, self._now_us)
            self._entry.step(answer)
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            return error
        return None

    async def commit(self) -> None:
        """Send what is left, and commit. Raises: Broken, ConnectionLost, InDoubt."""
        if self._entry.future.done() and self.written:  # its caller went away
            self.written.clear()
            self.answered = 1
            await self._transaction.roll_back()
            return
        if self.written and self._entry.tx.newest == self._snapshot:
            self._run_otherwise()
        calls = self._entry.tx.deferred if self.written else []
        try:
            for query, args in calls:
                self._transaction.send(query.sql, args)
            await self._transaction.commit()
        except (ServerError, CordataError) as error:
            self.written.clear()
            position = error.position if isinstance(error, ServerError) else -1
            known = 0 <= position < len(calls)
            name = calls[position].query.name if known else unsendable(calls) or "COMMIT"
            await self._fail(self._entry.tx.fail(error, name))

    def _run_otherwise(self) -> NoReturn:
        """Have it run in the other isolation. Raises: Broken."""
        self._entry.close()
        self._parts.learn_newest(self._entry.unit, self._snapshot)
        raise Broken([self._entry], isolation=True)

    async def _fail(self, error: BaseException) -> None:
        """Undo it, and tell the caller. Raises: Broken when it may simply run again."""
        entry, cause = self._entry, self._entry.tx.cause
        entry.close()
        if error is entry.tx.failed:
            if isinstance(cause, ConnectionLost):
                raise cause
            if cause is not None and _may_run_alone(cause.fault):
                entry.lost_race = cause.fault.lost_race
                raise Broken([entry], cause.fault)
        await self._transaction.roll_back()
        self._parts.failed(error)
        self.answered = 1
        entry.fail(error)


def _may_run_alone(fault: Fault) -> bool:
    """Whether another run in a transaction of its own, which has more time, may succeed."""
    again = fault.again or fault.lost_race
    return again or fault.slow or fault.read_only or fault.session_ended
