"""The backoff rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordata.core.retry import Backoff

HALF = Backoff(1.0, 300.0, draw=lambda: 0.5)


def test_delay_doubles_with_each_attempt_when_the_share_is_the_same() -> None:
    assert [HALF.delay_s(n) for n in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]


def test_delay_stays_below_the_longest_when_attempts_are_many() -> None:
    assert Backoff(1.0, 300.0, draw=lambda: 0.999).delay_s(1_000_000) < 300.0


def test_delay_is_the_first_pause_when_attempt_is_not_positive() -> None:
    assert Backoff(2.0, 300.0, draw=lambda: 0.5).delay_s(0) == 1.0


@given(
    st.integers(min_value=1, max_value=10_000),
    st.floats(min_value=0, max_value=1),
    st.floats(min_value=0, max_value=1, exclude_max=True),
    st.floats(min_value=0.001, max_value=60),
    st.floats(min_value=0.001, max_value=3600),
)
def test_delay_is_never_below_the_least_share_nor_above_the_longest(
    attempt: int, least: float, drawn: float, first_s: float, longest_s: float
) -> None:
    delay_s = Backoff(first_s, longest_s, least, lambda: drawn).delay_s(attempt)
    assert least * min(first_s, longest_s) <= delay_s <= longest_s
