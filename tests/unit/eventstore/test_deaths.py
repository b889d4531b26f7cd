"""An attempt that ended with its process uses up one attempt, once."""

from __future__ import annotations

from dataclasses import replace

from cordata.eventstore import Claim, Standing
from cordata.services.subscription.deaths import Deaths, attempt_mark

DIED = Claim(subscription="p", partition=1, owner="dead", term=5)


def deaths_at(position: int, number: int = 1) -> Deaths:
    """One has died in an attempt at an event."""
    deaths = Deaths()
    deaths.add([attempt_mark(DIED, position, number)])
    return deaths


def claim(term: int) -> Claim:
    return replace(DIED, owner="next", term=term)


def standing(term: int, *, failing: int | None, attempts: int) -> Standing:
    return Standing(
        subscription="p",
        partition=1,
        position=0,
        term=term,
        owner="next",
        failing=failing,
        attempts=attempts,
        next_at=None,
        history=None,
        blocked_at=None,
    )


def test_death_counts_once_when_its_attempt_comes_again() -> None:
    deaths = deaths_at(7)
    assert not deaths.count(claim(6), 8, 1) and not deaths.count(claim(6), 7, 2)
    assert deaths.count(claim(6), 7, 1)
    assert not deaths.count(claim(6), 7, 1)


def test_death_counts_when_the_next_owner_died_before_it_had_counted() -> None:
    assert deaths_at(7).count(claim(7), 7, 1)


def test_death_does_not_count_when_the_table_says_that_it_was_counted() -> None:
    deaths = deaths_at(7, number=2)
    deaths.look([standing(6, failing=7, attempts=1), standing(6, failing=None, attempts=0)])
    deaths.look([standing(6, failing=8, attempts=2)])
    assert deaths.count(claim(6), 7, 2)
    deaths = deaths_at(7, number=2)
    deaths.look([standing(6, failing=7, attempts=2)])
    assert not deaths.count(claim(6), 7, 2)


def test_death_does_not_count_under_its_own_claim_or_long_after() -> None:
    assert not deaths_at(7).count(claim(5), 7, 1)
    assert not deaths_at(7).count(claim(5 + 16 + 1), 7, 1)  # as after a reset
