"""An attempt that ended with its process uses up one attempt, once."""

from __future__ import annotations

from dataclasses import replace

from cordata.eventstore.partition import Claim, PartitionState
from cordata.services.subscription.membership import CrashedAttempts, attempt_mark

DIED = Claim(subscription="p", partition=1, owner="dead", term=5)


def crashed_at(position: int, number: int = 1) -> CrashedAttempts:
    """One has died in an attempt at an event."""
    crashed = CrashedAttempts()
    crashed.add([attempt_mark(DIED, position, number)])
    return crashed


def claim(term: int) -> Claim:
    return replace(DIED, owner="next", term=term)


def state(term: int, *, failing: int | None, attempts: int) -> PartitionState:
    return PartitionState(
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
    crashed = crashed_at(7)
    assert not crashed.take(claim(6), 8, 1) and not crashed.take(claim(6), 7, 2)
    assert crashed.take(claim(6), 7, 1)
    assert not crashed.take(claim(6), 7, 1)


def test_death_counts_when_the_next_owner_died_before_it_had_counted() -> None:
    assert crashed_at(7).take(claim(7), 7, 1)


def test_death_does_not_count_when_the_table_says_that_it_was_counted() -> None:
    crashed = crashed_at(7, number=2)
    crashed.drop_counted([state(6, failing=7, attempts=1), state(6, failing=None, attempts=0)])
    crashed.drop_counted([state(6, failing=8, attempts=2)])
    assert crashed.take(claim(6), 7, 2)
    crashed = crashed_at(7, number=2)
    crashed.drop_counted([state(6, failing=7, attempts=2)])
    assert not crashed.take(claim(6), 7, 2)


def test_death_does_not_count_under_its_own_claim_or_long_after() -> None:
    assert not crashed_at(7).take(claim(5), 7, 1)
    assert not crashed_at(7).take(claim(5 + 16 + 1), 7, 1)  # as after a reset
