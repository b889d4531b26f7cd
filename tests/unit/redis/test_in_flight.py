"""What is in flight, what is to be acknowledged, and what an entry holds."""

from __future__ import annotations

import pytest

from cordata.broker import Outcome
from cordata.broker.claim import Entry
from cordata.broker.redis.in_flight import InFlight
from cordata.broker.redis.stream import FIELD, Delivery, Stream, decode, encode
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
        payload='{"ä": 1, "n": 1.50}',
        headers="{}",
        attempts=0,
        next_at=1,
        created_at=5,
        position=position,
    )


def delivery(number: int = 1, *, key: str | None = "k", position: int | None = None) -> Delivery:
    fields = {FIELD: encode(entry(key, position))}
    return decode("g", STREAM, "s", b"%d-0" % number, fields)


def outcome(one: Delivery, verdict: Verdict) -> Outcome:
    return Outcome(group=one.message.group, id=one.message.id, verdict=verdict, event_id="e7")


@pytest.mark.parametrize("key", [None, "", "k", "="])
def test_entry_of_a_stream_holds_all_of_the_event(key: str | None) -> None:
    one = delivery(key=key)
    message = one.message
    assert (one.outbox_id, one.priority, message.lane) == (7, -3, "backfill")
    assert (message.event_id, message.type, message.key) == ("e7", "thing.done", key)
    assert (message.payload, message.created_at) == ('{"ä": 1, "n": 1.50}', 5)
    assert message.headers == "{}"


@pytest.mark.parametrize("fields", [None, {}, {b"x": b"1"}, {FIELD: b"{}"}, {FIELD: b"x"}])
def test_entry_of_somebody_else_is_refused(fields: dict[bytes, bytes] | None) -> None:
    with pytest.raises(ValueError):
        decode("g", STREAM, "s", b"1-0", fields)


@pytest.mark.parametrize("position", [None, 0, 7])
def test_entry_tells_when_it_may_have_been_added_before(position: int | None) -> None:
    one = delivery(position=position)
    assert one.again == (position is not None) and one.outbox_id == 7


def test_handled_is_acknowledged_once_and_the_rest_stays_held() -> None:
    in_flight, one, two, three = InFlight(), delivery(1), delivery(2), delivery(3)
    assert in_flight.add(one) and in_flight.add(two)
    assert not in_flight.add(one)
    outcomes = [
        outcome(one, Verdict.DONE),
        outcome(two, Verdict.RETRY),
        outcome(three, Verdict.BACK),
    ]
    rest, unknown = in_flight.settle(outcomes)
    assert [each for _, each in rest] == [two] and unknown == outcomes[2:]
    rest, unknown = in_flight.settle(outcomes)  # again, after a store that took nothing
    assert [each for _, each in rest] == [two] and unknown == [outcomes[0], outcomes[2]]
    assert in_flight.to_acknowledge() == [one] and in_flight.held() == [two]
    assert not in_flight.add(one)  # read again, before it was acknowledged


def test_only_what_was_handled_here_is_called_handled_when_it_is_acknowledged() -> None:
    in_flight, one, two = InFlight(), delivery(1), delivery(2)
    in_flight.add(one)
    in_flight.add(two)
    in_flight.settle([outcome(one, Verdict.DONE)])
    in_flight.move([two])  # the store has it now: it is due there
    assert in_flight.to_acknowledge() == [one, two]
    assert in_flight.acknowledged([one, two]) == [one]
    assert in_flight.is_settled and in_flight.held() == []
