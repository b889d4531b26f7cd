"""The relay service, in every worker with Redis: it adds events to streams (see broker/redis)."""

from __future__ import annotations

import asyncio
import contextlib

from cordata.broker.redis.relay import Relay
from cordata.config.sections import EngineConfig
from cordata.core.retry import Backoff
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import LogThrottle, logger, with_hint
from cordata.services.loop import HerdDelay, WakeEvent, pause, wake_on
from cordata.store import CLAIMABLE_TOPIC, PUBLISHED_TOPIC, Store

log = logger("cordata.relay")

#: While the store or Redis cannot be written.
_BACKOFF = Backoff(0.25, 5.0)


class RelayService:
    """Sleeps until an event is published, a message comes back or the next event is due."""

    name = "relay"

    def __init__(self, store: Store, relay: Relay, config: EngineConfig) -> None:
        self.heartbeat = Heartbeat(max_age_s=30.0 + config.poll_s)
        self._store = store
        self._relay = relay
        self._config = config
        self._failures = 0
        self._herd = HerdDelay()
        #: Of the reason why it waits; reset when events are relayed again.
        self._log_throttle = LogThrottle()

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`, then give back to the queue what was not added to a stream."""
        wake = WakeEvent()
        async with wake_on(wake, stop, self._store, PUBLISHED_TOPIC, CLAIMABLE_TOPIC):
            while not stop.is_set():
                self.heartbeat.touch()
                sleep_s = await self.run_once()
                if sleep_s and await wake.wait(sleep_s) and (wait_s := self._herd.wait_s):
                    await pause(stop, wait_s)
        with contextlib.suppress(StoreUnavailable):  # reclaimed when this process is gone
            await self._relay.give_back()

    async def run_once(self) -> float:
        """One pass. Returns the seconds to sleep after it."""
        try:
            done = await self._relay.run_once()
        except (StoreUnavailable, BrokerUnavailable) as error:
            self._failures += 1
            if self._log_throttle.is_due(str(error)):
                log.warning("events wait for Redis: %s", with_hint(error))
            return _BACKOFF.delay_s(self._failures)
        self._failures = 0
        self._herd.looked(found=done.relayed > 0)
        if done.relayed and self._log_throttle.has_logged:
            log.info("events are relayed again")
            self._log_throttle.reset()
        if done.more:
            return 0.0
        if done.next_at is None:
            return self._config.poll_s
        due_in_s = (done.next_at - self._store.now_us()) / 1e6
        return min(max(due_in_s, 0.001), self._config.poll_s)
