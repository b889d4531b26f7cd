"""Group commit: units that were run with `batch=True` share transactions.

    run() -> queue -> reads of all, READ ONLY -> BEGIN, writes of all --counts right?--> COMMIT

How a unit leaves a batch:

    answered   with its result: after the reads if it wrote nothing, otherwise after COMMIT
    failed     with its exception, or because its time is up
    run alone  one of its statements failed, it cannot be batched, or the batch ended without a
               commit: it starts again in a transaction of its own (unit_runner.py)
    in doubt   the connection was lost during COMMIT: it is answered, run alone or failed when the
               outcome was looked up

While one batch is under way, and in a short pause after it, the next one gathers. The statements of
all units are sent together, so each arrow is one round trip; reads that follow each other need
more. All reads of a batch see one state, that before its writes. The writes keep their order within
a unit, but not among the units; rows that units insert into one table, or pass to one statement
with a `:row(...)`, are sent as one statement. The batch does not parse SQL: it takes `insert`,
`write` and `fetch_*`. A unit that calls `execute`, locks, reads after it wrote, or reads or writes
very often, is run alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextvars import copy_context
from typing import NamedTuple

from cordata.config.sections import StoreConfig
from cordata.errors import CordataError, PermanentError, StoreUnavailable
from cordata.log import frames, logger
from cordata.store.health import Busy
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError, closed_in_commit
from cordata.store.postgres.transaction import InDoubt, Transaction, find_outcome
from cordata.store.postgres.unit import Call, Request, UnitCoroutine, UnitTx
from cordata.store.postgres.unit_runner import GRACE_S, Entry, Resources, UnitRunner
from cordata.store.queries import Query
from cordata.store.tasks import own_error
from cordata.store.tx import MAX_BATCH, PUBLISH, without_published

log = logger("cordata.store")

#: Limit of the batches of one process that run at once.
_MAX_TASKS = 2
#: A second batch starts when at least this many units wait. A batch costs the server as much as
#: several units, so it is cheaper to let fewer units wait for the first batch. With 64 units of one
#: process under way, one batch at a time stored 0.7x as many units a second (median of three
#: rounds of `tests/bench/store_commit.py`).
_PLENTY = 24
#: After a batch of several units the next one begins later by half the time that this one took, but
#: by no more than this: the callers that were just answered come back, and their next units share a
#: batch with those that wait already. With 64 clients of four workers the batches become twice as
#: large, which saves an eighth of the processor time and gives an eighth more requests a second.
#: With 4 clients of one worker it saves a fifth, and the rate is a tenth lower.
_MAX_PAUSE_S = 0.002
#: The reads of a batch are run, and its writes sent, at most this many times, each time without the
#: units that failed; then the remaining units are run alone.
_MAX_ROUNDS = 8
#: Units with more reads one after the other, or more writes, are run alone: others would wait for
#: them.
_MAX_READS = 8
_MAX_WRITES = 100
#: Sizes of a merged INSERT in rows; each is a prepared statement. With every size up to 16, one
#: statement takes the rows of most batches, instead of up to four; this saves a fifth of the
#: server's time, and costs 2 MB of its memory for each connection.
_INSERT_SIZES = (64, 32, 24, *range(16, 1, -1), 1)


class _Member:
    """A unit in a batch."""

    __slots__ = ("coroutine", "entry", "request", "tx")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.coroutine: UnitCoroutine | None = None
        #: The request that it waits for; None: it has ended.
        self.request: Request | None = None
        self.tx: UnitTx

    def step(self, answer: object = None) -> None:
        """Run the unit to its next request. Raises: what the unit raised."""
        assert self.coroutine is not None
        self.entry.context.run(self.coroutine.step, answer)
        self.request = self.coroutine.request

    def close(self) -> None:
        """Stop the unit where it is."""
        if self.coroutine is not None:
            self.coroutine.close()
            self.coroutine = None

    def answer(self) -> None:
        """Give the caller what the unit returned."""
        assert self.coroutine is not None
        if not self.entry.result.done():
            self.entry.result.set_result(self.coroutine.value)


class _Statement(NamedTuple):
    """One statement of a batch, and the units that it is sent for."""

    query: Query
    sql: str
    args: Sequence[bytes | None]
    owners: Sequence[_Member]
    #: How many rows it has to change; None: any number.
    expected_rows: int | None = None


class Batcher:
    """The queue of batched units, and the tasks that run batches from it."""

    def __init__(self, resources: Resources, runner: UnitRunner, config: StoreConfig) -> None:
        self._resources = resources
        self._runner = runner
        self._timeout_s = config.write_timeout_s
        self._loop = asyncio.get_running_loop()
        #: The context at the start of the store, for its tasks: not that of a request, whose id
        #: would be in their log lines.
        self._context = copy_context()
        self._queue: deque[_Member] = deque()
        self._task_count = 0

    def start(self, entry: Entry) -> None:
        """Queue a unit for the next batch."""
        self._queue.append(_Member(entry))
        if not self._task_count or (self._task_count < _MAX_TASKS and len(self._queue) >= _PLENTY):
            self._start_task()

    def _start_task(self) -> None:
        self._task_count += 1
        self._resources.tasks.start(self._serve(), context=self._context.copy())

    async def _serve(self) -> None:
        """Run batches as long as units wait."""
        try:
            while self._queue:
                deadline = self._loop.time() + self._timeout_s + GRACE_S
                try:
                    connection = await self._resources.pool.acquire(deadline)
                except StoreUnavailable as error:
                    self._resources.health.failed(error)
                    for member in self._take():
                        member.entry.fail(own_error(error))
                    continue
                begun = self._loop.time()
                members = self._take()
                batch = _Batch(self._resources, self._runner, connection, self._timeout_s)
                await batch.run(members, deadline)
                if len(members) > 1:
                    await asyncio.sleep(min(_MAX_PAUSE_S, (self._loop.time() - begun) / 2))
        finally:
            self._task_count -= 1
            if self._queue and not self._task_count:  # after an exception
                self._start_task()

    def _take(self) -> list[_Member]:
        """The next batch: units whose callers still wait, and have not waited too long."""
        oldest = self._loop.time() - self._timeout_s
        taken: list[_Member] = []
        while self._queue and len(taken) < MAX_BATCH:
            member = self._queue.popleft()
            if member.entry.result.done():
                continue
            if member.entry.since < oldest:
                message = f"no commit within {self._timeout_s:g} s"
                member.entry.fail(Busy(message, retry_after_s=1.0))
            else:
                taken.append(member)
        return taken


class _Batch:
    """One batch on one connection, which it releases at its end."""

    def __init__(
        self,
        resources: Resources,
        runner: UnitRunner,
        connection: Connection,
        timeout_s: float,
    ) -> None:
        self._resources = resources
        self._runner = runner
        self._connection = connection
        self._timeout_s = timeout_s
        self._settings = resources.connector.settings
        #: The transaction under way.
        self._transaction = Transaction(connection, self._settings, "batch_read")
        #: Units that are still in the batch: without a result, and not running elsewhere.
        self._members: list[_Member] = []
        #: Whether some consumer group gets an event of this batch; else no consumer is woken.
        self._made_messages = False

    async def run(self, members: Sequence[_Member], deadline: float) -> None:
        """Run the batch, until each unit has left it in one of the ways above."""
        self._members = [*members]
        try:
            try:
                doubt = await self._run_transactions(deadline)
            finally:
                self._resources.pool.release(self._connection)
            if doubt is not None:
                await self._find_out(doubt, deadline)
        except BaseException as error:  # the end of the store, or a bug
            for member in self._members:
                member.entry.fail(self._interrupted(error))
            if not isinstance(error, Exception):
                raise
            where = frames(error.__traceback__)
            log.error("a batch ended with %s at %s", type(error).__name__, where)

    async def _run_transactions(self, deadline: float) -> InDoubt | None:
        """Run the reads, then the writes and COMMIT. Returns InDoubt if the outcome is unknown."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._run_until_writes()
                await self._write()
        except InDoubt as doubt:
            return doubt
        except ServerError:  # of BEGIN or COMMIT
            await self._connection.reset()
            self._run_alone(self._members)
        except ConnectionLost:
            self._resources.pool.close_idle()
            self._run_alone(self._members)
        except TimeoutError:
            self._connection.close()
            error = self._resources.overdue(self._transaction, self._timeout_s)
            for member in self._members:
                member.entry.fail(own_error(error))
        except BaseException:
            self._connection.close()
            raise
        return None

    async def _run_until_writes(self) -> None:
        """Run every unit to its end, and answer those that wrote nothing.

        Raises: ServerError, ConnectionLost.
        """
        for _ in range(_MAX_ROUNDS):
            failed = await self._run_units()
            if failed is None:
                break
            await self._connection.reset()
            self._transaction = Transaction(self._connection, self._settings, "batch_read")
            self._run_alone([failed])
        else:
            self._run_alone(self._members)
        for member in [m for m in self._members if not m.tx.deferred]:
            self._members.remove(member)
            member.answer()
            self._resources.committed(member.tx.topics, 0)
        if not self._members:
            await self._transaction.commit()

    async def _run_units(self) -> _Member | None:
        """Run the units from their beginnings to their ends. Returns one whose read failed, which
        ends the transaction of all.
        """
        now_us = self._resources.clock.now_us()
        for member in [*self._members]:
            entry = member.entry
            member.close()
            try:
                member.tx = UnitTx(self._resources.queries, now_us)
                member.coroutine = entry.context.run(UnitCoroutine, entry.unit, member.tx)
            except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
                self._fail(member, error)
            else:
                self._step(member)
        for _ in range(_MAX_READS):
            asking = [(one, one.request) for one in self._members if one.request is not None]
            if not asking:
                break
            for _, request in asking:
                (call,) = request.calls
                self._transaction.send(call.query.sql, call.args)
            try:
                results = await self._transaction.sync()
            except ServerError as error:
                if error.position < 0:
                    raise
                return asking[error.position][0]
            for (member, request), result in zip(asking, results, strict=True):
                self._step(member, request.answer((result,)))
        self._run_alone([member for member in self._members if member.request is not None])
        return None

    def _step(self, member: _Member, answer: object = None) -> None:
        """Run a unit to its next read, or to its end."""
        if member.entry.result.done():  # its caller went away
            member.close()
            self._members.remove(member)
            return
        try:
            member.step(answer)
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            self._fail(member, error)
            return
        request, deferred = member.request, member.tx.deferred
        # A read after a write must see that write, but a batch sends the reads of all units first.
        can_continue = request is None or (
            not deferred and request.wants == "rows" and request.calls[0].query.reads
        )
        if not can_continue or len(deferred) > _MAX_WRITES:
            self._run_alone([member])

    def _fail(self, member: _Member, error: BaseException) -> None:
        """Pass the exception of a unit to its caller; none of its writes was sent."""
        self._members.remove(member)
        member.entry.fail(error)

    async def _write(self) -> None:
        """Send the writes and COMMIT, again and again without the units that failed.

        Raises: InDoubt, ServerError, ConnectionLost.
        """
        reads: Transaction | None = self._transaction
        merge = True
        for _ in range(_MAX_ROUNDS):
            self._members = [m for m in self._members if not m.entry.result.done()]
            if not self._members:
                await self._connection.reset()
                return
            transaction = self._transaction = Transaction(self._connection, self._settings, "batch")
            if reads is not None:
                transaction.commit_first(reads)
            failed = await self._send(transaction, arrange(self._members, merge=merge))
            if not failed:
                self._answer_all()
                return
            await self._connection.reset()
            # A failed merged statement does not say which unit failed: send all again, unmerged.
            if all(len(statement.owners) == 1 for statement in failed):
                self._run_alone(dict.fromkeys(statement.owners[0] for statement in failed))
            reads = None  # they are over
            merge = False
        self._run_alone(self._members)

    async def _send(
        self, transaction: Transaction, statements: Sequence[_Statement]
    ) -> list[_Statement]:
        """Send statements and COMMIT. Returns those that failed; then nothing was committed.

        Raises: InDoubt, ConnectionLost; ServerError if it was none of the statements.
        """
        for statement in statements:
            transaction.send(statement.sql, statement.args)
        try:
            results = await transaction.sync()
            failed = [  # they changed another number of rows than their `rows=` says
                statement
                for statement, result in zip(statements, results, strict=True)
                if statement.expected_rows not in (None, result.count)
            ]
            if not failed:
                self._made_messages = any(
                    result.count
                    for statement, result in zip(statements, results, strict=True)
                    if statement.query.name == PUBLISH
                )
                await transaction.commit()
            return failed
        except ServerError as error:
            if not 0 <= error.position < len(statements):
                raise
            return [statements[error.position]]

    def _answer_all(self) -> None:
        """Answer all units that are left: the batch is on disk."""
        members, self._members = self._members, []
        topics = set[str]()
        for member in members:
            topics |= member.tx.topics
            member.answer()
        if not self._made_messages:
            topics = without_published(topics)
        self._resources.health.succeeded(self._transaction.commit_s)
        self._resources.committed(topics, len(members))

    async def _find_out(self, doubt: InDoubt, deadline: float) -> None:
        """Find out whether the batch was committed after its connection was lost."""
        try:
            if await find_outcome(doubt, self._resources.pool, deadline):
                self._answer_all()
            else:
                self._run_alone(self._members)
        except StoreUnavailable as error:
            self._resources.health.failed(error)
            for member in self._members:
                member.entry.fail(own_error(error))

    def _run_alone(self, members: Iterable[_Member]) -> None:
        """Remove units from the batch, and run each again in a transaction of its own."""
        for member in [*members]:
            self._members.remove(member)
            member.close()
            if not member.entry.result.done():
                self._runner.start(member.entry)

    def _interrupted(self, error: BaseException) -> CordataError:
        if self._transaction.commit_sent:
            return closed_in_commit()
        if isinstance(error, asyncio.CancelledError):
            return StoreUnavailable("the store is closed")
        return PermanentError("the unit's batch was interrupted")


def arrange(members: Sequence[_Member], *, merge: bool) -> list[_Statement]:
    """The writes of these units in the order of sending; `merge`: rows for one table together.

    Units are sorted by their first statement that is not merged, so that batches of two processes
    that change the same rows usually lock them in the same order.
    """
    waiting = [(member, deque(member.tx.deferred)) for member in sorted(members, key=_lock_order)]
    found: list[_Statement] = []
    while waiting:
        for member, calls in waiting:
            while calls and not (merge and calls[0].query.around_row):
                call = calls.popleft()
                found.append(
                    _Statement(call.query, call.query.sql, call.args, (member,), call.rows)
                )
        waiting = [one for one in waiting if one[1]]
        if waiting:
            # The unit with the most calls first: its extra calls come before those that it shares
            # with the others, which can then be merged.
            longest = max(waiting, key=lambda one: len(one[1]))
            found += _merged(longest[1][0], waiting)
    return found


def _merged(like: Call, waiting: Sequence[tuple[_Member, deque[Call]]]) -> list[_Statement]:
    """The statements for rows of the same query that come next in their units.

    Rows with `rows=` are not merged with rows without: a statement returns only the sum.
    """
    query, counted = like.query, like.rows is not None
    rows: list[tuple[_Member, Call]] = []
    for member, calls in waiting:
        while calls and calls[0].query is query and (calls[0].rows is not None) is counted:
            rows.append((member, calls.popleft()))
    found: list[_Statement] = []
    begin = 0
    for size in _INSERT_SIZES:
        while len(rows) - begin >= size:
            chunk = rows[begin : begin + size]
            args = [value for _, call in chunk for value in call.args]
            owners = list(dict.fromkeys(member for member, _ in chunk))
            sql = query.sql if size == 1 else query.sql_for_rows(size)
            changed = sum(call.rows or 0 for _, call in chunk) if counted else None
            found.append(_Statement(query, sql, args, owners, changed))
            begin += size
    return found


def _lock_order(member: _Member) -> tuple[str, list[bytes]]:
    for call in member.tx.deferred:
        if not call.query.around_row:
            return call.query.name, [value or b"" for value in call.args]
    return "", []
