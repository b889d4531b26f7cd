"""The store goes away between the COMMIT of the relay's claims and its answer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.broker.test_direct import DeafStore
from tests.integration.engine.parts import publish, rows
from tests.integration.redis.parts import broker_of, on_redis
from tests.integration.redis.stores import REDIS_KINDS, prepared, url_of

from cordata.broker import Want
from cordata.errors import StoreUnavailable


@pytest.fixture(params=REDIS_KINDS)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return prepared(request.param, request, tmp_path)


async def test_events_go_on_at_the_next_pass_when_the_answer_to_their_claim_was_lost(
    state: Path,
) -> None:
    """They waited for `claim_timeout_s`: the process renewed nothing, but it lived."""
    async with on_redis(state) as parts:
        deaf = DeafStore(parts.store)
        with closing(broker_of(deaf, url_of(state))) as broker:
            await broker.register({"a": "thing.done"})
            ids = await publish(parts.store, 3)
            deaf.deaf = True
            with pytest.raises(StoreUnavailable):
                await broker.relay(100)
            states = [row["state"] for row in await rows(parts.store, "outbox_states")]
            assert states == ["processing"]  # all of them
            with pytest.raises(StoreUnavailable):  # it is away for longer
                await broker.relay(100)
            deaf.deaf = False
            assert (await broker.relay(100)).published == 3
            claimed = await broker.exchange("me", [], {"a": Want(live=10)})
            assert sorted(message.event_id for message in claimed.messages) == sorted(ids)
