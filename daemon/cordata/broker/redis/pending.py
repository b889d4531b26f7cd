"""Pending entries: delivered to a consumer of a group and not acknowledged. Who has them, and whose
they become.

XACK and XCLAIM ask nobody: they also touch an entry that another process has taken over meanwhile.
So each of them is a script here that touches an entry only while it is in the name that the caller
thinks it is in, and tells which entries were not:

    acknowledge   in our name   ──> gone                      else it is another process' to finish
    renew         in our name   ──> idle for 0 s              else we have lost it
    take over     in its name   ──> in our name               else its owner, or another, was faster

Not XAUTOCLAIM: that takes whatever is idle, whoever has it. Here, what a process held that is known
dead is taken at once, and what expired after a look at its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata.broker.message import Held
from cordata.broker.redis.refusal_log import RefusalLog
from cordata.broker.redis.server import RedisServer
from cordata.broker.redis.state import StreamGroup
from cordata.broker.redis.stream import Delivery, Keys, address_of, decode, unreadable

#: KEYS: the stream. ARGV: group, consumer, ids. Returns the ids that are not in its name.
_ACKNOWLEDGE = """
local ours, others = {}, {}
for n = 3, #ARGV do
    local at = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[n], ARGV[n], 1, ARGV[2])
    local list = #at > 0 and ours or others
    list[#list + 1] = ARGV[n]
end
if #ours > 0 then redis.call('XACK', KEYS[1], ARGV[1], unpack(ours)) end
return others
"""
#: As _ACKNOWLEDGE; returns the ids that are in another consumer's name.
_RENEW = """
local lost = {}
for n = 3, #ARGV do
    local at = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[n], ARGV[n], 1)
    if #at > 0 then
        if at[1][2] == ARGV[2] then
            redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[n], 'JUSTID')
        else
            lost[#lost + 1] = ARGV[n]
        end
    end
end
return lost
"""
#: KEYS: the stream. ARGV: group, its name, our name, ids. Returns the entries that are ours now.
_TAKE_OVER = """
local taken = {}
for n = 4, #ARGV do
    local at = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[n], ARGV[n], 1, ARGV[2])
    if #at > 0 then
        local entry = redis.call('XRANGE', KEYS[1], ARGV[n], ARGV[n])[1]
        if entry then
            redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, ARGV[n], 'JUSTID')
            taken[#taken + 1] = entry
        else
            redis.call('XACK', KEYS[1], ARGV[1], ARGV[n])
        end
    end
end
return taken
"""
#: KEYS: the stream. ARGV: group, consumer. Never with entries in its name: they would be lost.
_REMOVE_CONSUMER = """
local left = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #left > 0 then return 0 end
return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) + 1
"""
#: Entries of one script: no other client waits long for it.
_PAGE = 500
#: Expired entries of one stream and group that one look takes notice of.
_EXPIRED_PAGE = 200
#: A consumer that reads nothing for so long, and holds nothing, is gone: of another host, say, for
#: those of this one go with their owner file. If it was not, its next read makes it anew.
GONE_S = 600.0


class Batch(NamedTuple):
    """Deliveries of one stream and group, for one script."""

    key: str
    group: str
    deliveries: Sequence[Delivery]

    def matching(self, reply: Any) -> list[Delivery]:
        """Those whose ids a script returned; all when there is no such group any more."""
        if isinstance(reply, ResponseError):
            return list(self.deliveries)
        ids = set(reply)
        return [one for one in self.deliveries if one.entry_id in ids]


def acknowledge(pipe: Pipeline, deliveries: Iterable[Delivery], name: str) -> list[Batch]:
    """Add the commands that acknowledge what is in a name. One reply for each batch."""
    return _queue(pipe, _ACKNOWLEDGE, deliveries, name)


async def renew(server: RedisServer, deliveries: Sequence[Delivery], name: str) -> list[Delivery]:
    """Renew what is in a name. Returns what is in another one by now.

    Raises: BrokerUnavailable; ResponseError, and then some were not renewed.
    """
    pipe = server.pipeline()
    batches = _queue(pipe, _RENEW, deliveries, name)
    lost: list[Delivery] = []
    for batch, reply in zip(batches, await server.execute(pipe), strict=True):
        if not isinstance(reply, ResponseError):
            lost += batch.matching(reply)
        elif not _is_gone(reply):
            raise reply
    return lost


def _queue(pipe: Pipeline, script: str, deliveries: Iterable[Delivery], name: str) -> list[Batch]:
    by_group: dict[tuple[str, str], list[Delivery]] = {}
    for one in deliveries:
        by_group.setdefault((one.key, one.message.group), []).append(one)
    batches = [
        Batch(key, group, all_[start : start + _PAGE])
        for (key, group), all_ in by_group.items()
        for start in range(0, len(all_), _PAGE)
    ]
    for key, group, part in batches:
        pipe.eval(script, 1, key, group, name, *(one.entry_id for one in part))
    return batches


async def holders(
    server: RedisServer, keys: Keys, pairs: Iterable[StreamGroup], *, claim_timeout_s: float
) -> dict[str, bool]:
    """Every consumer with pending entries -> whether some of them have expired.

    Raises: BrokerUnavailable.
    """
    pairs, pipe = list(pairs), server.pipeline()
    for pair in pairs:
        pipe.xpending(keys.of(pair.stream), pair.group)
    found: dict[str, bool] = {}
    busy = server.pipeline()
    for pair, summary in zip(pairs, await server.execute(pipe), strict=True):
        if not isinstance(summary, ResponseError) and summary["pending"]:
            found.update((one["name"].decode(), False) for one in summary["consumers"])
            idle_ms = int(claim_timeout_s * 1000)
            key = keys.of(pair.stream)
            busy.xpending_range(key, pair.group, "-", "+", _EXPIRED_PAGE, idle=idle_ms)
    for entries in await server.execute(busy):
        if not isinstance(entries, ResponseError):
            found.update((one["consumer"].decode(), True) for one in entries)
    return found


async def held_by(
    server: RedisServer,
    keys: Keys,
    pairs: Iterable[StreamGroup],
    name: str,
    *,
    limit: int,
    claim_timeout_s: float,
) -> list[Held]:
    """Entries in a consumer's name, `limit` at most. Raises: BrokerUnavailable."""
    pairs, pipe = list(pairs), server.pipeline()
    for pair in pairs:
        pipe.xpending_range(keys.of(pair.stream), pair.group, "-", "+", limit, name)
    found: list[Held] = []
    for pair, entries in zip(pairs, await server.execute(pipe), strict=True):
        if not isinstance(entries, ResponseError):
            found += [
                Held(
                    id=f"{keys.of(pair.stream)}/{one['message_id'].decode()}",
                    group=pair.group,
                    order_key=None,
                    attempts=0,
                    history=None,
                    expired=one["time_since_delivered"] >= claim_timeout_s * 1000,
                )
                for one in entries
            ]
    return found[:limit]


async def take_over(
    server: RedisServer,
    keys: Keys,
    messages: Iterable[tuple[str, str]],
    name: str,
    ours: str,
    refusal_log: RefusalLog,
) -> tuple[list[Delivery], list[Delivery]]:
    """(Events, what is none) of the messages (group, id) that were still in a consumer's name.

    They are in `ours` from now on. Raises: BrokerUnavailable.
    """
    by_group: dict[tuple[str, str], list[bytes]] = {}
    for group, message_id in messages:
        key, entry_id = address_of(message_id)
        by_group.setdefault((key, group), []).append(entry_id)
    pipe = server.pipeline()
    for (key, group), ids in by_group.items():
        pipe.eval(_TAKE_OVER, 1, key, group, name, ours, *ids)
    found: list[Delivery] = []
    foreign: list[Delivery] = []
    for (key, group), reply in zip(by_group, await server.execute(pipe), strict=True):
        if isinstance(reply, ResponseError):
            if not _is_gone(reply):
                refusal_log.refused("to take over what another process left", reply)
            continue
        for entry_id, flat in reply:
            values = dict(zip(flat[::2], flat[1::2], strict=True))
            stream = keys.stream_of(key)
            try:
                found.append(decode(group, stream, key, entry_id, values))
            except ValueError:
                foreign.append(unreadable(group, stream, key, entry_id))
    return found, foreign


async def remove_consumers(
    server: RedisServer, keys: Keys, consumers: Iterable[tuple[StreamGroup, str]]
) -> bool:
    """Remove consumers where nothing is in their name. Returns whether all are gone.

    Raises: BrokerUnavailable.
    """
    pipe = server.pipeline()
    for pair, name in consumers:
        pipe.eval(_REMOVE_CONSUMER, 1, keys.of(pair.stream), pair.group, name)
    replies = await server.execute(pipe)
    return all(_is_gone(one) if isinstance(one, ResponseError) else one for one in replies)


async def remove_unused_consumers(
    server: RedisServer, keys: Keys, pairs: Iterable[StreamGroup], *, gone_s: float = GONE_S
) -> None:
    """Remove consumers that nobody has used for long. Raises: BrokerUnavailable."""
    pairs, pipe = list(pairs), server.pipeline()
    for pair in pairs:
        pipe.xinfo_consumers(keys.of(pair.stream), pair.group)
    unused: list[tuple[StreamGroup, str]] = []
    for pair, consumers in zip(pairs, await server.execute(pipe), strict=True):
        if not isinstance(consumers, ResponseError):
            unused += [
                (pair, one["name"].decode()) for one in consumers if one["idle"] > gone_s * 1000
            ]
    await remove_consumers(server, keys, unused)


async def backlog(
    server: RedisServer, keys: Keys, pairs: Iterable[StreamGroup]
) -> tuple[bool, bool]:
    """Whether entries wait for one of the groups, and whether some are pending.

    Raises: BrokerUnavailable.
    """
    pairs, pipe = list(pairs), server.pipeline()
    for pair in pairs:
        pipe.xinfo_groups(keys.of(pair.stream))
    behind = server.pipeline()
    is_pending = False
    for pair, groups in zip(pairs, await server.execute(pipe), strict=True):
        if isinstance(groups, ResponseError):
            continue
        for facts in groups:
            if facts["name"] == pair.group.encode():
                is_pending = is_pending or facts["pending"] > 0
                after = b"(" + facts["last-delivered-id"]
                behind.xrange(keys.of(pair.stream), after, "+", 1)
    replies = await server.execute(behind)
    waits = any(reply and not isinstance(reply, ResponseError) for reply in replies)
    return waits, is_pending


def _is_gone(reply: ResponseError) -> bool:
    """Whether there is no such group, or no stream, so that nothing is in anybody's name there."""
    return "NOGROUP" in str(reply) or "WRONGTYPE" in str(reply)
