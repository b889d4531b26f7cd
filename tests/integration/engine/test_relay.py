"""Who looks at the outbox when: the relay beside a broker that only notes what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

import pytest
from tests.integration.engine.parts import opened, publish, until

from cordata.broker import Broker, Relayed
from cordata.config.sections import EngineConfig
from cordata.services.relay import RelayService
from cordata.store import OUTBOX_TOPIC, Fence


class Noting:
    """Has nothing to publish."""

    outbox_topic = OUTBOX_TOPIC
    stream_topic = "stream"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def register(
        self,
        groups: Mapping[str, str],
        *,
        keyed: Collection[str] = (),
        fence: Fence | None = None,
    ) -> None:
        self.asked.append("register")

    async def outbox_due_at(self) -> int | None:
        self.asked.append("look")
        return None

    async def relay(self, limit: int) -> Relayed:
        self.asked.append("relay")
        return Relayed(published=0, next_at=None)


@pytest.mark.parametrize(
    ("turn", "word", "first"),
    [(0, "elsewhere", "relay"), (2, "elsewhere", "look"), (2, "here", "relay")],
)
async def test_only_the_first_worker_and_who_committed_do_not_look_first(
    state: Path, turn: int, word: str, first: str
) -> None:
    """Word from elsewhere reaches every worker: the others only look, and a moment later."""
    async with opened(state) as store, opened(state, migrate=False) as other:
        broker, stop = Noting(), asyncio.Event()
        relay = RelayService(store, cast(Broker, broker), (), EngineConfig(), turn=turn)
        async with asyncio.TaskGroup() as group:
            group.create_task(relay.run(stop))
            await until(lambda: _asked(broker, 2))
            assert broker.asked == ["register", "look"]
            await publish(store if word == "here" else other, 1)
            await until(lambda: _asked(broker, 3))
            stop.set()
        assert broker.asked[2] == first


async def _asked(broker: Noting, count: int) -> bool:
    return len(broker.asked) >= count
