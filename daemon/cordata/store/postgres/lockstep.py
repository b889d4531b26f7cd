"""Many units in one transaction, in lockstep.

    all start -> reads of all -> ... -> reads of all -> writes of all -> ... -> rest + COMMIT

Each arrow is one round trip: what the units wait for is sent together. All reads come before all
writes, so every unit sees the state before the batch, and none sees half of what another one does.
Then the writes, in an order that makes the outcome that of the units one by one (`order.py`). A
unit that does not fit in (it reads after it wrote, changes a table that it read, or locks) leaves
the batch; when its writes were
already sent and changed something, the batch is rolled back and runs again without it. Of units
that add the same row the first one stays, the others wait for the next batch, which sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cordata.errors import CordataError, StatementError
from cordata.store.postgres.book import Book
from cordata.store.postgres.entry import Entry
from cordata.store.postgres.fault import Fault, ServerError
from cordata.store.postgres.group import find_unfit, may_have_changed, rivals, shares_of, standing
from cordata.store.postgres.order import Order, Orders, crossing
from cordata.store.postgres.packet import Packet, Untold, packets_of
from cordata.store.postgres.share import Share
from cordata.store.postgres.shared import SharedTransaction
from cordata.store.postgres.statement import WRITES, Kind
from cordata.store.postgres.unit import Call, unsendable
from cordata.store.queries import Queries, Query

_READS = (Kind.READ, Kind.SHARE)
#: A unit that reads more often, one after the other, runs alone: its neighbours wait for it.
_ROUNDS = 8
#: A unit with more statements at once runs alone, for the same reason.
_STATEMENTS = 100


class Broken(Exception):
    """The transaction is of no use any more; its units run again, `alone` those that broke it."""

    def __init__(
        self, alone: Iterable[Entry] = (), fault: Fault | None = None, *, isolation: bool = False
    ) -> None:
        """`fault`: what the server said, if that is why; `isolation`: it has to be another one."""
        super().__init__()
        self.isolation = isolation
        self.alone = list(alone)
        self.fault = fault


class Lockstep:
    """One shared transaction and its units."""

    def __init__(
        self,
        transaction: SharedTransaction,
        queries: Queries,
        book: Book,
        orders: Orders,
        *,
        merge: bool = True,
    ) -> None:
        """`merge`: whether statements may be merged; if not, an error tells whose it was."""
        self._transaction = transaction
        self._queries = queries
        self._book = book
        self._orders = orders
        self._merge = merge
        #: Units that have to run alone; they have changed nothing here.
        self.alone: list[Entry] = []
        #: Units that have to run in a later batch; they have changed nothing here.
        self.later: list[Entry] = []
        #: Units that wait for the COMMIT.
        self.written: list[Entry] = []
        #: Units that ended without it.
        self.answered = 0
        self._reading: list[Entry] = []
        self._writing: list[Entry] = []
        self._ranks = 0
        self._past: list[tuple[Order, list[list[Share]], list[int]]] = []

    def start(self, entries: Sequence[Entry], now_us: int) -> None:
        """Take every unit to its first statement."""
        for entry in entries:
            try:
                entry.begin(self._queries, now_us)
            except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
                self._end(entry, error)
            else:
                self._step(entry, None)

    async def run(self) -> None:
        """Take every unit to its end. Raises: Broken, ConnectionLost."""
        rounds = 0
        while self._reading or self._writing:
            if not self._reading:
                await self._write()
            elif rounds < _ROUNDS:
                rounds += 1
                await self._read()
            else:
                reading, self._reading = self._reading, []
                for entry in reading:
                    self._leave(entry)

    async def commit(self) -> None:
        """Send what is left, and commit. Raises: Broken, ConnectionLost, InDoubt."""
        packets: list[Packet] = []
        group: list[Entry] = []
        rest = [entry for entry in self.written if entry.tx.deferred]
        if rest:
            group, packets, _ = self._prepare(rest)
        for packet in packets:
            packet.send(self._transaction)
        try:
            await self._transaction.commit()
        except ServerError as error:
            raise self._broken(error, packets, group) from None

    def _step(self, entry: Entry, answer: object) -> None:
        """Take a unit to its next statement, or its end. Raises: Broken."""
        try:
            entry.step(answer)
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            self._end(entry, error)
            return
        ask, tx = entry.ask, entry.tx
        calls = [*tx.deferred, *(ask.calls if ask else ())]
        if len(calls) > _STATEMENTS or self._changes_what_it_read(entry, calls):
            self._leave(entry)
            return
        if ask is None:
            self.written.append(entry)  # one that only read is answered after the COMMIT, too
            return
        kind = self._book[ask.calls[0].query].kind
        if kind in WRITES:
            self._writing.append(entry)
        elif kind in _READS and entry.rank < 0 and not tx.deferred:
            entry.read |= self._book[ask.calls[0].query].sees
            self._reading.append(entry)
        else:
            self._leave(entry)

    def _changes_what_it_read(self, entry: Entry, calls: Sequence[Call]) -> bool:
        """Whether it changes rows of a table that it read: a neighbour may change them first."""
        if not entry.read:
            return False
        statements = [self._book[call.query] for call in calls]
        return any(s.kind is Kind.CHANGE and s.table in entry.read for s in statements)

    def _end(self, entry: Entry, error: BaseException) -> None:
        """A unit has ended with an error. Raises: Broken when it changed something."""
        if entry.changed:
            raise Broken([entry])
        if entry.rank < 0:
            entry.fail(error)
            self.answered += 1
            return
        # Its writes met rows that were there; a neighbour may have added them, who may yet fail.
        entry.error, entry.tx.deferred = error, []
        self.written.append(entry)

    def _leave(self, entry: Entry) -> None:
        """Leave a unit to run alone. Raises: Broken when it changed something."""
        entry.close()
        if entry.changed:
            raise Broken([entry])
        self._withdraw(entry)
        self.alone.append(entry)

    def _withdraw(self, entry: Entry) -> None:
        if entry in self.written:  # its writes wait for the COMMIT, and turn out not to fit in
            self.written.remove(entry)

    async def _read(self) -> None:
        group, self._reading = sorted(self._reading, key=standing), []
        while True:
            units = [shares_of(u, entry) for u, entry in enumerate(group)]
            by_query: dict[Query, list[Share]] = {}
            for shares in units:
                for share in shares:
                    by_query.setdefault(share.query, []).append(share)
            try:
                packets = packets_of(by_query.values(), self._book, merge=self._merge)
                break
            except CordataError as error:
                self._drop_unfit(group, units, error)
        await self._exchange(packets, group)
        self._go_on(group, units)

    async def _write(self) -> None:
        writing, self._writing = self._writing, []
        group, packets, units = self._prepare(writing)
        await self._exchange(packets, group)
        for entry in group:
            entry.tx.deferred = []
        self._go_on(group, units)

    async def _exchange(self, packets: Sequence[Packet], group: Sequence[Entry]) -> None:
        """Send statements, and give out the results."""
        if not packets:
            return
        for packet in packets:
            packet.send(self._transaction)
        try:
            results = await self._transaction.sync()
        except ServerError as error:
            raise self._broken(error, packets, group) from None
        for packet, result in zip(packets, results, strict=True):
            try:
                packet.receive(result)
            except Untold:
                self._book.forget(packet.shares[0].query)
                raise Broken from None

    def _go_on(self, group: Sequence[Entry], units: Sequence[Sequence[Share]]) -> None:
        for entry, shares in zip(group, units, strict=True):
            assert entry.ask is not None
            if entry.rank < 0 and entry.future.done():  # its caller went away
                entry.close()
                self.answered += 1
                continue
            if entry.rank >= 0:
                entry.changed = entry.changed or may_have_changed(shares, self._book)
            if entry.ask.wants == "rows":
                self._step(entry, shares[-1].rows)
            else:
                self._step(entry, sum([share.count for share in shares if share.wants]))

    def _prepare(
        self, entries: Sequence[Entry]
    ) -> tuple[list[Entry], list[Packet], list[list[Share]]]:
        """The writes of these units, ready to be sent; without those that turn out not to fit in.

        Raises: Broken.
        """
        group = sorted(entries, key=standing)
        while True:
            units = [shares_of(u, entry) for u, entry in enumerate(group)]
            order = self._orders.of(units)
            if order.banned:
                for entry in [group[u] for u, shares in enumerate(units) if order.bans(shares)]:
                    group.remove(entry)
                    self._leave(entry)
                continue
            fixed = sum(entry.rank >= 0 for entry in group)
            if late := rivals(units, self._book, fixed):
                for entry in [group[u] for u in late]:
                    group.remove(entry)
                    entry.close()
                    self._withdraw(entry)
                    self.later.append(entry)
                continue
            try:
                runs, sequence = order.arrange(units, fixed)
                packets = packets_of(runs, self._book, merge=self._merge)
            except CordataError as error:
                self._drop_unfit(group, units, error)
                continue
            self._rank(order, group, units, sequence)
            return group, packets, units

    def _drop_unfit(
        self, group: list[Entry], units: Sequence[Sequence[Share]], error: CordataError
    ) -> None:
        """Fail the unit with the value that cannot be sent. Raises: Broken when it wrote."""
        index = find_unfit(units)
        entry = group.pop(index)
        error = StatementError(f"{unsendable(units[index])}: {error}")
        if entry.ask is not None and not entry.tx.deferred:
            self._step(entry, error)
        elif entry.rank >= 0:
            raise Broken([entry])
        else:
            entry.close()
            self._withdraw(entry)
            self._end(entry, error)

    def _broken(
        self, error: ServerError, packets: Sequence[Packet], group: Sequence[Entry]
    ) -> Broken:
        """Whose statement failed, if that is known."""
        if not 0 <= error.position < len(packets):
            return Broken(fault=error.fault)
        packet = packets[error.position]
        units = {share.unit for share in packet.shares}
        if len(units) == 1:
            return Broken([group[u] for u in units], error.fault)
        if error.fault.sqlstate[:2] == "42":  # the schema has changed since it was learned
            self._book.forget(packet.shares[0].query)
        return Broken(fault=error.fault)

    def _rank(
        self,
        order: Order,
        group: Sequence[Entry],
        units: list[list[Share]],
        sequence: Sequence[int],
    ) -> None:
        """Give ranks to those that write for the first time. Raises: Broken."""
        ranks = [entry.rank for entry in group]
        for before, before_units, before_ranks in self._past:
            if found := crossing(before, before_units, before_ranks, order, units, ranks):
                raise Broken([group[u] for u in sorted(found)])
        for u in sequence:
            if group[u].rank < 0:
                group[u].rank = self._ranks
                self._ranks += 1
        self._past.append((order, units, [entry.rank for entry in group]))
