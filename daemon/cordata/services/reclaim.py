"""Takes back, in every worker, what a dead process held: at once, or when its claims expire."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from cordata import clock, events
from cordata.broker import Broker, Held, Outcome, Owner, Owners, mark_of
from cordata.broker.stray import Mark
from cordata.config.sections import EngineConfig
from cordata.core.claim import may_take_over
from cordata.core.delivery import DIED, Failure, Verdict, add_failure, after_failure
from cordata.core.retry import next_delay_s
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import fields, logger
from cordata.registry import Handler
from cordata.services.loop import WakeEvent, wake_on
from cordata.services.neighbours import Neighbours
from cordata.store import Store

log = logger("cordata.engine")

#: Notified by each process that registers, so that the others watch it from then on.
OWNER_TOPIC = "owner"
_BATCH = 500
#: A process of this host that dies rings; what expires or belongs to others can wait this long.
_POLLS = 2
#: Nobody could renew while the store was away: then so long for all who live to do it. It is more
#: than they wait before they try the store again.
_GRACE_S = 15.0


class ReclaimService:
    """Watches the other processes of this host (pidfd: no polling) and the expiry of claims."""

    name = "reclaim"

    def __init__(
        self,
        store: Store,
        broker: Broker,
        owner: Owner,
        owners: Owners,
        handlers: Sequence[Handler],
        config: EngineConfig,
    ) -> None:
        self.heartbeat = Heartbeat(max_age_s=30.0 + _POLLS * config.poll_s)
        self._store = store
        self._broker = broker
        self._owner = owner
        self._owners = owners
        self._retries: Mapping[str, int] = {s.group: s.retries for s in handlers}
        self._config = config
        self._wake = WakeEvent()
        self._neighbours = Neighbours(
            owner, owners, self._wake.set, blind_s=(_POLLS + 1) * config.poll_s
        )
        #: The last pass did not get through to the store.
        self._cut_off = False
        #: Until then a claim that has expired may be that of somebody who lives.
        self._grace_deadline = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Take back until `stop`."""
        self._store.notify(OWNER_TOPIC)
        try:
            async with wake_on(self._wake, stop, self._store, OWNER_TOPIC):
                while not stop.is_set():
                    self.heartbeat.touch()
                    try:
                        if self._neighbours.look():
                            await self.run_once()
                    except (StoreUnavailable, OSError) as error:  # no descriptor left, say
                        self._cut_off = True
                        log.debug("nothing can be taken back: %s", error)
                    await self._wake.wait(_POLLS * self._config.poll_s)
        finally:
            self._neighbours.close()

    async def run_once(self) -> int:
        """One pass. Returns the number of messages that were taken back."""
        count = 0
        dead = self._owners.dead(self._owners.ids())
        holders = await self._broker.owners(dead)
        fair = self._had_time_to_renew()
        for owner_id, late in holders.items():
            known_dead = not self._owners.is_alive(owner_id)
            expired = late and fair
            if owner_id != self._owner.id and may_take_over(expired=expired, known_dead=known_dead):
                count += await self._take_back(owner_id)
        await self._broker.take_entries_back(dead)
        if dead:  # they may have kept to themselves what they had committed
            self._store.notify(self._broker.outbox_topic)
            self._store.notify(self._broker.stream_topic)
        for owner_id in dead:
            # Else in the next pass, when its hands are empty.
            if owner_id not in holders and await self._broker.forget(owner_id):
                self._owners.forget(owner_id)
        if count:
            self._wake.set()
            # Also for those whose next attempt is due later: somebody has to know when.
            self._store.notify(self._broker.stream_topic)
        return count

    def _had_time_to_renew(self) -> bool:
        """Whether everybody who lives could renew his claims, as far as we know."""
        now = clock.monotonic()
        if self._cut_off:
            self._cut_off = False
            self._grace_deadline = now + _GRACE_S
        return now >= self._grace_deadline

    async def _take_back(self, owner_id: str) -> int:
        count, left = 0, frozenset[Mark]()
        dead = not self._owners.is_alive(owner_id)
        running = self._owners.running(owner_id)
        while True:
            held = await self._broker.held(owner_id, limit=_BATCH)
            mine = [h for h in held if may_take_over(expired=h.expired, known_dead=dead)]
            before, left = left, frozenset((h.group, h.id) for h in mine)
            count += len(before - left)
            if left <= before:  # nothing, or only what the broker cannot take now
                break
            self.heartbeat.touch()
            outcomes = [self._outcome(owner_id, h, running) for h in mine]
            await self._broker.exchange(owner_id, outcomes, {})
        if count:
            log.warning("took back %d messages of %s", count, owner_id)
        return count

    def _outcome(self, owner_id: str, held: Held, running: frozenset[bytes]) -> Outcome:
        """An attempt is used up if the handler ran; else it is as if it had not been claimed."""
        if mark_of(held.group, held.id) not in running:
            return Outcome(
                group=held.group, id=held.id, verdict=Verdict.BACK, order_key=held.order_key
            )
        attempt = held.attempts + 1
        retries = self._retries.get(held.group, attempt)
        verdict = after_failure(attempt, retries=retries, permanent=False)
        if verdict is Verdict.DEAD:
            log.error(
                "%s: attempt %d killed its process; the message is in the dead letter",
                held.group,
                attempt,
                extra=fields(events.MESSAGE_DEAD, group=held.group, attempt=attempt),
            )
        failure = Failure(attempt=attempt, at=self._store.now_us(), owner=owner_id, error=DIED)
        delay_s = next_delay_s(
            attempt,
            random.random(),
            first_s=self._config.retry_min_s,
            longest_s=self._config.retry_max_s,
        )
        return Outcome(
            group=held.group,
            id=held.id,
            verdict=verdict,
            attempts=attempt,
            delay_us=int(delay_s * 1e6),
            history=add_failure(held.history, failure),
            order_key=held.order_key,
        )
