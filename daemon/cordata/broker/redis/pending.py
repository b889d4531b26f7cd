"""Pending entries and consumers of processes that are gone.

XGROUP DELCONSUMER also deletes the consumer's pending entries, so the group would not get them
until the primary closes their rows in `redis_sent`. So a consumer is removed only when it has none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata.broker.redis.server import WRONG_TYPE, RedisServer, code_of
from cordata.broker.redis.stream import ID, Keys
from cordata.store import Store, Tx

#: Entries of each group that move in one transaction.
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
    store: Store, server: RedisServer, keys: Keys, groups: Mapping[str, str], *, name: str
) -> int:
    """Move the pending entries that a dead process has in these groups (name -> event type) to the
    store, then remove its consumers.

    In the store they are messages that the dead process has claimed, so they are reclaimed as any
    other claim of it. All groups move together, because `reclaim` counts a failed attempt if a
    message was the process's only one. Two processes may do this at once. Returns the number of
    messages added. Raises: BrokerUnavailable, ResponseError, StoreUnavailable.
    """
    count, left = 0, dict(groups)
    while left:
        pipe = server.pipeline()
        for group, type in left.items():
            pipe.xpending_range(keys.of(type), group, "-", "+", _PAGE, name)
        held: dict[str, list[bytes]] = {}
        for group, reply in zip(list(left), await server.execute(pipe), strict=True):
            if not isinstance(reply, ResponseError):
                held[group] = [one["message_id"] for one in reply]
            elif code_of(reply) in ("NOGROUP", WRONG_TYPE):  # nothing is pending
                del left[group]
            else:
                raise reply
        if any(held.values()):
            count += await _move_page(store, server, keys, left, held, name)
        else:
            pipe = server.pipeline()
            for group, type in left.items():
                queue_removal(pipe, keys.of(type), group, name)
            await server.execute(pipe)
            break
    return count


async def _move_page(
    store: Store,
    server: RedisServer,
    keys: Keys,
    types: Mapping[str, str],
    held: Mapping[str, Sequence[bytes]],
    name: str,
) -> int:
    """Move these entries, by group. Returns the number of messages added.

    Raises: BrokerUnavailable, ResponseError, StoreUnavailable.
    """
    entries = [(group, entry_id) for group, ids in held.items() for entry_id in ids]
    pipe = server.pipeline()
    for group, entry_id in entries:
        pipe.xrange(keys.of(types[group]), entry_id, entry_id)
    events: dict[str, list[str]] = {group: [] for group in held}
    for (group, _), reply in zip(entries, await server.execute(pipe), strict=True):
        if isinstance(reply, ResponseError):
            raise reply
        for _, fields in reply:  # none if the entry was deleted
            if ID in fields:
                events[group].append(fields[ID].decode())
    count = await _keep(store, events, name)
    pipe = server.pipeline()
    for group, ids in held.items():
        if ids:
            pipe.xack(keys.of(types[group]), group, *ids)
    for reply in await server.execute(pipe):
        if isinstance(reply, ResponseError):
            raise reply
    return count


async def _keep(store: Store, events: Mapping[str, Sequence[str]], owner: str) -> int:
    """Add messages of these events, by group, that `owner` has claimed, except for events that are
    handled or queued already, or older than the group.
    """
    claim = random.getrandbits(62) + 1

    async def unit(tx: Tx) -> int:
        wanted = set[tuple[str, str]]()
        for group, ids in events.items():
            known = await tx.fetch_all("redis.not_wanted", ids=json.dumps(ids), group=group)
            wanted |= {(id, group) for id in {*ids} - {row["event_id"] for row in known}}
        rows = [
            [id, group, "claimed", 1, tx.now_us, "", 0, 0, owner, claim]
            for id, group in sorted(wanted)
        ]
        return await tx.execute("redis.keep", messages=json.dumps(rows))

    return await store.run(unit)
