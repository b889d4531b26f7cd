"""How far apart the engine's passes are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, until

from cordata.app import App
from cordata.broker import Claimed
from cordata.clock import monotonic
from cordata.config.sections import EngineConfig
from cordata.context import Event, EventContext
from cordata.core.herd_delay import FIRST_WAIT_S, LONGEST_WAIT_S, VAIN_AT_ONCE, HerdDelay
from cordata.services.loop import (
    AT_ONCE,
    SPACING_S,
    Pace,
)
from cordata.store import Store


async def test_passes_after_the_first_ones_are_spaced() -> None:
    pace = Pace(cast(Store, SimpleNamespace(waiting=0)))
    begun = monotonic()
    for _ in range(AT_ONCE + 2):
        await pace.next(full=False)
    assert monotonic() - begun >= 2 * SPACING_S * 0.99


async def test_first_passes_after_a_rest_follow_each_other_at_once() -> None:
    pace = Pace(cast(Store, SimpleNamespace(waiting=0)), spacing_s=60.0)
    begun = monotonic()
    for _ in range(AT_ONCE):
        await pace.next(full=False)
    assert monotonic() - begun < 60


async def test_pass_that_filled_its_batch_is_followed_at_once() -> None:
    pace = Pace(cast(Store, SimpleNamespace(waiting=0)), spacing_s=60.0)
    begun = monotonic()
    for _ in range(AT_ONCE):
        await pace.next(full=False)
    await pace.next(full=True)
    assert monotonic() - begun < 60


def test_worker_waits_the_longer_the_more_often_it_looked_in_vain() -> None:
    herd, waits = HerdDelay(), list[float]()
    for _ in range(VAIN_AT_ONCE + 200):
        waits.append(herd.wait_s)
        herd.looked(found=False)
    assert waits[: VAIN_AT_ONCE + 2] == [*[0.0] * VAIN_AT_ONCE, FIRST_WAIT_S, 2 * FIRST_WAIT_S]
    assert waits[-1] == LONGEST_WAIT_S
    herd.looked(found=True)
    assert herd.wait_s == 0.0


async def test_worker_that_only_polled_looks_at_once_for_the_next_event(state: Path) -> None:
    """A look that no wake-up asked for says nothing about other workers."""
    app, polls = App("t"), 0

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None: ...

    async with opened(state) as store:
        engine = build(store, state, app, EngineConfig(poll_s=0.1))
        settle_and_claim = engine.broker.settle_and_claim

        async def count(*words: Any, **more: Any) -> Claimed:
            nonlocal polls
            polls += 1
            return await settle_and_claim(*words, **more)

        cast(Any, engine.broker).settle_and_claim = count
        async with running(engine):
            await until(lambda: polls > 2 * VAIN_AT_ONCE + 4)
            assert engine.consumer._herd.wait_s == 0.0
