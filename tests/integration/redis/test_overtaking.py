"""Two processes with one message: its relay died, or its owner was slow and is relieved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.engine.parts import publish
from tests.integration.redis.parts import RedisParts, broker_of, on_redis, server_of
from tests.integration.redis.stores import PREFIX, url_of, use
from tests.servers.redis import RedisServer

from cordata.broker import Message, Outcome
from cordata.broker.redis.broker import RedisBroker
from cordata.broker.redis.stream import Keys
from cordata.core.delivery import Verdict
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.store import Store

STREAM = f"{PREFIX}:stream:thing.done:normal"
#: Claims that expire while the test waits.
SHORT_S = 0.3


class Before:
    """A store in front of whose units something happens."""

    def __init__(self, store: Store, happens: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Any, **more: Any) -> Any:
        await self._happens()
        return await self._store.run(unit, **more)


def before(store: Store, happens: Callable[[], Awaitable[None]]) -> Store:
    return cast(Store, Before(store, happens))


def of(message: Message, verdict: Verdict) -> Outcome:
    attempts = 0 if verdict in (Verdict.BACK, Verdict.DONE) else message.attempts + 1
    return Outcome(
        group=message.group,
        id=message.id,
        verdict=verdict,
        event_id=message.event_id,
        attempts=attempts,
        history="[]" if attempts else None,
    )


async def relieve(parts: RedisParts, broker: RedisBroker, owner: str, verdict: Verdict) -> None:
    """As the reclaim service does."""
    held = await broker.held(owner, limit=100)
    outcomes = [
        Outcome(
            group=one.group,
            id=one.id,
            verdict=verdict,
            attempts=one.attempts + (verdict is Verdict.RETRY),
            history="[]" if verdict is Verdict.RETRY else None,
        )
        for one in held
    ]
    await broker.exchange(owner, outcomes, {})
    await broker.take_entries_back([owner])


async def all_claimed(parts: RedisParts) -> list[Message]:
    """What comes until nothing does."""
    found: list[Message] = []
    while messages := await parts.claim("a"):
        found += messages
        await parts.finish(messages)
    return found


async def test_attempt_counts_when_the_process_dies_before_its_relay_has_marked(
    state: Path, redis: RedisServer
) -> None:
    """Its entry is added again; whoever reads that finds the message in the store."""
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        ids = await publish(parts.store, 3)

        async def dies() -> None:
            if redis.execute("XLEN", STREAM):
                raise StoreUnavailable("killed here")

        dying = broker_of(before(parts.store, dies), redis.url, owner="dead")
        with pytest.raises(StoreUnavailable):
            await dying.relay(100)
        dying.close()
        assert len(await parts.claim("a", owner="dead")) == 3
        other = broker_of(parts.store, redis.url)
        await relieve(parts, other, "dead", Verdict.RETRY)
        assert await parts.relay_all() == 3
        messages = await parts.claim("a")
        # Those that were added again are acknowledged at once: nothing may come for long.
        assert redis.execute("XPENDING", STREAM, "a")["pending"] == 0
        await parts.finish(messages)
        messages += await all_claimed(parts)
        other.close()
        assert [message.attempts for message in messages] == [1, 1, 1]
        assert Counter(message.event_id for message in messages) == Counter(ids)


async def test_attempt_counts_when_redis_answers_the_relay_too_late(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        impatient = RedisBroker(
            parts.store,
            server_of(redis.url, timeout_s=0.3),
            Keys(PREFIX),
            owner="impatient",
            claim_timeout_s=60.0,
        )
        await publish(parts.store, 1)
        assert (await impatient.relay(10)).published == 1
        await parts.finish(await parts.claim("a"))
        ids = await publish(parts.store, 3)
        redis.suspend()
        with pytest.raises(BrokerUnavailable):
            await impatient.relay(10)
        redis.resume()
        impatient.close()
        failed = await parts.claim("a")
        assert Counter(message.event_id for message in failed) == Counter(ids)
        await parts.broker.exchange("me", [of(one, Verdict.RETRY) for one in failed], {})
        assert await parts.relay_all() == 3
        assert [message.attempts for message in await all_claimed(parts)] == [1, 1, 1]


async def overtaken(
    parts: RedisParts, url: str, verdicts: Callable[[int], Verdict], *, slow_is_sure: bool
) -> tuple[Sequence[Message], list[Message]]:
    """Four messages whose owner settles them while another one moves them to the store.

    Returns them, and what comes then.
    """
    await parts.broker.register({"a": "thing.done"})
    await publish(parts.store, 4)
    await parts.relay_all()
    slow = broker_of(parts.store, url, claim_timeout_s=60.0 if slow_is_sure else SHORT_S)
    slow_parts = RedisParts(parts.store, slow, parts.reconciler)
    messages = await slow_parts.claim("a", owner="slow")
    await asyncio.sleep(SHORT_S)
    outcomes = [of(one, verdicts(n)) for n, one in enumerate(messages)]

    async def settles() -> None:
        if outcomes:
            mine = list(outcomes)
            outcomes.clear()
            await slow.exchange("slow", mine, {})

    other = broker_of(before(parts.store, settles), url, claim_timeout_s=SHORT_S)
    await relieve(parts, other, "slow", Verdict.BACK)
    assert await parts.broker.owners() == {}
    slow.close()
    other.close()
    found: list[Message] = []
    while again := await parts.claim("a", owner="me"):
        found += again
    return messages, found


@pytest.mark.parametrize("slow_is_sure", [True, False])
async def test_failure_of_a_relieved_owner_is_not_taken_for_success(
    state: Path, redis: RedisServer, slow_is_sure: bool
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        messages, again = await overtaken(
            parts, url_of(state), lambda n: Verdict.RETRY, slow_is_sure=slow_is_sure
        )
        assert Counter(m.event_id for m in again) == Counter(m.event_id for m in messages)
        assert not any(message.seen for message in again)


@pytest.mark.parametrize("slow_is_sure", [True, False])
async def test_what_a_relieved_owner_handled_is_seen_and_nothing_else(
    state: Path, redis: RedisServer, slow_is_sure: bool
) -> None:
    """One of four: the other three are still to be handled."""
    use(state, redis.url)
    async with on_redis(state) as parts:
        messages, again = await overtaken(
            parts,
            url_of(state),
            lambda n: Verdict.BACK if n else Verdict.DONE,
            slow_is_sure=slow_is_sure,
        )
        left = {message.event_id for message in again if not message.seen}
        assert left == {message.event_id for message in messages[1:]}
