"""Hosts that share a store and not the broker: what is logged; and events arrive all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine.engine import QUICK
from tests.integration.engine.parts import opened, publish
from tests.integration.redis.parts import broker_of, server_of
from tests.integration.redis.stores import PREFIX
from tests.servers.redis import RedisServer

from cordata import App
from cordata.broker import StoreBroker, Want
from cordata.broker.redis.publisher import Publisher
from cordata.broker.redis.stream import Keys
from cordata.errors import BrokerUnavailable
from cordata.services.relay import RelayService


async def test_relay_says_once_that_it_waits_while_others_relay(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with opened(tmp_path) as store:
        with_redis = broker_of(store, redis.url)
        relay = RelayService(store, with_redis, App("t").handlers, QUICK)
        others = StoreBroker(store, claim_timeout_s=60.0)
        await others.register({"a": "thing.done"})
        for _ in range(5):
            await publish(store, 1)
            with pytest.raises(BrokerUnavailable):
                await relay.run_once()
            await relay_pass(relay)
            assert (await others.relay(10)).published == 1
            await relay_pass(relay)
        with_redis.close()
        assert caplog.text.count("outbox waits") == 1
        assert "relayed again" not in caplog.text
        claimed = await others.exchange("me", [], {"a": Want(live=10)})
        assert len(claimed.messages) == 5


async def relay_pass(relay: RelayService) -> None:
    """One pass, as the service makes it."""
    keeper = relay._store.keep(relay._broker.outbox_topic)
    try:
        await relay._pass(keeper, word=False)
    finally:
        keeper.close()


async def test_next_step_is_said_once_when_no_primary_looks_after_this_redis(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as store:
        server = server_of(redis.url)
        terms = {"owner": "me", "claim_timeout_s": 60.0, "patience_s": 0.2}
        publisher = Publisher(store, server, Keys(PREFIX), **terms)  # type: ignore[arg-type]
        for number in range(4):
            with pytest.raises(BrokerUnavailable):
                await publisher.relay(10)
            assert caplog.text.count("no primary looks after this Redis") == (number > 0)
            await asyncio.sleep(0.25)
        assert "have to be the same on every host" in caplog.text
        server.close()
