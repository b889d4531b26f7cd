"""What becomes of a message after an attempt."""

from __future__ import annotations

import json

import pytest

from cordata.core.claim_size import (
    low_priority_slots,
    mean_duration_s,
    prefetch_count,
    run_length,
)
from cordata.core.message_state import (
    ERROR_CHARS,
    HISTORY_ENTRIES,
    Failure,
    Verdict,
    add_failure,
    after_failure,
    error_text,
    is_permanent,
    is_unavailable,
)
from cordata.errors import (
    Conflict,
    PermanentError,
    ReadTimeout,
    StoreFull,
    TransactionTimeout,
    WrongExpectedVersion,
)


@pytest.mark.parametrize(
    ("attempt", "retries", "permanent", "verdict"),
    [
        (1, 5, False, Verdict.RETRY),
        (5, 5, False, Verdict.RETRY),
        (6, 5, False, Verdict.DEAD),
        (1, 0, False, Verdict.DEAD),
        (1, 5, True, Verdict.DEAD),
    ],
)
def test_verdict_follows_attempts_when_handler_failed(
    attempt: int, retries: int, permanent: bool, verdict: Verdict
) -> None:
    assert after_failure(attempt, retries=retries, permanent=permanent) is verdict


def test_attempt_counts_when_the_store_was_there_and_the_handler_slow() -> None:
    assert is_unavailable(StoreFull())
    assert not is_unavailable(ReadTimeout("a read took longer than 30 s"))
    assert not is_unavailable(TransactionTimeout())
    assert not is_unavailable(ValueError())


def test_error_text_is_one_bounded_line_when_message_is_long() -> None:
    text = error_text(ValueError("a\nb\r\n" + "x" * 10_000))
    assert text.startswith("ValueError: a b x")
    assert len(text) == ERROR_CHARS
    assert error_text(KeyError()) == "KeyError"


def test_history_keeps_first_and_latest_when_there_are_many_failures() -> None:
    history: str | None = None
    for attempt in range(1, 101):
        failure = Failure(attempt=attempt, at=attempt, owner="w", error="boom")
        history = add_failure(history, failure)
    assert history is not None
    attempts = [entry["attempt"] for entry in json.loads(history)]
    assert len(attempts) == HISTORY_ENTRIES
    assert attempts[0] == 1
    assert attempts[1:] == list(range(102 - HISTORY_ENTRIES, 101))


@pytest.mark.parametrize("damaged", ['[{"attempt": 1', "null", "1", '{"a": 1}', '"x"'])
def test_history_that_is_damaged_is_begun_anew(damaged: str) -> None:
    history = add_failure(damaged, Failure(attempt=2, at=2, owner="w", error="boom"))
    assert [entry["attempt"] for entry in json.loads(history)] == [2]


def test_prefetch_is_a_whole_batch_when_handlers_are_fast() -> None:
    assert prefetch_count(0.001, concurrency=8, batch=100) == 100


def test_prefetch_is_the_concurrency_when_handlers_are_slow_or_unknown() -> None:
    assert prefetch_count(10.0, concurrency=8, batch=100) == 8
    assert prefetch_count(0.0, concurrency=8, batch=100) == 8
    assert prefetch_count(10.0, concurrency=8, batch=4) == 4


def test_mean_takes_the_first_duration_whole_and_later_ones_by_a_tenth() -> None:
    assert mean_duration_s(0.0, 2.0) == 2.0
    assert mean_duration_s(2.0, 4.0) == pytest.approx(2.2)


def test_attempt_is_repeated_when_another_run_may_find_what_it_stumbled_over() -> None:
    assert is_permanent(PermanentError())
    assert not is_permanent(ValueError()) and not is_permanent(Conflict())
    assert not is_permanent(WrongExpectedVersion("account-7", expected=1, actual=2))


def test_error_text_can_be_stored_whatever_the_error_quotes() -> None:
    text = error_text(ValueError("no file 'caf\udce9\0'\n\tin \U0001f3d4"))
    assert text == "ValueError: no file 'caf\\udce9\\x00' in \U0001f3d4"
    assert len(error_text(ValueError("\udce9" * 1000))) == ERROR_CHARS


@pytest.mark.parametrize(("concurrency", "places"), [(1, 1), (2, 1), (4, 1), (16, 4)])
def test_low_priorities_have_a_quarter_of_the_places(concurrency: int, places: int) -> None:
    assert low_priority_slots(concurrency) == places


def test_run_is_what_one_handles_in_a_moment() -> None:
    assert run_length(0.0, batch=100) == 1
    assert run_length(0.0001, batch=100) == 100
    assert run_length(0.025, batch=100) == 10
    assert run_length(5.0, batch=100) == 1
