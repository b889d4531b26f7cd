"""Test mode: the role is done when nothing is left to handle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from cordata.beat import Beat
from cordata.broker import Depth, StoreBroker
from cordata.errors import CordataError, StoreUnavailable
from cordata.log import logger
from cordata.registry import Subscription
from cordata.services.subscription import SubscriptionService
from cordata.store import Store, Tx

log = logger("cordata.engine")

_LOOK_S = 0.05


class DeadLetters(CordataError):
    """Messages went to the dead letter in test mode."""

    code = "dead_letters"


class DrainService:
    """Ends when outbox and streams are empty.

    What is there includes what handlers publish meanwhile, what other workers still hold, and
    retries, which nobody waits for: those of this run, and those that an earlier one left behind.
    Entries that are scheduled for later stay for another time.
    """

    name = "drain"
    #: Tells the runner that ending early is its job.
    finite = True

    def __init__(
        self,
        store: Store,
        broker: StoreBroker,
        subscriptions: Sequence[Subscription],
        service: SubscriptionService,
    ) -> None:
        self.beat = Beat()
        self._store = store
        self._broker = broker
        self._groups = [s.group for s in subscriptions]
        self._service = service
        #: In the dead letter before this run.
        self._dead_before: int | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Return when all is handled. Raises: DeadLetters when a group gave up on some."""
        dead = 0
        while not stop.is_set():
            self.beat.touch()
            try:
                depth = await self.run_once()
            except StoreUnavailable as error:
                log.debug("cannot look: %s", error)
            else:
                if self._dead_before is None:
                    self._dead_before = depth.dead - self._service.dead_count
                dead = depth.dead - self._dead_before
                if not (depth.outbox or depth.ready or depth.claimed):
                    break
            await asyncio.sleep(_LOOK_S)
        # Some may be of other workers, which say so, too; or of one that died with its handler.
        dead = max(dead, self._service.dead_count)
        log.info("nothing is left; this worker handled %d messages", self._service.handled_count)
        if dead:
            raise DeadLetters(
                f"{dead} messages went to the dead letter",
                hint="`cordata dlq list` names them, `cordata dlq show` says why",
            )

    async def run_once(self) -> Depth:
        """What is left. When it all waits for its next attempt, that is due from now on."""
        depth = await self._broker.depth(self._groups)
        if depth.ready and not (depth.outbox or depth.claimed):
            await self._hurry()
        return depth

    async def _hurry(self) -> None:
        groups = json.dumps(self._groups)

        async def unit(tx: Tx) -> None:
            if await tx.execute("drain.hurry", groups=groups, now_us=tx.now_us):
                tx.notify(self._broker.stream_topic)

        await self._store.run(unit)
