"""Claims, leases and terms in any order of things: each effect once, in order, none left out.

A random walk of two processes that are slow, stopped, put out though they live, killed, or wrong
about what they saw; and of an operator who resets what they work on. Each step is one statement of
the protocol, by the code that workers use; only when it happens is made up.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.integration.eventstore.ledger import deposit, opened, rows
from tests.processes import joined

from cordata.core.eventstream import bucket_of
from cordata.errors import AlreadySeen, PartitionLost
from cordata.eventstore import EventLog, StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.partition import Claim, Partitions, advance
from cordata.store import Store, Tx

WORKERS = ("a", "b")
#: In different partitions, whether there are 2 or 3.
STREAMS = ("account-1", "account-4", "account-28", "account-11")
STEPS = 250
LONG_S, OVER_S = 3600.0, -0.001


@dataclass
class Hand:
    """A partition that a process believes to own; it learns of nothing by itself."""

    claim: Claim
    #: Of how many partitions it believes its own to be one.
    out_of: int
    position: int
    #: The event that its handler has begun with.
    begun: list[StoredEvent] = field(default_factory=list)


class Walk:
    """Everything that can happen, and what has."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.partitions = Partitions(store)
        self.rng = random.Random(seed)
        self.hands: dict[str, dict[int, Hand]] = {worker: {} for worker in (*WORKERS, "new")}
        #: Of processes that took a partition anew while a handler of theirs still ran.
        self.late: list[Hand] = []
        self.appended: Counter[str] = Counter()
        self.steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, lambda: self.arrive(self.one())),
            (5, lambda: self.begin(self.one())),
            (5, lambda: self.commit(self.one())),
            (3, lambda: self.work(self.one())),
            (2, lambda: self.lose_unnoticed(self.one())),
            (1, lambda: self.end(self.one())),
            (2, self.append),
            (2, self.reset),
            (3, self.commit_late),
            (1, lambda: self.store_positions(self.one())),
        ]

    def one(self) -> str:
        return self.rng.choice(WORKERS)

    async def step(self) -> None:
        weights = [weight for weight, _ in self.steps]
        ((_, act),) = self.rng.choices(self.steps, weights)
        await act()
        await self.check()

    async def append(self) -> None:
        stream = self.rng.choice(STREAMS)
        await deposit(self.store, stream, 1)
        self.appended[stream] += 1

    async def arrive(self, worker: str, *, looked_before: bool = True) -> None:
        """Live, and claim what is free: of as many as there are, or were at an older look."""
        await joined(self.store, worker, ["p"], lease_s=LONG_S)
        (out_of,) = (await self.partitions.read_table(["p"])).partitions.values()
        if looked_before and self.rng.random() < 0.2:
            out_of = self.rng.choice((2, 3))
        wanted = {"p": list(range(out_of))}
        for one in await self.partitions.claim(worker, wanted, out_of={"p": out_of}):
            if one.partition in self.hands[worker]:  # its handler may run on for a while
                self.late.append(self.hands[worker][one.partition])
            self.hands[worker][one.partition] = Hand(one.claim, out_of, one.position)

    async def lose_unnoticed(self, worker: str) -> None:
        """Its lease runs out, or a neighbour is wrong: it goes on as if nothing had happened."""
        if self.rng.random() < 0.5:
            await joined(self.store, worker, ["p"], lease_s=OVER_S)
        else:
            await (await joined(self.store, worker)).leave()

    async def end(self, worker: str) -> None:
        """With a word, or killed."""
        places = [(hand.claim, hand.position) for hand in self.hands[worker].values()]
        self.hands[worker] = {}
        if self.rng.random() < 0.5:
            await self.partitions.release(places)
            await (await joined(self.store, worker)).leave()

    async def begin(self, worker: str) -> None:
        """Read the next events; what their handlers do is committed at some later time."""
        for number, hand in self.hands[worker].items():
            page = await EventLog(self.store).read("account", after=hand.position, limit=500)
            own = [one for one in page.events if bucket_of(one.stream) % hand.out_of == number]
            hand.begun = own[:1]

    async def commit(self, worker: str) -> None:
        for number, hand in list(self.hands[worker].items()):
            if not hand.begun:
                continue
            event = hand.begun.pop()
            try:
                await self.commit_one(hand.claim, event)
            except PartitionLost:
                del self.hands[worker][number]
            except AlreadySeen:
                hand.position = event.position
            else:  # sometimes it is not told, and tries again
                hand.position = event.position if self.rng.random() < 0.8 else hand.position

    async def work(self, worker: str) -> None:
        await self.begin(worker)
        await self.commit(worker)

    async def commit_late(self) -> None:
        late, self.late = self.late, []
        for hand in late:
            for event in hand.begun:
                with contextlib.suppress(PartitionLost, AlreadySeen):
                    await self.commit_one(hand.claim, event)

    async def commit_one(self, claim: Claim, event: StoredEvent) -> None:
        async def unit(tx: Tx) -> None:
            await tx.execute(
                "ledger.note",
                position=event.position,
                stream=event.stream,
                version=event.version,
                owner=claim.owner,
                at=tx.now_us,
            )
            await advance(tx, claim, event.position)

        if self.rng.random() < 0.5:
            async with self.store.transaction() as tx:
                await unit(tx)
        else:
            await self.store.run(unit)

    async def store_positions(self, worker: str) -> None:
        places = [(hand.claim, hand.position) for hand in self.hands[worker].values()]
        await self.partitions.store(places)

    async def reset(self) -> None:
        async def clear(tx: Tx) -> None:
            await tx.execute("ledger.clear_notes")

        partitions = self.rng.choice((2, 3))
        await Subscriptions(self.store).reset("p", "start", partitions=partitions, clear=clear)

    async def check(self) -> None:
        last: Counter[str] = Counter()
        for row in await rows(self.store, "ledger.handled"):
            assert row["version"] == last[row["stream"]] + 1, "handled twice, or one left out"
            last[row["stream"]] = row["version"]

    async def finish(self) -> None:
        """Whatever happened, a new process that lives brings it to its end."""
        for worker in WORKERS:
            await (await joined(self.store, worker)).leave()
        await self.arrive("new", looked_before=False)
        while True:
            await self.begin("new")
            if not any(hand.begun for hand in self.hands["new"].values()):
                break
            await self.commit("new")
        await self.check()
        seen = Counter(row["stream"] for row in await rows(self.store, "ledger.handled"))
        assert seen == self.appended


@pytest.mark.parametrize("seed", range(4))
async def test_each_effect_happens_once_in_any_order_of_things(state: Path, seed: int) -> None:
    async with opened(state) as store:
        walk = Walk(store, seed)
        await walk.partitions.add("p", "account", 2, 0)
        for _ in range(8):
            await walk.append()
        for _ in range(STEPS):
            await walk.step()
        await walk.finish()
