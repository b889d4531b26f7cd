"""The outbox relay, in every worker: what a commit left in the outbox is handed to the broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from cordata.broker import Broker, Relayed
from cordata.config.sections import EngineConfig
from cordata.core.retry import next_delay_s
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger, with_hint
from cordata.log_throttle import LogThrottle
from cordata.registry import Handler
from cordata.services.loop import SPACING_S, Pace, WakeEvent, wake_on
from cordata.store import Keeper, Store

log = logger("cordata.relay")

#: First and longest pause while the store or the broker takes nothing.
_FIRST_S, _LONGEST_S = 0.25, 5.0
#: Word that came from elsewhere wakes every worker, and one look finds the work: worker 0 looks at
#: once, each further one of its host so much later. Side by side they would only delay each other.
_TURN_S = 0.004
#: So that a host of many workers, of which only the last ones have time, is not late.
_TURNS = 4


class RelayService:
    """Sleeps until the outbox topic is notified or the next delayed entry is due."""

    name = "relay"

    def __init__(
        self,
        store: Store,
        broker: Broker,
        handlers: Sequence[Handler],
        config: EngineConfig,
        *,
        turn: int = 0,
    ) -> None:
        """`handlers`: registered before the first entry is relayed, so that none is missed.

        `turn`: the worker's number.
        """
        self.heartbeat = Heartbeat(max_age_s=30.0 + config.poll_s)
        #: Set when the groups are registered.
        self.ready = asyncio.Event()
        self._store = store
        self._broker = broker
        self._groups = {s.group: s.type for s in handlers}
        self._keyed = {s.group for s in handlers if s.key}
        self._config = config
        self._failures = 0
        #: Why the groups are not registered, when that is for the store.
        self.trouble: StoreUnavailable | None = None
        #: Why it waits, as far as that was logged and nothing has been published since.
        self._log_throttle = LogThrottle()
        self._turn_s = turn % _TURNS * _TURN_S

    def status(self) -> str:
        """For STATUS=: what is wrong with the broker."""
        return self._broker.status()

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`; what is then in the outbox stays there for others."""
        wake = WakeEvent()
        keeper = self._store.keep(self._broker.outbox_topic)
        pace = Pace(self._store)
        full, word = False, False
        try:
            async with wake_on(wake, stop, self._store, self._broker.outbox_topic):
                while not stop.is_set():
                    self.heartbeat.touch()
                    await pace.next(full=full)
                    sleep_s, full = await self._pass(keeper, word=word)
                    word = sleep_s > 0.0 and await wake.wait(sleep_s)
                    if word:
                        await self._wait_for_turn(keeper, stop)
        finally:
            keeper.close()

    async def _wait_for_turn(self, keeper: Keeper, stop: asyncio.Event) -> None:
        if self._turn_s and not keeper.owes and not stop.is_set():
            await asyncio.sleep(self._turn_s)

    async def _pass(self, keeper: Keeper, *, word: bool) -> tuple[float, bool]:
        """One pass: seconds to sleep after it, and whether the next one need not be spaced."""
        # What this process committed is there, and so it is most likely for the first to be told.
        mark, sure = keeper.mark(), keeper.owes or (word and not self._turn_s)
        try:
            if not self.ready.is_set():
                await self._broker.register(self._groups, keyed=self._keyed)
                self.trouble = None
                self.ready.set()
            relayed = await self.run_once(sure=sure)
        except (StoreUnavailable, BrokerUnavailable) as error:
            self._failures += 1
            if not self.ready.is_set() and isinstance(error, StoreUnavailable):
                self.trouble = error
            if self._log_throttle.is_due(str(error)):
                log.warning("outbox waits: %s", with_hint(error))
            delay_s = next_delay_s(
                self._failures, random.random(), first_s=_FIRST_S, longest_s=_LONGEST_S
            )
            return delay_s, False
        self._failures = 0
        if (
            self._log_throttle.has_logged and relayed.published
        ):  # not only empty because others relay it
            log.info("outbox is relayed again")
            self._log_throttle.reset()
        full = relayed.published >= self._config.batch
        if full:
            keeper.pass_on()  # there is enough for others
        else:
            keeper.done(mark)
        if relayed.next_at is None:
            return self._config.poll_s, full
        due_in_s = (relayed.next_at - self._store.now_us()) / 1e6
        # Between two passes of the backfill there is room for what is live, and that is waited for.
        least_s = SPACING_S if relayed.backfill else 0.0
        return min(max(due_in_s, least_s), self._config.poll_s), full or relayed.backfill

    async def run_once(self, *, sure: bool = False) -> Relayed:
        """Publish one batch. Unless `sure` it looks first: every worker is woken, one finds the
        work.
        """
        if not sure:
            next_at = await self._broker.outbox_due_at()
            if next_at is None or next_at > self._store.now_us():
                return Relayed(published=0, next_at=next_at)
        return await self._broker.relay(self._config.batch)
