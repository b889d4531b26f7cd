"""Takes back, in every worker, what a dead process held: at once, or when its claims expire."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence

from cordata import clock, events
from cordata.beat import Beat
from cordata.broker import Broker, Held, Outcome, Owner, Owners, mark_of, pid_of
from cordata.broker.stray import Mark
from cordata.config.sections import EngineConfig
from cordata.core.claim import may_take_over
from cordata.core.delivery import Failure, Verdict, add_failure, after_failure
from cordata.core.retry import next_delay_s
from cordata.errors import StoreUnavailable
from cordata.log import fields, logger
from cordata.registry import Subscription
from cordata.services.alarm import Alarm, waking
from cordata.store import Store

log = logger("cordata.engine")

#: Notified by each process that registers, so that the others watch it from then on.
OWNER_TOPIC = "owner"
_BATCH = 500
#: A process of this host that dies rings; what expires or belongs to others can wait this long.
_POLLS = 2
DIED = "ProcessDied: the process died while the handler ran"


class ReclaimService:
    """Watches the other processes of this host (pidfd: no polling) and the expiry of claims."""

    name = "reclaim"

    def __init__(
        self,
        store: Store,
        broker: Broker,
        owner: Owner,
        owners: Owners,
        subscriptions: Sequence[Subscription],
        config: EngineConfig,
    ) -> None:
        self.beat = Beat(max_age_s=30.0 + config.poll_s)
        self._store = store
        self._broker = broker
        self._owner = owner
        self._owners = owners
        self._retries: Mapping[str, int] = {s.group: s.retries for s in subscriptions}
        self._config = config
        self._alarm = Alarm()
        self._watched: dict[str, int] = {}
        #: Until then missing files say nothing.
        self._blind_deadline = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Take back until `stop`."""
        self._store.notify(OWNER_TOPIC)
        try:
            async with waking(self._alarm, stop, self._store, OWNER_TOPIC):
                while not stop.is_set():
                    self.beat.touch()
                    try:
                        self._watch()
                        if self._files_tell():
                            await self.run_once()
                    except (StoreUnavailable, OSError) as error:  # no descriptor left, say
                        log.debug("nothing can be taken back: %s", error)
                    await self._alarm.sleep(_POLLS * self._config.poll_s)
        finally:
            for owner_id in list(self._watched):
                self._unwatch(owner_id)

    def _files_tell(self) -> bool:
        """Whether a missing file means that its process left: not when ours was missing, too,
        until each of us had time to put his back.
        """
        now = clock.monotonic()
        if self._owner.restore():
            log.warning("the runtime directory was emptied while in use; it is made anew")
            self._blind_deadline = now + _POLLS * self._config.poll_s
        return now >= self._blind_deadline

    async def run_once(self) -> int:
        """One pass. Returns the number of messages that were taken back."""
        count = 0
        dead = self._owners.dead(self._owners.ids())
        holders = await self._broker.owners(dead)
        for owner_id, expired in holders.items():
            known_dead = not self._owners.is_alive(owner_id)
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
            self._alarm.ring()
            # Also for those whose next attempt is due later: somebody has to know when.
            self._store.notify(self._broker.stream_topic)
        return count

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
            self.beat.touch()
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

    def _watch(self) -> None:
        """Ring at the death of every process that is not watched yet."""
        known = set(self._owners.ids()) - {self._owner.id}
        for owner_id in self._watched.keys() - known:
            self._unwatch(owner_id)
        for owner_id in known - self._watched.keys():
            try:
                pidfd = os.pidfd_open(pid_of(owner_id))
            except OSError:  # gone already (the pass sees it), or not ours to see (it polls)
                continue
            self._watched[owner_id] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._died, owner_id)

    def _died(self, owner_id: str) -> None:
        self._unwatch(owner_id)
        self._alarm.ring()

    def _unwatch(self, owner_id: str) -> None:
        pidfd = self._watched.pop(owner_id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
