"""Pending entries and consumers of processes that are gone.

XGROUP DELCONSUMER also deletes the consumer's pending entries, so the group would not get them
until the primary closes their rows in `redis_sent`. So a consumer is removed only when it has none.
"""

from __future__ import annotations

import json
import random

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata.broker.redis.server import WRONG_TYPE, RedisServer, code_of
from cordata.broker.redis.stream import ID, Keys
from cordata.store import Store, Tx

#: Entries that move in one transaction.
_PAGE = 500
#: KEYS: the stream. ARGV: group, consumer.
_REMOVE_CONSUMER = """
local left = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if left.err or #left > 0 then return 0 end
return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
"""


def queue_removal(pipe: Pipeline, key: str, group: str, name: str) -> None:
    """Add the command that removes a consumer of a group, unless it has pending entries."""
    pipe.eval(_REMOVE_CONSUMER, 1, key, group, name)


async def move_claims(
    store: Store, server: RedisServer, keys: Keys, *, type: str, group: str, name: str
) -> int:
    """Move a dead process's pending entries of a group to the store, then remove the consumer.

    In the store they are messages that the dead process has claimed, so they are reclaimed as any
    other claim of it. Two processes may do this at once. Returns the number of messages added.
    Raises: BrokerUnavailable, ResponseError, StoreUnavailable.
    """
    key, count = keys.of(type), 0
    while True:
        pipe = server.pipeline()
        pipe.xpending_range(key, group, "-", "+", _PAGE, name)
        (held,) = await server.execute(pipe)
        if isinstance(held, ResponseError):
            if code_of(held) in ("NOGROUP", WRONG_TYPE):  # nothing is pending
                return count
            raise held
        pipe = server.pipeline()
        if not held:
            queue_removal(pipe, key, group, name)
            await server.execute(pipe)
            break
        ids = [one["message_id"] for one in held]
        for entry_id in ids:
            pipe.xrange(key, entry_id, entry_id)
        found = [entries[0][1] for entries in await server.execute(pipe) if entries]
        event_ids = [fields[ID].decode() for fields in found if ID in fields]
        count += await _keep(store, group, event_ids, name)
        pipe = server.pipeline()
        pipe.xack(key, group, *ids)
        await server.execute(pipe)
    return count


async def _keep(store: Store, group: str, event_ids: list[str], owner: str) -> int:
    claim = random.getrandbits(62) + 1

    async def unit(tx: Tx) -> int:
        rows = [
            [id, group, "claimed", 1, tx.now_us, "", 0, 0, owner, claim] for id in sorted(event_ids)
        ]
        return await tx.execute("redis.keep", messages=json.dumps(rows))

    return await store.run(unit)
