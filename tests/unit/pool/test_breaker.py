"""Commands that kill children one after the other."""

from __future__ import annotations

import pytest

from cordata.errors import CommandPoisoned
from cordata.pool.client.breaker import CircuitBreaker


def test_command_is_refused_after_so_many_deaths_in_a_row_until_the_pause_is_over() -> None:
    breaker = CircuitBreaker(3, 60.0)
    assert [breaker.count_death("render", at) for at in (0.0, 1.0)] == [False, False]
    breaker.check("render", 1.0)
    assert breaker.count_death("render", 2.0)
    with pytest.raises(CommandPoisoned, match="killed 3 processes") as caught:
        breaker.check("render", 12.0)
    assert caught.value.retry_after_s == 50.0
    breaker.check("other", 12.0)
    breaker.check("render", 62.0)


def test_after_the_pause_one_more_death_is_enough_and_an_answer_breaks_the_row() -> None:
    breaker = CircuitBreaker(2, 10.0)
    breaker.count_death("render", 0.0)
    breaker.succeeded("render")
    assert not breaker.count_death("render", 1.0)
    assert breaker.count_death("render", 2.0)
    assert breaker.count_death("render", 13.0)
    assert breaker.is_open("render", 20.0)
