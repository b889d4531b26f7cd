"""The broker on the store's own tables: publish, claim and acknowledge are units of the store.

An event is fanned out when the relay publishes it: one message for each group that is registered
for its type at that moment, in the transaction that marks it published, so exactly once. A group
registered later gets what is published from then on. An event whose type has no group is published
to nobody; it stays in the outbox until retention, and can be replayed until then.

In the outbox an entry goes from pending to published and through no other state: those (processing,
failed, dead; owner, claimed_until) are for a broker that is not the store.

A group is known from when the first worker with it starts until retention has passed since a
program that has it last started or led; then it is forgotten, with what it never handled.

A claim is owned by one process (see owner.py) and renewed while that lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cordata.broker import key
from cordata.broker.contract import Broker
from cordata.broker.direct import Taker
from cordata.broker.hand import Hand, due_of, is_due
from cordata.broker.message import Claimed, Depth, Due, Held, Outcome, Relayed, Want
from cordata.broker.publish import Publisher, Unhandled, outbox_due_at
from cordata.broker.settle import STREAM_TOPIC as STREAM_TOPIC
from cordata.broker.settle import add_groups, settle
from cordata.broker.stray import Strays
from cordata.core.claim import claimed_until, is_expired
from cordata.core.outbox import not_at_once
from cordata.log import logger
from cordata.store import OUTBOX_TOPIC, Fence, Keeper, Store, Tx

log = logger("cordata.engine")

#: How long one wait on the store lasts; only bounds what a lost wake-up could hide.
_WAIT_S = 3600.0


class StoreBroker(Broker):
    """Streams, consumer groups, claims and dead letters in the tables of 0002_stream."""

    outbox_topic = OUTBOX_TOPIC
    stream_topic = STREAM_TOPIC

    def __init__(self, store: Store, *, claim_timeout_s: float) -> None:
        self._store = store
        self._claim_timeout_us = int(claim_timeout_s * 1_000_000)
        #: Group -> type, as registered by this process.
        self._types: dict[str, str] = {}
        #: Groups that are listened for here, whose messages stay here first.
        self._listened: frozenset[str] = frozenset()
        self._keeper: Keeper | None = None
        self._strays = Strays()
        self._unhandled = Unhandled(self._types)
        self._publisher = Publisher(
            store, self._types, self._strays, claim_timeout_us=self._claim_timeout_us
        )

    def bring(self, taker: Taker) -> None:
        """As in Broker."""
        self._publisher.taker = taker

    async def register(
        self,
        groups: Mapping[str, str],
        *,
        keyed: Collection[str] = (),
        fence: Fence | None = None,
    ) -> None:
        """Make groups known (group -> event type), so that they get what is published from now.

        Those in `keyed` handle the events of one key one at a time, in their order.
        """

        async def unit(tx: Tx) -> dict[str, str]:
            return await add_groups(tx, groups, keyed)

        if groups:
            for group, before in (await self._store.run(unit, fence=fence)).items():
                log.warning(
                    "%s handles %s from now on, before it was %s; while programs of both run, "
                    "the one that was started last decides",
                    *(group, groups[group], before),
                )
            self._types |= groups
        for group in sorted(keyed):
            await self._rescue(group, fence)

    async def _rescue(self, group: str, fence: Fence | None) -> None:
        """Messages that wait for nobody may go on: of a group that was half forgotten, say."""
        rows = await self._store.read(lambda tx: tx.fetch_all("stream.stranded", group=group))
        pairs = [(group, row["key"]) for row in rows]
        if pairs:
            await self._store.run(lambda tx: key.put_in_order(tx, pairs), fence=fence)

    async def relay(self, limit: int) -> Relayed:
        """Publish due outbox entries, `limit` at most: most urgent first, then oldest first."""
        relayed, types = await self._publisher.publish(limit)
        self._unhandled.look(types)
        if any(self._wanted_elsewhere(*one) for one in types.items()):
            self.pass_on()
        if relayed.published >= limit:
            return relayed
        return replace(relayed, next_at=not_at_once(relayed.next_at, self._store.now_us()))

    def _wanted_elsewhere(self, type_: str, group_count: int) -> bool:
        """Whether events of a type have groups, so many in all, that are not listened for here."""
        return group_count != sum(self._types.get(group) == type_ for group in self._listened)

    async def outbox_due_at(self) -> int | None:
        """When the next outbox entry is due, without waiting for writers; None: it is empty."""

        async def unit(tx: Tx) -> int | None:
            return await outbox_due_at(tx)

        return await self._store.read(unit)

    async def due_at(self, groups: Iterable[str]) -> dict[str, Due]:
        """Groups that have messages -> when the next is due, without waiting for writers."""
        names = tuple(groups)
        mark = self._mark()

        async def unit(tx: Tx) -> dict[str, Due]:
            return await due_of(tx, names)

        due = await self._store.read(unit)
        self._looked(mark, names, due)
        return due

    async def exchange(
        self, owner: str, outcomes: Sequence[Outcome], wanted: Mapping[str, Want]
    ) -> Claimed:
        """Settle what was handled and claim more, in one unit.

        Outcomes of messages that `owner` no longer holds change nothing, but for their seen-mark.
        Backfill is claimed while none of the wanted groups has anything live that is due.
        """

        async def unit(tx: Tx) -> tuple[Claimed, Sequence[str]]:
            freed = await settle(tx, owner, outcomes)
            if not wanted:
                if freed:
                    tx.notify(STREAM_TOPIC)
                return Claimed(messages=(), next_at={}), ()
            hand = Hand(tx, owner, self._until(tx))
            next_at = await hand.fill(wanted)
            left = [at for g, due in next_at.items() if g not in hand.short for at in due]
            if freed and any(is_due(at, tx.now_us) for at in left):
                tx.notify(STREAM_TOPIC)  # for those who looked before and found them in our hands
            # A claim that a crash takes back is made again, by anyone, so one of a key is not; what
            # is settled is forgotten here.
            if not (outcomes or hand.lasts):
                await tx.write("commit.unsynced")
            return Claimed(messages=hand.messages, next_at=next_at), hand.short

        mark = self._mark()
        claimed, short = await self._strays.claiming(self._store, unit)
        now_us = self._store.now_us()
        later = {g: Due(*(not_at_once(at, now_us) for at in claimed.next_at[g])) for g in short}
        next_at = {**claimed.next_at, **later}
        self._looked(mark, wanted, next_at)
        return Claimed(messages=claimed.messages, next_at=next_at)

    def _until(self, tx: Tx) -> int:
        return claimed_until(tx.now_us, timeout_us=self._claim_timeout_us)

    async def renew(self, owner: str) -> None:
        """Extend all claims of a living process."""

        async def unit(tx: Tx) -> None:
            await tx.execute("stream.renew", owner=owner, claimed_until=self._until(tx))

        taker = self._publisher.taker
        if self._strays.possible and taker is not None:
            held = partial(self._held, owner)
            if outcomes := await self._strays.look(held, taker.known()):
                await self._store.run(lambda tx: settle(tx, owner, outcomes))
        await self._store.run(unit)

    def doubts(self) -> bool:
        """As in Broker."""
        return self._strays.possible

    async def listen(self, owner: str, groups: Collection[str], ring: Callable[[], None]) -> None:
        """Call `ring` whenever there may be something new; until cancelled."""
        self._listened = frozenset(groups)
        self._keeper = self._store.keep(STREAM_TOPIC)
        try:
            while True:
                if await self._store.wait(STREAM_TOPIC, _WAIT_S):
                    ring()
        finally:
            self._listen_no_more()

    def expects(self) -> bool:
        """As in Broker."""
        return self._keeper is not None and self._keeper.owes

    def pass_on(self) -> None:
        """As in Broker."""
        if self._keeper is not None:
            self._keeper.pass_on()

    async def quiet(self, owner: str) -> None:
        """As in Broker: what comes from now on, and what is given back, is for others."""
        self._listen_no_more()
        await self._publisher.quiet()

    def _listen_no_more(self) -> None:
        self._listened = frozenset()
        if self._keeper is not None:
            self._keeper.close()

    def _mark(self) -> int:
        return 0 if self._keeper is None else self._keeper.mark()

    def _looked(self, mark: int, groups: Collection[str], due: Mapping[str, Due]) -> None:
        """After a look: nobody else has to, if all groups were looked at and nothing is left."""
        if self._keeper is None or not self._listened <= set(groups):
            return
        now_us = self._store.now_us()
        if not any(is_due(at, now_us) for one in due.values() for at in one):
            self._keeper.done(mark)

    async def owners(self, dead: Collection[str] = ()) -> dict[str, bool]:
        """Every process that holds messages -> whether some of its claims have expired."""

        async def unit(tx: Tx) -> dict[str, bool]:
            rows = await tx.fetch_all("stream.owners")
            return {row["owner"]: is_expired(row["claimed_until"], tx.now_us) for row in rows}

        return await self._store.read(unit)

    async def held(self, owner: str, *, limit: int) -> list[Held]:
        """Messages in the hands of a process, `limit` at most."""
        return await self._held(owner, limit)

    async def _held(self, owner: str, limit: int) -> list[Held]:
        async def unit(tx: Tx) -> list[Held]:
            rows = await tx.fetch_all("stream.held", owner=owner, limit=limit)
            return [
                Held(
                    id=row["outbox_id"],
                    group=row["group"],
                    order_key=row["key"],
                    attempts=row["attempts"],
                    history=row["history"],
                    expired=is_expired(row["claimed_until"], tx.now_us),
                )
                for row in rows
            ]

        return await self._store.read(unit)

    async def depth(self, groups: Iterable[str]) -> Depth:
        """What is left to do in the outbox and for the groups."""
        names = tuple(groups)

        async def unit(tx: Tx) -> Depth:
            row = await tx.fetch_one("stream.depth")
            assert row is not None
            outbox_at = await outbox_due_at(tx)
            return Depth(
                outbox=outbox_at is not None and outbox_at <= tx.now_us,
                ready=bool(await due_of(tx, names)),
                claimed=bool(row["claimed"]),
                dead=row["dead"],
            )

        return await self._store.read(unit)
