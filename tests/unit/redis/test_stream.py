"""Positions keep the order of entry ids; levels follow lane and priority."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordata.broker.redis.stream import Keys, Stream, id_of, level_of, position_of, rank_of

IDS = st.tuples(st.integers(0, 2**41), st.integers(0, 2**21 - 1))


@given(IDS, IDS)
def test_positions_are_ordered_as_ids_are(one: tuple[int, int], two: tuple[int, int]) -> None:
    first, second = (position_of(b"%d-%d" % ids) for ids in (one, two))
    assert (first < second) == (one < two)
    assert first < 2**63  # fits a BIGINT


@given(IDS)
def test_id_comes_back_from_its_position(ids: tuple[int, int]) -> None:
    text = f"{ids[0]}-{ids[1]}"
    assert id_of(position_of(text.encode())) == text


def test_level_is_that_of_the_lane_first_and_then_of_the_priority() -> None:
    levels = [level_of(*of) for of in (("live", 9), ("live", 0), ("live", -1), ("backfill", 9))]
    assert levels == ["urgent", "normal", "low", "backfill"]
    assert sorted(levels, key=lambda level: rank_of(Stream("t", level))) == levels


def test_stream_comes_back_from_its_key_whatever_its_type_looks_like() -> None:
    keys = Keys("a:b")
    for type_ in ("reservation.received", "odd:type:urgent", "ä"):
        stream = Stream(type_, "normal")
        assert keys.stream_of(keys.of(stream)) == stream
