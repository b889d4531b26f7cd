"""Positions keep the order of entry ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordata.broker.redis.stream import id_of, position_of

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
