"""Who holds what in the streams: looked at when a process died, and now and then.

Not by XAUTOCLAIM: that takes whatever is idle, whoever has it, and by idle time only. Here what a
process held that is known dead is taken at once, what expired after a look at its owner, each entry
only if it is still in that name; and an attempt counts for those whose handler had begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cordata.broker.message import Held
from cordata.broker.redis.acking import hold_commands
from cordata.broker.redis.complaint import Complaints
from cordata.broker.redis.connection import Command, Connection, Refused
from cordata.broker.redis.hands import Taken, by_stream, taken_of
from cordata.broker.redis.naming import Keys
from cordata.broker.redis.reading import Consumer
from cordata.broker.redis.registry import Mark, as_dict

#: Expired entries of one stream and group that one look takes notice of.
_PAGE = 200
#: A consumer that reads nothing for so long, and holds nothing, is gone: of another host, say, for
#: those of this one go with their owner file. If it was not, its next read makes it anew.
GONE_S = 600.0
#: Never with entries in its name: they would be gone with it.
_FORGET = """
local left = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #left > 0 then return 0 end
return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) + 1
"""
_NOTHING = ("NOGROUP", "WRONGTYPE")
#: What is in one name goes to another one; not what others have taken meanwhile.
_TAKE = """
local taken = {}
for n = 4, #ARGV do
    local at = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[n], ARGV[n], 1, ARGV[2])
    if #at > 0 then
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, ARGV[n], 'JUSTID')
        taken[#taken + 1] = ARGV[n]
    end
end
return taken
"""


async def holders(
    connection: Connection,
    keys: Keys,
    marks: Iterable[Mark],
    *,
    claim_timeout_s: float,
    timeout_s: float,
) -> dict[str, bool]:
    """Every consumer with entries in its name -> whether some of them have expired."""
    marks = list(marks)
    found: dict[str, bool] = {}
    summaries = await _each(connection, [_pending(keys, m) for m in marks], timeout_s)
    busy = []
    for mark, summary in zip(marks, summaries, strict=True):
        if not isinstance(summary, Refused) and summary[0]:
            busy.append(mark)
            found.update((name.decode(), False) for name, _ in summary[3])
    idle = ("IDLE", int(claim_timeout_s * 1000), "-", "+", _PAGE)
    for reply in await _each(connection, [_pending(keys, m, *idle) for m in busy], timeout_s):
        if not isinstance(reply, Refused):
            found.update((name.decode(), True) for _, name, *_ in reply)
    return found


async def held(
    connection: Connection,
    keys: Keys,
    marks: Iterable[Mark],
    consumer: Consumer,
    *,
    limit: int,
    claim_timeout_s: float,
    timeout_s: float,
) -> list[Held]:
    """Entries in a consumer's name, `limit` at most; they are in its `hands` from now on.

    So what becomes of them can be settled in its name.
    """
    marks = list(marks)
    wanted = [_pending(keys, m, "-", "+", limit, consumer.name) for m in marks]
    found: list[Held] = []
    for mark, pending in zip(marks, await _each(connection, wanted, timeout_s), strict=True):
        if isinstance(pending, Refused) or not pending or len(found) >= limit:
            continue
        pending = pending[: limit - len(found)]
        key = keys.of(mark.stream)
        reads: list[Command] = [("XRANGE", key, entry[0], entry[0]) for entry in pending]
        entries = await _each(connection, reads, timeout_s)
        for (entry_id, _, idle_ms, _), entry in zip(pending, entries, strict=True):
            taken = _taken(mark, key, entry)
            if taken is None:  # deleted, or not ours: nothing that anybody could handle
                await connection.call(("XACK", key, mark.group, entry_id), timeout_s=timeout_s)
                continue
            consumer.hands.add(taken)
            found.append(
                Held(
                    id=taken.message.id,
                    group=mark.group,
                    order_key=None,
                    attempts=0,
                    history=None,
                    expired=idle_ms >= claim_timeout_s * 1000,
                )
            )
    return found


def _taken(mark: Mark, key: str, reply: Any) -> Taken | None:
    if isinstance(reply, Refused) or not reply:
        return None
    ((entry_id, fields),) = reply
    try:
        return taken_of(mark.group, mark.stream, key, entry_id, fields)
    except ValueError:
        return None


async def take_over(
    connection: Connection,
    all_taken: Sequence[Taken],
    name: str,
    ours: str,
    complaints: Complaints,
    *,
    timeout_s: float,
) -> tuple[set[Taken], set[Taken]]:
    """(Those that were still in the name of a process, in `ours` from now on; those that were not).

    Those in neither Redis did not give: they are where they were.
    """
    piles = by_stream(all_taken)
    commands: list[Command] = [
        ("EVAL", _TAKE, 1, key, group, name, ours, *(taken.entry_id for taken in pile))
        for (key, group), pile in piles.items()
    ]
    found: set[Taken] = set()
    gone: set[Taken] = set()
    for pile, reply in zip(
        piles.values(), await _each(connection, commands, timeout_s), strict=True
    ):
        if isinstance(reply, Refused) and not _tells_of_nothing(reply):
            complaints.refused("to take over what another one left", reply)
            continue
        ids = set() if isinstance(reply, Refused) else set(reply)
        for taken in pile:
            (found if taken.entry_id in ids else gone).add(taken)
    return found, gone


async def hold(
    connection: Connection, all_taken: Sequence[Taken], name: str, *, timeout_s: float
) -> set[Taken]:
    """Renew what is in the name of a process. Returns those that are in another one by now.

    Raises: BrokerUnavailable; Refused, and then some were not renewed.
    """
    pieces = hold_commands(all_taken, name)
    replies = await _each(connection, [piece.command for piece in pieces], timeout_s)
    lost: set[Taken] = set()
    for piece, reply in zip(pieces, replies, strict=True):
        if isinstance(reply, Refused) and not _tells_of_nothing(reply):
            raise reply
        ids = set() if isinstance(reply, Refused) else set(reply)
        lost.update(taken for taken in piece.pile if taken.entry_id in ids)
    return lost


async def forget(
    connection: Connection,
    keys: Keys,
    marks: Iterable[Mark],
    names: Sequence[str],
    *,
    timeout_s: float,
) -> bool:
    """Remove consumers that are gone, where nothing is in their name. Returns whether all are."""
    replies = await _each(
        connection,
        [("EVAL", _FORGET, 1, keys.of(m.stream), m.group, name) for m in marks for name in names],
        timeout_s,
    )
    return all(
        _tells_of_nothing(reply) if isinstance(reply, Refused) else reply for reply in replies
    )


def _tells_of_nothing(reply: Refused) -> bool:
    """Whether there is no such group, or no stream, so that nothing is in anybody's name there."""
    return any(word in str(reply) for word in _NOTHING)  # a script's error does not begin with it


async def sweep(
    connection: Connection,
    keys: Keys,
    marks: Iterable[Mark],
    *,
    gone_s: float = GONE_S,
    timeout_s: float,
) -> None:
    """Remove consumers that nobody has used for long."""
    marks = list(marks)
    looks: list[Command] = [("XINFO", "CONSUMERS", keys.of(m.stream), m.group) for m in marks]
    for mark, reply in zip(marks, await _each(connection, looks, timeout_s), strict=True):
        if not isinstance(reply, Refused):
            facts = map(as_dict, reply)
            gone = [f[b"name"].decode() for f in facts if f[b"idle"] > gone_s * 1000]
            if gone:
                await forget(connection, keys, [mark], gone, timeout_s=timeout_s)


async def depth(
    connection: Connection, keys: Keys, marks: Iterable[Mark], *, timeout_s: float
) -> tuple[bool, bool]:
    """Whether entries wait for one of the groups, and whether some are in any process' hands."""
    marks = list(marks)
    looks: list[Command] = [("XINFO", "GROUPS", keys.of(m.stream)) for m in marks]
    waits: list[Command] = []
    claimed = False
    for mark, reply in zip(marks, await _each(connection, looks, timeout_s), strict=True):
        if isinstance(reply, Refused):
            continue
        for facts in map(as_dict, reply):
            if facts[b"name"] == mark.group.encode():
                claimed = claimed or facts[b"pending"] > 0
                after = b"(" + facts[b"last-delivered-id"]
                waits.append(("XRANGE", keys.of(mark.stream), after, "+", "COUNT", 1))
    replies = await _each(connection, waits, timeout_s)
    return any(reply and not isinstance(reply, Refused) for reply in replies), claimed


def _pending(keys: Keys, mark: Mark, *more: str | int) -> Command:
    return ("XPENDING", keys.of(mark.stream), mark.group, *more)


async def _each(connection: Connection, commands: Sequence[Command], timeout_s: float) -> list[Any]:
    return await connection.call(*commands, timeout_s=timeout_s) if commands else []
