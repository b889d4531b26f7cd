"""Acknowledgements, by who may still hold what they are about.

XACK asks nobody: it also takes an entry out of the name of a process that has taken it over. So a
process acknowledges what it handled without a question only as long as nobody can have taken it
over: it was read or renewed well within the time after which claims expire. That is every message
in a worker that is not stuck, and costs nothing. Everything else is acknowledged by a script that
looks first, entry by entry, and tells what became of those that are not in our name any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from cordata.broker.redis.connection import Command
from cordata.broker.redis.hands import Hands, Taken, by_stream

#: Of the time after which a claim expires: younger ones are ours without a question.
SURE_SHARE = 2 / 3
#: 1: acknowledged; 2: somebody has before, and it is still in the stream, as nobody trims what is
#: not handled by all; 0: in another name, or Redis does not know what became of it.
_ACK = """
local delivered = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local facts = {}
    for n = 1, #group, 2 do facts[group[n]] = group[n + 1] end
    if facts['name'] == ARGV[1] then delivered = facts['last-delivered-id'] end
end
local found = {}
for n = 3, #ARGV do
    local id = ARGV[n]
    local at = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)
    if #at > 0 then
        local ours = at[1][2] == ARGV[2]
        found[#found + 1] = ours and redis.call('XACK', KEYS[1], ARGV[1], id) or 0
    else
        local there = #redis.call('XRANGE', KEYS[1], id, id) > 0
        if there then  -- else what the group has before it may be of an older Redis
            there = #redis.call('XRANGE', KEYS[1], id, delivered, 'COUNT', 1) > 0
        end
        found[#found + 1] = there and 2 or 0
    end
end
return found
"""
#: Renews what is in one name; tells what is in another one.
_HOLD = """
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
#: Entries of one script: no other client waits long for it.
_PAGE = 500


class Piece(NamedTuple):
    """One command, and the entries of one stream and group that it is about."""

    command: Command
    pile: Sequence[Taken]


def acks_of(hands: Hands, done: Sequence[Taken], holder: str, *, sure: bool) -> list[Piece]:
    """What acknowledges all that is `done`; `sure`: what was handled is in the name of `holder`.

    What goes on in the store is always looked at: who took it over must not find it acknowledged
    and think that it was handled.
    """
    blind = [taken for taken in done if sure and not hands.lets_go(taken)]
    looked_at = [taken for taken in done if not sure or hands.lets_go(taken)]
    acks = [
        Piece(("XACK", *at, *(taken.entry_id for taken in pile)), pile)
        for at, pile in by_stream(blind).items()
    ]
    return acks + _pieces(_ACK, looked_at, holder)


def unacknowledged(ack: Piece, reply: Any) -> tuple[list[Taken], list[Taken]]:
    """Of an answer: what was not ours to acknowledge, and of that what others have before."""
    if isinstance(reply, list):
        told = list(zip(ack.pile, reply, strict=True))
        return [one for one, was in told if was != 1], [one for one, was in told if was == 2]
    return [] if reply == len(ack.pile) else list(ack.pile), []


def hold_commands(all_taken: Collection[Taken], name: str) -> list[Piece]:
    """What renews entries in a name; the answer of each: ids of those that are in another one."""
    return _pieces(_HOLD, all_taken, name)


def _pieces(script: str, all_taken: Collection[Taken], name: str) -> list[Piece]:
    return [
        Piece(("EVAL", script, 1, key, group, name, *(taken.entry_id for taken in part)), part)
        for (key, group), pile in by_stream(all_taken).items()
        for start in range(0, len(pile), _PAGE)
        if (part := pile[start : start + _PAGE])
    ]
