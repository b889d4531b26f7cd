"""What is in hand, what is owed, and what an entry holds."""

from __future__ import annotations

import pytest

from cordata.broker import Outcome
from cordata.broker.claim import Entry
from cordata.broker.redis.acking import acks_of
from cordata.broker.redis.hands import Hands, Taken, entry_of, taken_of
from cordata.broker.redis.naming import Stream
from cordata.core.delivery import Verdict

STREAM = Stream("thing.done", "backfill")


def entry(key: str | None = "k", position: int | None = None) -> Entry:
    return Entry(
        id=7,
        event_id="e7",
        type="thing.done",
        key=key,
        lane="backfill",
        priority=-3,
        payload='{"ä": 1}',
        headers="{}",
        attempts=0,
        next_at=1,
        created_at=5,
        position=position,
    )


def taken(
    number: int = 1, *, group: str = "g", key: str | None = "k", position: int | None = None
) -> Taken:
    values = entry_of(entry(key, position))
    words = [w if isinstance(w, bytes) else str(w).encode() for w in values]
    return taken_of(group, STREAM, "s", b"%d-0" % number, words)


def outcome(one: Taken, verdict: Verdict) -> Outcome:
    return Outcome(group=one.message.group, id=one.message.id, verdict=verdict, event_id="e7")


@pytest.mark.parametrize("key", [None, "", "k", "="])
def test_entry_of_a_stream_holds_all_of_the_event(key: str | None) -> None:
    one = taken(key=key)
    message = one.message
    assert (one.outbox_id, one.priority, message.lane) == (7, -3, "backfill")
    assert (message.event_id, message.type, message.key) == ("e7", "thing.done", key)
    assert (message.payload, message.headers, message.created_at) == ('{"ä": 1}', "{}", 5)


@pytest.mark.parametrize("fields", [[], [b"x", b"1"], [b"o", b"1"]])
def test_entry_of_somebody_else_is_refused(fields: list[bytes]) -> None:
    with pytest.raises(ValueError, match="fields"):
        taken_of("g", STREAM, "s", b"1-0", fields)


def test_done_is_owed_once_and_the_rest_stays_in_hand() -> None:
    hands, one, two, three = Hands(), taken(1), taken(2), taken(3)
    for each in (one, two):
        hands.add(each)
    outcomes = [
        outcome(one, Verdict.DONE),
        outcome(two, Verdict.RETRY),
        outcome(three, Verdict.BACK),
    ]
    rest, others = hands.settle(outcomes)
    assert [each for _, each in rest] == [two] and others == []
    rest, others = hands.settle(outcomes)  # again, after a store that took nothing
    assert [each for _, each in rest] == [two] and others == outcomes[:1]
    assert hands.done() == [one] and not hands.owes
    hands.let_go(two)
    assert hands.all() == [] and hands.done() == [two]


def test_what_could_not_be_acknowledged_is_still_owed() -> None:
    hands = Hands()
    hands.add(taken(1))
    hands.settle([outcome(taken(1), Verdict.DONE)])
    hands.put_back(hands.done())
    assert hands.owes and hands.done() == [taken(1)]


def test_acknowledgements_are_one_command_per_stream_and_group() -> None:
    done = [taken(1), taken(2), taken(1, group="h")]
    assert [ack.command for ack in acks_of(Hands(), done, "me", sure=True)] == [
        ("XACK", "s", "g", b"1-0", b"2-0"),
        ("XACK", "s", "h", b"1-0"),
    ]


@pytest.mark.parametrize("sure", [True, False])
def test_holder_is_asked_for_when_it_may_be_another_or_the_store_has_it(sure: bool) -> None:
    hands = Hands()
    for number in (1, 2):
        hands.add(taken(number))
    hands.let_go(taken(1))
    acks = acks_of(hands, [taken(1), taken(2)], "me", sure=sure)
    looked_at = [ack.pile for ack in acks if ack.command[0] == "EVAL"]
    assert looked_at == [[taken(1)] if sure else [taken(1), taken(2)]]


@pytest.mark.parametrize("position", [None, 0, 7])
def test_entry_tells_when_it_may_have_been_added_before(position: int | None) -> None:
    one = taken(position=position)
    assert one.again == (position is not None) and one.outbox_id == 7


def test_only_what_was_handled_here_is_called_handled_when_others_acknowledged_it() -> None:
    hands = Hands()
    for number in (1, 2):
        hands.add(taken(number))
    hands.settle([outcome(taken(1), Verdict.DONE)])
    hands.let_go(taken(2))  # the store has it now: it is due there
    hands.put_back(hands.done())
    assert hands.acknowledged(hands.done()) == [taken(1)]
