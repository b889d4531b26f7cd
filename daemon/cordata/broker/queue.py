"""The queue on the store: claim and settle are units on `message`; Tx.publish() adds to it.

A message is one row until its group has handled it; core/message_state.py has its states. Each
claim has a new number, and a statement changes or deletes the row only if it names this number. So
a process that was wrongly regarded as dead cannot settle messages that another process has claimed
since.

Messages of a dead process are `suspect`: one of them may have killed it. Suspects are claimed one
at a time, by processes without other messages, so that only the one that kills processes becomes a
dead letter. While a suspect of its groups waits, a process that has other messages claims nothing,
so that it has none soon; after 5 s it may claim the suspect beside them (services/consumer.py).
"""

from __future__ import annotations

import asyncio
import heapq
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from cordata import events
from cordata.broker.contract import Broker
from cordata.broker.group import RELAY
from cordata.broker.message import Claimed, ClaimLimits, Message, MessageId, Outcome
from cordata.core.message_state import DIED, Failure, Verdict, add_failure, after_failure
from cordata.core.retry import Backoff
from cordata.log import fields, logger
from cordata.store import CLAIMABLE_TOPIC, Row, Store, Tx, published_topic, watch

log = logger("cordata.engine")

#: Scheduled messages that one unit makes ready at most.
_PROMOTED = 500
#: The defaults of [engine] retry_first_s and retry_max_s.
_BACKOFF = Backoff(1.0, 300.0)
#: Below and beyond every position of a message; the lowest and highest priority.
_FIRST, _LAST = -1, 2**63 - 1
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


class Queue(Broker):
    """The queue of one process, on the store's tables."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str,
        retries: Mapping[str, int],
        keyed: Collection[str] = (),
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """`retries`: of each group that this process knows. `keyed`: groups with ordered keys."""
        self._store = store
        self._owner = owner
        self._retries = retries
        self._keyed = frozenset(keyed)
        self._backoff = backoff
        #: Keyed group -> the key at which the last claim ended.
        self._cursors: dict[str, str] = {}
        #: When messages are due again that this process retries or defers (a heap).
        self._due: list[int] = []
        #: What `_read_next` found last: when the next scheduled message is due, and whether there
        #: are suspects.
        self._next_at: int | None = None
        self._suspects = False
        #: Claims of this process in the store that it did not know of at the last renewal.
        self._unknown: frozenset[tuple[str, str, int]] = frozenset()

    async def listen(
        self, groups: Mapping[str, str], wake: Callable[[], None], look: Callable[[], None]
    ) -> None:
        """As in Broker; without groups: only when messages are given back."""
        async with asyncio.TaskGroup() as tasks:
            for topic in (CLAIMABLE_TOPIC, *map(published_topic, set(groups.values()))):
                tasks.create_task(watch(self._store, topic, wake))

    async def settle_and_claim(
        self, outcomes: Sequence[Outcome], limits: ClaimLimits, *, suspect_allowed: bool = False
    ) -> Claimed:
        """As in Broker: one unit, so that results and the next claim share a commit."""
        wanted = bool(limits)
        if not outcomes and self._store.dialect == "sqlite":
            limits = await self._only_claimable(limits)
        if not outcomes and not limits:
            next_at = self._first_due() if wanted else None
            return Claimed(messages=(), next_at=next_at, suspects=self._suspects)
        cursors: dict[str, str] = {}

        async def unit(tx: Tx) -> tuple[Sequence[Row], frozenset[str]]:
            cursors.clear()
            await self._settle(tx, outcomes)
            if not limits:
                return (), frozenset()
            claim = random.getrandbits(62) + 1
            promoted = 0
            if self._is_due(tx.now_us):
                promoted = await tx.execute("queue.promote", now_us=tx.now_us, limit=_PROMOTED)
            if self._suspects:
                await self._read_next(tx, limits)  # another process may have taken them
            if self._suspects:
                if not suspect_allowed:
                    return (), frozenset()  # its messages end, and then it may claim the suspect
                if suspects := await self._claim_suspect(tx, limits, claim):
                    return suspects, frozenset()
            rows, keyed = await self._claim_unkeyed_and_find_keyed(tx, limits, claim)
            rows += await self._claim_keyed(tx, keyed, limits, claim, cursors)
            more = frozenset(limits) if promoted == _PROMOTED else _full(limits, rows)
            if more != set(limits) and self._store.dialect == "sqlite":
                await self._read_next(tx, limits)
            if self._suspects and suspect_allowed and not rows:
                rows = await self._claim_suspect(tx, limits, claim)
            # Without a sync a crash of the database may undo the claim, and another process claims
            # the messages while this one still handles them. That is harmless: the rows no longer
            # have this one's claim number, so its effects are refused. But messages of a key would
            # be handled by two processes at once, out of order: their claims are synced.
            if not (outcomes or promoted or cursors):
                await tx.write("commit.unsynced")
            return rows, more

        rows, more = await self._store.run(unit)
        self._cursors |= cursors
        self._note_due(outcomes)
        return Claimed(
            messages=[_message(row) for row in rows],
            more=more,
            next_at=self._first_due(),
            suspects=self._suspects,
        )

    async def _only_claimable(self, limits: ClaimLimits) -> ClaimLimits:
        """The limits of the groups that have something to claim. It finds them by a read, which
        waits for no writer, so that a pass that finds nothing needs no write transaction.
        """
        names = json.dumps(list(limits))

        async def unit(tx: Tx) -> list[str]:
            await self._read_next(tx, limits)
            if self._suspects or self._is_due(tx.now_us):
                return list(limits)
            return [row["group"] for row in await tx.fetch_all("queue.ready", groups=names)]

        ready = await self._store.read(unit) if limits else []
        return {name: limits[name] for name in ready}

    async def _read_next(self, tx: Tx, limits: ClaimLimits) -> None:
        """Read when the next scheduled message is due, and whether there are suspects."""
        row = await tx.fetch_one("queue.next", groups=json.dumps(list(limits)), now_us=tx.now_us)
        assert row is not None
        self._note_next(row)

    def _note_next(self, row: Row) -> None:
        self._next_at, self._suspects = row["next_at"], bool(row["suspects"])

    def _is_due(self, now_us: int) -> bool:
        return (self._next_at is not None and self._next_at <= now_us) or (
            bool(self._due) and self._due[0] <= now_us
        )

    def _note_due(self, outcomes: Sequence[Outcome]) -> None:
        """Note when the messages are due again that were settled for a retry."""
        now_us = self._store.now_us()
        while self._due and self._due[0] <= now_us:
            heapq.heappop(self._due)
        for outcome in outcomes:
            if outcome.verdict in (Verdict.RETRY, Verdict.DEFER):
                heapq.heappush(self._due, now_us + outcome.delay_us)

    def _first_due(self) -> int | None:
        return min([at for at in (self._next_at, *self._due[:1]) if at is not None], default=None)

    async def _settle(self, tx: Tx, outcomes: Sequence[Outcome]) -> None:
        done = [o.message for o in outcomes if o.verdict is Verdict.DONE and not _is_deleted(o)]
        await self._settle_done(tx, done)
        for outcome in outcomes:
            if outcome.verdict is not Verdict.DONE:
                await self._settle_unfinished(tx, outcome)
        if any(
            o.verdict is Verdict.GIVEN_BACK or o.message.order_key is not None for o in outcomes
        ):
            tx.notify(CLAIMABLE_TOPIC)  # others may claim it, or the next message of its key

    async def _settle_done(self, tx: Tx, messages: Sequence[Message]) -> None:
        if self._store.dialect == "postgres" and messages:
            settled = json.dumps(
                [{"event_id": m.event_id, "group": m.group, "claim": m.claim} for m in messages]
            )
            await tx.write("queue.done", settled=settled, now_us=tx.now_us)
            return
        claims = defaultdict[tuple[str, int], list[str]](list)
        for m in messages:
            claims[m.group, m.claim].append(m.event_id)
        for (group, claim), event_ids in claims.items():
            those = {"ids": json.dumps(event_ids), "group": group, "claim": claim}
            await tx.write("queue.mark_done", **those, now_us=tx.now_us)
            await tx.write("queue.delete_done", **those)

    async def _settle_unfinished(self, tx: Tx, outcome: Outcome) -> None:
        """Settle a message that is not done: given back, to be retried, or a dead letter."""
        message, verdict = outcome.message, outcome.verdict
        row = {"event_id": message.event_id, "group": message.group, "claim": message.claim}
        if verdict is Verdict.GIVEN_BACK:
            await tx.write("queue.give_back", **row)
        elif verdict is Verdict.DEAD and _is_deleted(outcome):
            await tx.write(
                "queue.make_dead_handled",
                event_id=message.event_id,
                group=message.group,
                attempts=message.attempt,
                history=outcome.history,
                now_us=tx.now_us,
            )
        elif verdict is Verdict.DEAD:
            await tx.write("queue.make_dead", **row, now_us=tx.now_us, history=outcome.history)
        else:
            retry = verdict is Verdict.RETRY
            await tx.write(
                "queue.retry",
                **row,
                next_at=tx.now_us + outcome.delay_us,
                uncounted=0 if retry else 1,
                suspect=message.suspect and not retry,
                history=outcome.history if retry else message.history,
            )

    async def _claim_unkeyed_and_find_keyed(
        self, tx: Tx, limits: ClaimLimits, claim: int
    ) -> tuple[list[Row], Collection[str]]:
        """Claim messages without a key. Returns them, and the groups that may have messages with
        a key to claim.
        """
        keyed = self._keyed & limits.keys()
        ranges = [
            {"group": group, "least": least, "most": most, "count": count}
            for group, limit in limits.items()
            for least, most, count in ((0, _HIGHEST, limit.count), (_LOWEST, -1, limit.low))
            if count
        ]
        ours = {"owner": self._owner, "claim": claim}
        if self._store.dialect == "postgres":
            rows = await tx.fetch_all(
                "queue.claim_all",
                **ours,
                limits=json.dumps(ranges),
                groups=json.dumps(list(limits)),
                keyed=json.dumps(list(keyed)),
                now_us=tx.now_us,
            )
            self._note_next(rows[0])
            ready = json.loads(rows[0]["keyed"] or "[]")
            return [row for row in rows if row["event_id"] is not None], ready
        found = [await tx.execute("queue.claim", **one, **ours) for one in ranges]
        rows = await tx.fetch_all("queue.claimed", **ours) if any(found) else []
        return rows, keyed

    async def _claim(self, tx: Tx, statement: str, claim: int, **params: object) -> list[Row]:
        """Claim by a statement that returns the rows, or on SQLite by one that the rows of this
        claim are read after.
        """
        params |= {"owner": self._owner, "claim": claim, "now_us": tx.now_us}
        if self._store.dialect == "postgres":
            return list(await tx.fetch_all(statement, **params))
        if not await tx.execute(statement, **params):
            return []
        return list(await tx.fetch_all("queue.claimed", owner=self._owner, claim=claim))

    async def _claim_keyed(
        self,
        tx: Tx,
        groups: Collection[str],
        limits: ClaimLimits,
        claim: int,
        cursors: dict[str, str],
    ) -> list[Row]:
        rows: list[Row] = []
        for group in sorted(groups):
            limit, after = limits[group], self._cursors.get(group)
            if not limit.count:
                continue
            await tx.fetch_one("queue.lock_group", group=group)
            # A claim of its own for each statement: SQLite reads back all rows of one.
            found = await self._claim_keys(tx, group, after, limit.count, limit.run, claim + 1)
            left = limit.count - len({row["order_key"] for row in found})
            if after is not None and left > 0:  # from the first key on
                found += await self._claim_keys(tx, group, None, left, limit.run, claim + 2)
            if found:
                cursors[group] = found[-1]["order_key"]
            rows += found
            claim += 2
        return rows

    async def _claim_keys(
        self, tx: Tx, group: str, after: str | None, count: int, run: int, claim: int
    ) -> list[Row]:
        found = await self._claim(
            tx,
            "queue.claim_keys",
            claim,
            group=group,
            after=after or "",
            after_position=_FIRST if after is None else _LAST,
            count=count,
            run=run,
        )
        return sorted(found, key=lambda row: row["order_key"])  # stable: the order within a key

    async def _claim_suspect(self, tx: Tx, limits: ClaimLimits, claim: int) -> list[Row]:
        for group in sorted(self._keyed & limits.keys()):
            await tx.fetch_one("queue.lock_group", group=group)
        return await self._claim(tx, "queue.claim_suspect", claim, groups=json.dumps(list(limits)))

    async def give_back_orphans(self, held: Collection[MessageId]) -> None:
        """As in Broker; the lease itself is a row of `process`."""
        rows = await self._store.read(lambda tx: tx.fetch_all("queue.held", owner=self._owner))
        unknown = frozenset(
            (row["event_id"], row["group"], row["claim"])
            for row in rows
            if (row["event_id"], row["group"]) not in held
        )
        orphaned, self._unknown = unknown & self._unknown, unknown
        if not orphaned:
            return

        async def unit(tx: Tx) -> None:
            for event_id, group, claim in orphaned:
                await tx.write("queue.give_back", event_id=event_id, group=group, claim=claim)
            tx.notify(CLAIMABLE_TOPIC)

        await self._store.run(unit)

    async def reclaim(self, owner: str, *, is_dead: bool) -> int:
        """As in Broker. All its messages but the relay's become suspects. One that was alone, or a
        suspect already, has also failed an attempt.
        """

        async def unit(tx: Tx) -> tuple[int, list[Row]]:
            lease = await tx.fetch_one("process.get", id=owner, lock=True)
            if lease is not None and not is_dead and lease["expires_at"] > tx.now_us:
                return 0, []
            await tx.write("queue.delete_handled", owner=owner)
            rows = await tx.fetch_all("queue.held", owner=owner, lock=True)
            tried = [row for row in rows if row["group"] != RELAY]
            failed = [row for row in tried if row["suspect"] or len(tried) == 1]
            dead = [row for row in failed if await self._fail_attempt(tx, owner, row)]
            await tx.write("queue.reclaim", owner=owner, now_us=tx.now_us)
            await tx.write("process.leave", id=owner)
            tx.notify(CLAIMABLE_TOPIC)
            return len(rows), dead

        count, dead = await self._store.run(unit)
        if count:
            log.warning("reclaimed %d messages of %s", count, owner)
        for row in dead:
            group, event_id, attempt = row["group"], row["event_id"], row["attempts"]
            log.error(
                "%s: the process died in attempt %d at event %s; it is a dead letter now",
                group,
                attempt,
                event_id,
                extra=fields(events.MESSAGE_DEAD, event_id=event_id, group=group, attempt=attempt),
            )
        return count

    async def _fail_attempt(self, tx: Tx, owner: str, row: Row) -> bool:
        """The attempt ended with the process. Returns whether it was the last one."""
        attempt, group = row["attempts"], row["group"]
        failure = Failure(attempt=attempt, at=tx.now_us, owner=owner, error=DIED)
        history = add_failure(row["history"], failure)
        ids = {"event_id": row["event_id"], "group": group, "claim": row["claim"]}
        # A group that this process does not know: another one knows when to give up.
        retries = self._retries.get(group, attempt)
        if after_failure(attempt, retries=retries, permanent=False) is Verdict.DEAD:
            await tx.write("queue.make_dead", **ids, now_us=tx.now_us, history=history)
            return True
        delay_s = self._backoff.delay_s(attempt)
        await tx.write(
            "queue.retry",
            **ids,
            next_at=tx.now_us + int(delay_s * 1e6),
            uncounted=0,
            suspect=True,
            history=history,
        )
        return False


def _full(limits: ClaimLimits, rows: Sequence[Row]) -> frozenset[str]:
    """The groups that got as many messages as they may have, so that there may be more."""
    high: dict[str, set[str]] = {group: set() for group in limits}
    low = Counter[str]()
    for row in rows:
        if row["priority"] < 0 and row["order_key"] is None:
            low[row["group"]] += 1
        else:
            high[row["group"]].add(row["order_key"] or row["event_id"])
    return frozenset(
        group
        for group, limit in limits.items()
        if (limit.count and len(high[group]) >= limit.count)
        or (limit.low and low[group] >= limit.low)
    )


def _is_deleted(outcome: Outcome) -> bool:
    """Whether the row was deleted in the transaction of the effect."""
    return outcome.marked and outcome.message.order_key is None


def _message(row: Row) -> Message:
    return Message(
        group=row["group"],
        event_id=row["event_id"],
        type=row["type"],
        key=row["key"],
        priority=row["priority"],
        payload=row["payload"],
        headers=row["headers"],
        created_at=row["created_at"],
        attempt=row["attempts"],
        claim=row["claim"],
        history=row["history"],
        order_key=row["order_key"],
        suspect=bool(row["suspect"]),
    )
