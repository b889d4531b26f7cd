"""Test mode: the role is done when nothing is left to handle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cordata.beat import Beat
from cordata.broker import Depth, StoreBroker
from cordata.errors import CordataError, StoreUnavailable
from cordata.log import logger
from cordata.registry import Subscription
from cordata.services.subscription import SubscriptionService

log = logger("cordata.engine")

_LOOK_S = 0.05


class DeadLetters(CordataError):
    """Messages went to the dead letter in test mode."""

    code = "dead_letters"


class DrainService:
    """Ends when outbox and streams are empty.

    What is there includes what handlers publish meanwhile, what other workers still hold, and
    retries, which test mode does not delay; entries that are not due yet stay for another time.
    """

    name = "drain"
    #: Tells the runner that ending early is its job.
    finite = True

    def __init__(
        self,
        broker: StoreBroker,
        subscriptions: Sequence[Subscription],
        service: SubscriptionService,
    ) -> None:
        self.beat = Beat()
        self._broker = broker
        self._groups = [s.group for s in subscriptions]
        self._service = service

    async def run(self, stop: asyncio.Event) -> None:
        """Return when all is handled. Raises: DeadLetters when this worker gave up on some."""
        while not stop.is_set():
            self.beat.touch()
            try:
                depth = await self.run_once()
            except StoreUnavailable as error:
                log.debug("cannot look: %s", error)
            else:
                if not (depth.outbox or depth.ready or depth.claimed):
                    break
            await asyncio.sleep(_LOOK_S)
        if self._service.dead_count:
            raise DeadLetters(f"{self._service.dead_count} messages went to the dead letter")

    async def run_once(self) -> Depth:
        """What is left."""
        return await self._broker.depth(self._groups)
