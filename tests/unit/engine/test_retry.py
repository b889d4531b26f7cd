"""The back-off rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordata.core.retry import next_delay_s


def test_delay_doubles_with_each_attempt_when_rng_is_the_same() -> None:
    delays = [next_delay_s(n, 0.5, first_s=1.0, longest_s=300.0) for n in (1, 2, 3, 4)]
    assert delays == [0.5, 1.0, 2.0, 4.0]


def test_delay_stays_below_the_longest_when_attempts_are_many() -> None:
    assert next_delay_s(1_000_000, 0.999, first_s=1.0, longest_s=300.0) < 300.0


def test_delay_is_the_first_pause_when_attempt_is_not_positive() -> None:
    assert next_delay_s(0, 0.5, first_s=2.0, longest_s=300.0) == 1.0


@given(
    st.integers(min_value=1, max_value=10_000),
    st.floats(min_value=0, max_value=1, exclude_max=True),
    st.floats(min_value=0.001, max_value=60),
    st.floats(min_value=0.001, max_value=3600),
)
def test_delay_is_never_negative_nor_above_the_longest_when_any_input(
    attempt: int, rng: float, first_s: float, longest_s: float
) -> None:
    assert 0 <= next_delay_s(attempt, rng, first_s=first_s, longest_s=longest_s) <= longest_s
